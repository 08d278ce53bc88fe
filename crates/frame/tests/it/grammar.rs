//! Depth, numbers and the walkers.

use std::time::Duration;

use crate::{argument, call, good, refusal};
use tokio::time::Instant;
use vestibule_frame::{Limits, Reason, json};

#[test]
fn t09_frm_23_depth_is_bounded_at_128() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    // The message, params and arguments are the first three levels.
    good(argument(&nested(125)));
    assert_eq!(refusal(argument(&nested(126))), Reason::Depth);
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    good(argument(objects(125).as_bytes()));
    assert_eq!(refusal(argument(objects(126).as_bytes())), Reason::Depth);
    good(call(&format!("\"_meta\":{{\"a\":{}}}", objects(125))));
    assert_eq!(
        refusal(call(&format!("\"_meta\":{{\"a\":{}}}", objects(126)))),
        Reason::Depth
    );
}

#[test]
fn t09_a_mebibyte_of_brackets_is_refused_at_once() {
    let started = Instant::now();
    assert_eq!(refusal("[".repeat(1 << 20)), Reason::Depth);
    assert_eq!(
        refusal(argument("[".repeat(1 << 20).as_bytes())),
        Reason::Depth
    );
    assert_eq!(refusal("{\"a\":".repeat(1 << 18)), Reason::Depth);
    assert!(
        started.elapsed() < Duration::from_millis(500),
        "unoptimised and on a busy machine"
    );
}

#[test]
fn the_deepest_limit_is_the_ceiling_of_the_stack() {
    let limits = Limits {
        depth: u16::MAX,
        ..Limits::default()
    };
    let nested = |depth: usize| format!("{}1{}", "[{\"a\":".repeat(depth), "}]".repeat(depth));
    assert!(json::validate(nested(512).as_bytes(), &limits).is_ok());
    let error = json::validate(nested(513).as_bytes(), &limits).expect_err("too deep");
    assert_eq!(error.reason, Reason::Depth);
    let crossed = format!("{}1{}", "[{\"a\":".repeat(300), "]}".repeat(300));
    assert_eq!(
        json::validate(crossed.as_bytes(), &limits)
            .expect_err("crossed")
            .reason,
        Reason::Syntax
    );
}

#[test]
fn t10_case_47_numbers_pass_as_they_are_up_to_a_kibibyte() {
    for number in [
        "1915883588174806058",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "1e400",
        "-0",
        "1.00",
        "1E+2",
    ] {
        let frame = good(argument(number.as_bytes()));
        let value = frame
            .member(frame.arguments().expect("arguments"), "v")
            .expect("a value");
        assert_eq!(frame.text(value), number.as_bytes());
    }
    good(argument(&[b'1'; 1024]));
    assert_eq!(refusal(argument(&[b'1'; 1025])), Reason::Number);
    assert_eq!(refusal(argument(&vec![b'9'; 1 << 20])), Reason::Number);
}

#[test]
fn t12_case_61_what_is_nearly_json_is_refused() {
    for value in [
        "NaN",
        "Infinity",
        "-Infinity",
        "[1,]",
        "{\"a\":1,}",
        "// x\n1",
        "/**/1",
        "'a'",
        "{a:1}",
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "--1",
        "\"\t\"",
        "\"\\x41\"",
        "\"\\u12g4\"",
        "\"\\u123\"",
        "True",
        "nulll",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":}",
        "[",
        "]",
        "\u{a0}1",
        "1\u{b}",
        "\u{c}1",
        "\"\u{1f}\"",
    ] {
        assert_eq!(
            refusal(argument(value.as_bytes())).code(),
            -32700,
            "{value}"
        );
    }
}

#[test]
fn the_walkers_follow_text_outside_of_a_frame() {
    let text = br#" { "a" : [ 1 , "x" , {} ] , "\u0062" : null } "#;
    let members: Vec<_> = json::members(text)
        .map(|member| (&text[member.key.range()], &text[member.value.range()]))
        .collect();
    assert_eq!(
        members,
        [
            (&b"\"a\""[..], &br#"[ 1 , "x" , {} ]"#[..]),
            (br#""\u0062""#, b"null")
        ]
    );
    let array = json::member(text, "a").expect("a member");
    let values: Vec<_> = json::elements(array)
        .map(|span| &array[span.range()])
        .collect();
    assert_eq!(values, [&b"1"[..], b"\"x\"", b"{}"]);
    assert_eq!(json::member(text, "b"), Some(&b"null"[..]));
    assert_eq!(json::member(text, "c"), None);
    assert_eq!(
        json::members(b"[]").count() + json::elements(b"{}").count(),
        0
    );
    assert_eq!(
        json::string(br#""a\u00e9\n\\\"\/\b\f\r\t""#).as_deref(),
        Some("a\u{e9}\n\\\"/\u{8}\u{c}\r\t")
    );
    assert_eq!(json::string(br#""\ud800""#), None);
    assert!(json::has_lone_surrogate(br#""\ud800""#) && !json::has_lone_surrogate(b"1"));
    assert_eq!(json::string(b"1"), None);
    assert_eq!(
        (
            json::integer(b"-12"),
            json::integer(b"1.0"),
            json::integer(b"01")
        ),
        (Some(-12), None, None)
    );
}

#[test]
fn frm_23_unique_keys_are_asked_for_object_by_object() {
    let reason = |text: &str| {
        json::unique(text.as_bytes())
            .err()
            .map(|error| error.reason)
    };
    assert_eq!(reason(r#"{"a":{"b":1,"b":2},"c":1}"#), None);
    assert_eq!(reason(r#"{"a":1,"\u0061":2}"#), Some(Reason::Duplicate));
    assert_eq!(reason(r#"{"a\u0000":1}"#), Some(Reason::NulInKey));
    assert_eq!(reason(r#"{"\ud800":1}"#), Some(Reason::Surrogate));
    assert_eq!(reason("[1,1]"), None);
}

#[test]
fn the_walkers_end_on_malformed_text() {
    for text in [
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{\"a\":1 \"b\"",
        "{1:2}",
        "\"",
        "",
    ] {
        assert!(json::members(text.as_bytes()).count() <= 1, "{text}");
        assert!(
            json::elements(text.replace('{', "[").as_bytes()).count() <= 1,
            "{text}"
        );
    }
}
