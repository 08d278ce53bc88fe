//! Responses: exactly one of result and error, whatever an upstream sends.

use crate::{good, parse, refusal};
use vestibule_frame::{Id, Kind, Reason};

#[test]
fn frm_09_a_result_with_its_meta_and_type_is_found() {
    let frame = good(
        r#"{"jsonrpc":"2.0","id":"g-1","result":{"content":[{"_meta":{}}],"_m\u0065ta":{"a":1},"resultType":"complete"},"error":null}"#,
    );
    assert_eq!(
        (frame.kind(), frame.id()),
        (Kind::Response, Some(Id::string("g-1")))
    );
    assert_eq!(
        frame.result_meta().map(|span| frame.text(span)),
        Some(&br#"{"a":1}"#[..])
    );
    assert_eq!(
        frame
            .result_type()
            .and_then(|span| frame.string(span))
            .as_deref(),
        Some("complete")
    );
    assert_eq!(
        (frame.method(), frame.params(), frame.error()),
        (None, None, None)
    );
    let plain = good(r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":null}}"#);
    assert_eq!(
        (plain.result_meta(), plain.result_type()),
        (None, None),
        "case 41"
    );
}

#[test]
fn frm_09_t08_case_60_both_or_neither_is_refused() {
    for text in [
        r#"{"jsonrpc":"2.0","id":5,"result":{},"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":5,"result":{},"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":5,"result":null,"error":null}"#,
        r#"{"jsonrpc":"2.0","id":5}"#,
        r#"{"jsonrpc":"2.0","id":5,"result":null}"#,
        r#"{"jsonrpc":"2.0","id":5,"method":"m","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":5,"method":"m","error":{"code":1,"message":"x"}}"#,
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(
            (error.reason, error.id),
            (Reason::Shape, Some(Id::integer(5))),
            "{text}"
        );
    }
}

#[test]
fn frm_09_a_null_beside_the_other_counts_as_absent() {
    let frame = good(r#"{"jsonrpc":"2.0","id":5,"result":null,"error":{"code":-1,"message":"x"}}"#);
    assert!(frame.result().is_none() && frame.error().is_some());
}

#[test]
fn frm_21_an_error_may_lack_its_id_and_a_result_may_not() {
    for text in [
        r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#,
    ] {
        assert_eq!(good(text).id(), None, "{text}");
    }
    assert_eq!(refusal(r#"{"jsonrpc":"2.0","result":{}}"#), Reason::Id);
    assert_eq!(
        refusal(r#"{"jsonrpc":"2.0","id":null,"result":{}}"#),
        Reason::Id
    );
    assert_eq!(
        refusal(r#"{"jsonrpc":"2.0","id":1.5,"error":{}}"#),
        Reason::Id
    );
}

#[test]
fn frm_10_the_parts_of_an_error_are_as_they_are() {
    let parts = |error: &str| {
        let frame = good(format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
        let parts = frame.error_parts().expect("an error");
        let data = parts
            .data
            .map(|span| String::from_utf8_lossy(frame.text(span)).into_owned());
        (parts.code, parts.message.into_owned(), data)
    };
    let whole = parts(r#"{"code":-32000,"message":"a\nb","data":{"x":1}}"#);
    assert_eq!(
        whole,
        (
            Some(-32000),
            "a\nb".to_owned(),
            Some(r#"{"x":1}"#.to_owned())
        )
    );
    assert_eq!(
        parts(r#"{"code":"-32000","message":null,"data":null}"#),
        (None, String::new(), None)
    );
    assert_eq!(parts(r#"{"code":1.5}"#), (None, String::new(), None));
    assert_eq!(parts("\"text\""), (None, String::new(), None));
}

#[test]
fn t01_the_top_level_of_a_response_is_judged_like_any_other() {
    assert_eq!(
        refusal(r#"{"jsonrpc":"2.0","id":1,"result":{},"result":{}}"#),
        Reason::Duplicate
    );
    assert_eq!(
        refusal(r#"{"jsonrpc":"2.0","id":1,"result":{},"Error":{}}"#),
        Reason::LookAlike
    );
}
