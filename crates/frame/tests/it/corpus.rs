//! JSONTestSuite: every file as the value of an argument.
//!
//! `y_` files are taken, `n_` files refused, and for each `i_` file the decision is written down
//! below. The suite is read from the folder that `VESTIBULE_JSON_TEST_SUITE` names; without it the
//! small set here, which has every class of the suite, stands in.

use std::path::Path;

use crate::{argument, parse};

/// Names and texts of our own set, by the naming of the suite.
const OWN: &[(&str, &[u8])] = &[
    ("y_array_empty", b"[]"),
    ("y_array_arrays_with_spaces", b"[[]   ]"),
    ("y_array_heterogeneous", b"[null, 1, \"1\", {}]"),
    ("y_array_trailing_space", b"[2] \n"),
    ("y_number_real_capital_e_pos_exp", b"[1E+2]"),
    ("y_number_minus_zero", b"[-0]"),
    (
        "y_number_double_close_to_zero",
        b"[-0.000000000000000000000000000000000000000000001]",
    ),
    ("y_object_duplicated_key", b"{\"a\":\"b\",\"a\":\"c\"}"),
    ("y_object_empty_key", b"{\"\":0}"),
    ("y_object_escaped_null_in_key", b"{\"foo\\u0000bar\": 42}"),
    (
        "y_object_long_strings",
        b"{\"x\":[{\"id\": \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}]}",
    ),
    ("y_string_accepted_surrogate_pair", b"[\"\\ud801\\udc37\"]"),
    (
        "y_string_allowed_escapes",
        b"[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
    ),
    ("y_string_backslash_and_u_escaped_zero", b"[\"\\\\u0000\"]"),
    ("y_string_in_array_with_leading_space", b"[ \"asd\"]"),
    (
        "y_string_nonCharacterInUTF-8_U+10FFFF",
        b"[\"\xf4\x8f\xbf\xbf\"]",
    ),
    ("y_string_u+2028_line_sep", b"[\"\xe2\x80\xa8\"]"),
    ("y_string_unescaped_char_delete", b"[\"\x7f\"]"),
    ("y_structure_lonely_true", b"true"),
    ("y_structure_whitespace_array", b" \t\r\n[] "),
    ("n_array_extra_comma", b"[\"\",]"),
    ("n_array_just_comma", b"[,]"),
    ("n_array_unclosed", b"[\"\""),
    ("n_array_spaces_vertical_tab", b"[\"\x0b a\"\\f]"),
    ("n_incomplete_true", b"[tru]"),
    ("n_number_leading_zero", b"[012]"),
    ("n_number_hex", b"[0x1]"),
    ("n_number_neg_real_without_int_part", b"[-.123]"),
    ("n_number_invalid_utf8_in_exponent", b"[1e1\xe5]"),
    ("n_object_bare_key", b"{\"a\":\"b\",c:1}"),
    ("n_object_comma_instead_of_colon", b"{\"x\", null}"),
    ("n_object_trailing_comment", b"{\"a\":\"b\"}/**/"),
    ("n_object_single_quote", b"{'a':0}"),
    ("n_single_space", b" "),
    ("n_string_escaped_ctrl_char_tab", b"[\"\\\x09\"]"),
    ("n_string_incomplete_escaped_character", b"[\"\\u00A\"]"),
    ("n_string_unescaped_newline", b"[\"new\nline\"]"),
    ("n_string_invalid_utf8_after_escape", b"[\"\\\xe5\"]"),
    ("n_string_single_doublequote", b"\""),
    ("n_structure_double_array", b"[][]"),
    ("n_structure_no_data", b""),
    ("n_structure_null_byte_outside_string", b"[\x00]"),
    ("n_structure_object_followed_by_closing_object", b"{}}"),
    ("n_structure_UTF8_BOM_no_data", b"\xef\xbb\xbf"),
    ("n_structure_U+2060_word_joined", b"[\xe2\x81\xa0]"),
    ("n_structure_unclosed_object", b"{\"asd\":\"asd\""),
    (
        "i_number_huge_exp",
        b"[0.4e00669999999999999999999999999999999999999999999999999999]",
    ),
    (
        "i_number_too_big_neg_int",
        b"[-123123123123123123123123123123]",
    ),
    ("i_object_key_lone_2nd_surrogate", b"{\"\\uDFAA\":0}"),
    ("i_string_invalid_lonely_surrogate", b"[\"\\ud800\"]"),
    ("i_string_UTF8_surrogate_U+D800", b"[\"\xed\xa0\x80\"]"),
    ("i_string_overlong_sequence_2_bytes", b"[\"\xc0\xaf\"]"),
    ("i_string_truncated-utf-8", b"[\"\xe0\xff\"]"),
    ("i_string_utf16BE_no_BOM", b"\x00[\x00\"\x00\xe9\x00\"\x00]"),
    ("i_structure_UTF-8_BOM_empty_object", b"\xef\xbb\xbf{}"),
];

/// What the suite leaves open. Numbers are never converted, so none is too large; an escape of half
/// a surrogate pair passes where only the receiver reads it; bytes that are not UTF-8, a mark and
/// 500 levels of nesting are refused.
fn open_file_is_taken(name: &str) -> bool {
    let taken = [
        "i_number_",
        "i_object_key_lone_2nd_surrogate",
        "i_string_1st_",
        "i_string_incomplete_surrogate",
        "i_string_invalid_lonely_surrogate",
        "i_string_invalid_surrogate",
        "i_string_inverted_surrogates",
        "i_string_lone_second_surrogate",
    ];
    taken.iter().any(|prefix| name.starts_with(prefix))
}

/// Checks one file; true when it is of the suite's naming.
fn check(name: &str, text: &[u8]) -> bool {
    let expected = match name.get(..2) {
        Some("y_") => true,
        Some("n_") => false,
        Some("i_") => open_file_is_taken(name),
        _ => return false,
    };
    let body = argument(text);
    match parse(&body) {
        Ok(frame) => {
            assert!(expected, "{name} was taken");
            assert_eq!(frame.bytes(), &body, "{name} kept");
        }
        Err(error) => assert!(!expected, "{name} was refused: {error}"),
    }
    true
}

#[test]
fn t11_t12_json_test_suite_verdicts() {
    for (name, text) in OWN {
        assert!(check(name, text), "{name}");
    }
    let Some(folder) = std::env::var_os("VESTIBULE_JSON_TEST_SUITE") else {
        return;
    };
    let mut checked = 0;
    for entry in std::fs::read_dir(Path::new(&folder)).expect("the folder of the suite") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        checked += usize::from(check(&name, &std::fs::read(&path).expect("a file")));
    }
    assert_eq!(checked, 318, "the whole suite is there");
}
