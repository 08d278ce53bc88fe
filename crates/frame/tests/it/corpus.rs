//! JSONTestSuite: every file of its parsing folder as the value of an argument, in one run.
//!
//! `y_` files are taken and come out of a draft byte for byte, `n_` files are refused, and what the
//! suite leaves open is decided by [`OPEN`]. The suite is not copied here: the package of the crate
//! `actson`, a development dependency for nothing else, holds it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use vestibule_frame::{Draft, Reason};

use crate::{argument, parse};

/// What becomes of a file that the suite leaves open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Open {
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
const OPEN: [(&str, Open); 35] = [
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

impl Open {
    /// The refusal; none when the file is taken.
    fn refusal(self) -> Option<Reason> {
        match self {
            Open::Number | Open::HalfPair => None,
            Open::NotUtf8 => Some(Reason::NotUtf8),
            Open::NoJson => Some(Reason::Syntax),
            Open::Deep => Some(Reason::Depth),
        }
    }
}

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
fn files() -> BTreeMap<String, Vec<u8>> {
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

/// What becomes of a text as the value of an argument; taken ones leave a draft as they came.
fn verdict(name: &str, text: &[u8]) -> Option<Reason> {
    let body = argument(text);
    match parse(&body) {
        Err(error) => Some(error.reason),
        Ok(frame) => {
            let value = frame
                .member(frame.arguments().expect("arguments"), "v")
                .expect("the argument");
            assert_eq!(frame.text(value), text.trim_ascii(), "{name}");
            let mut draft = Draft::new(frame.clone());
            assert_eq!(draft.to_bytes(), body, "{name} untouched");
            draft.replace(frame.name().expect("a name"), "\"other\"".into());
            let around = argument(text);
            let at = around
                .windows(3)
                .position(|part| part == b"\"n\"")
                .expect("the name");
            let (before, behind) = around.split_at(at);
            let behind = behind.get(3..).expect("the rest");
            let expected = [before, b"\"other\"", behind].concat();
            assert_eq!(draft.to_bytes(), expected, "{name} beside an edit");
            None
        }
    }
}

#[test]
fn t11_t12_json_test_suite_verdicts() {
    let mut counts = [0; 3];
    for (name, text) in files() {
        let verdict = verdict(&name, &text);
        match name.get(..2) {
            Some("n_") => {
                assert!(verdict.is_some(), "{name} was taken");
                counts[0] += 1;
            }
            Some("y_") => {
                assert_eq!(verdict, None, "{name} was refused");
                counts[1] += 1;
            }
            _ => {
                let decision = OPEN.iter().find(|(open, _)| *open == name);
                let (_, decision) = decision.unwrap_or_else(|| panic!("{name} is not decided"));
                assert_eq!(verdict, decision.refusal(), "{name} by {decision:?}");
                counts[2] += 1;
            }
        }
    }
    assert_eq!(counts, [188, 95, 35], "the whole suite");
}
