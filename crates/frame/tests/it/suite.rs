//! JSONTestSuite: where its files are, and what is decided where it leaves a file open. The tests of the
//! gateway as a whole use both, too.
//!
//! The suite is not copied here: the package of the crate `actson`, a development dependency for nothing
//! else, holds it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What becomes of a file that the suite leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Open {
    /// Numbers are never converted, so none is too large or too small.
    Number,
    /// An escape of half a surrogate pair, where only the receiver reads it.
    HalfPair,
    /// Bytes that are no UTF-8: another encoding, overlong, cut off, a surrogate encoded.
    NotUtf8,
    /// A byte order mark or UTF-16 text that happens to be UTF-8, too.
    NoJson,
    /// Deeper than 128 levels.
    Deep,
}

/// The decision for each of the open files.
pub(crate) const OPEN: [(&str, Open); 35] = [
    ("i_number_double_huge_neg_exp", Open::Number),
    ("i_number_huge_exp", Open::Number),
    ("i_number_neg_int_huge_exp", Open::Number),
    ("i_number_pos_double_huge_exp", Open::Number),
    ("i_number_real_neg_overflow", Open::Number),
    ("i_number_real_pos_overflow", Open::Number),
    ("i_number_real_underflow", Open::Number),
    ("i_number_too_big_neg_int", Open::Number),
    ("i_number_too_big_pos_int", Open::Number),
    ("i_number_very_big_negative_int", Open::Number),
    ("i_object_key_lone_2nd_surrogate", Open::HalfPair),
    ("i_string_1st_surrogate_but_2nd_missing", Open::HalfPair),
    ("i_string_1st_valid_surrogate_2nd_invalid", Open::HalfPair),
    ("i_string_UTF-16LE_with_BOM", Open::NotUtf8),
    ("i_string_UTF-8_invalid_sequence", Open::NotUtf8),
    ("i_string_UTF8_surrogate_U+D800", Open::NotUtf8),
    (
        "i_string_incomplete_surrogate_and_escape_valid",
        Open::HalfPair,
    ),
    ("i_string_incomplete_surrogate_pair", Open::HalfPair),
    (
        "i_string_incomplete_surrogates_escape_valid",
        Open::HalfPair,
    ),
    ("i_string_invalid_lonely_surrogate", Open::HalfPair),
    ("i_string_invalid_surrogate", Open::HalfPair),
    ("i_string_invalid_utf-8", Open::NotUtf8),
    ("i_string_inverted_surrogates_U+1D11E", Open::HalfPair),
    ("i_string_iso_latin_1", Open::NotUtf8),
    ("i_string_lone_second_surrogate", Open::HalfPair),
    ("i_string_lone_utf8_continuation_byte", Open::NotUtf8),
    ("i_string_not_in_unicode_range", Open::NotUtf8),
    ("i_string_overlong_sequence_2_bytes", Open::NotUtf8),
    ("i_string_overlong_sequence_6_bytes", Open::NotUtf8),
    ("i_string_overlong_sequence_6_bytes_null", Open::NotUtf8),
    ("i_string_truncated-utf-8", Open::NotUtf8),
    ("i_string_utf16BE_no_BOM", Open::NotUtf8),
    ("i_string_utf16LE_no_BOM", Open::NotUtf8),
    ("i_structure_500_nested_arrays", Open::Deep),
    ("i_structure_UTF-8_BOM_empty_object", Open::NoJson),
];

/// The folder of the suite.
fn suite() -> PathBuf {
    let package = by_metadata().or_else(in_registry);
    let package = package.expect("the sources of the development dependency actson");
    package.join("tests/json_test_suite/test_parsing")
}

/// Where cargo says the package is. It does not say when other packages of the workspace were never
/// downloaded, as after `cargo test -p`.
fn by_metadata() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--format-version", "1"])
        .args(["--filter-platform", "host-tuple"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).ok()?;
    let packages = metadata.get("packages")?.as_array()?;
    let package = packages
        .iter()
        .find(|package| package["name"] == "actson")?;
    let manifest = Path::new(package["manifest_path"].as_str()?);
    Some(manifest.parent()?.to_path_buf())
}

/// Where cargo keeps the sources of packages.
fn in_registry() -> Option<PathBuf> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir()?.join(".cargo"),
    };
    let sources = std::fs::read_dir(home.join("registry/src")).ok()?;
    let mut packages = sources
        .flatten()
        .map(|source| source.path().join("actson-2.1.0"));
    packages.find(|package| package.is_dir())
}

/// Names and texts of the suite.
pub(crate) fn files() -> BTreeMap<String, Vec<u8>> {
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy();
        (name.into_owned(), std::fs::read(&path).expect("a file"))
    };
    let folder = suite();
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(file).collect()
}
