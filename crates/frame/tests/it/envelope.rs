//! The envelope: the rules of the FRM rows and threats T01 to T12 on requests and notifications.

use crate::{argument, call, good, parse, refusal};
use bytes::Bytes;
use vestibule_frame::{Frame, Id, Kind, Limits, Reason};

#[test]
fn the_parts_of_a_call_are_found_as_they_are() {
    let text = r#" { "jsonrpc" : "2.0", "id": "a\/b", "method":"tools\/call", "params" : { "name" : "n",
        "uri":"u", "arguments":{"x":[1,{"y":-0.0e-0}]}, "_meta":{"progressToken": 7,"v/k":{}} }, "extra":[] } "#;
    let frame = good(text);
    let show = |span| frame.text(span);
    assert_eq!(frame.kind(), Kind::Request);
    assert_eq!(frame.id().expect("an id").as_bytes(), br#""a\/b""#);
    assert_eq!(frame.method().as_deref(), Some("tools/call"));
    assert_eq!(frame.name().map(show), Some(&b"\"n\""[..]));
    assert_eq!(frame.uri().map(show), Some(&b"\"u\""[..]));
    assert_eq!(
        frame.arguments().map(show),
        Some(&br#"{"x":[1,{"y":-0.0e-0}]}"#[..])
    );
    assert_eq!(frame.meta_member("v/k").map(show), Some(&b"{}"[..]));
    assert_eq!(frame.progress_token().map(show), Some(&b"7"[..]));
    assert_eq!(frame.text(frame.root()), text.trim().as_bytes());
    assert_eq!(
        (frame.result(), frame.error(), frame.result_meta()),
        (None, None, None)
    );
    let keys: Vec<_> = frame
        .members(frame.root())
        .map(|member| show(member.key))
        .collect();
    assert_eq!(keys.concat(), br#""jsonrpc""id""method""params""extra""#);
    let shared = frame.shared(frame.arguments().expect("arguments"));
    assert!(
        frame.bytes().as_ptr_range().contains(&shared.as_ptr()),
        "not copied"
    );
}

#[test]
fn frm_01_jsonrpc_is_exactly_two() {
    assert_eq!(
        good(r#"{"jsonrpc":"\u0032.0","id":1,"method":"m"}"#).kind(),
        Kind::Request
    );
    for version in [
        r#""2""#,
        r#""2.00""#,
        "2.0",
        "null",
        r#""1.0""#,
        r#"["2.0"]"#,
        r#""2.0 ""#,
    ] {
        let text = format!(r#"{{"jsonrpc":{version},"id":1,"method":"m"}}"#);
        assert_eq!(refusal(text), Reason::Jsonrpc, "{version}");
    }
    let error = parse(r#"{"id":4,"method":"m"}"#).expect_err("no version");
    assert_eq!(
        (error.reason, error.reason.code(), error.id),
        (Reason::Jsonrpc, -32600, Some(Id::integer(4)))
    );
}

#[test]
fn frm_02_t11_only_utf8_without_a_mark() {
    for bytes in [
        &b"\xff"[..],
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe6\xb5",
    ] {
        let text = argument(&[b"\"", bytes, b"\""].concat());
        let error = parse(&text).expect_err("no UTF-8");
        assert_eq!((error.reason, error.id), (Reason::NotUtf8, None));
        assert_eq!(error.reason.code(), -32700);
        assert_eq!(error.offset, argument(b"\"").len() - 3);
    }
    assert_eq!(refusal(format!("\u{feff}{}", call(""))), Reason::Bom);
    assert_eq!(refusal("{\"\u{0}\":1}"), Reason::Syntax);
    let utf16: Vec<u8> = call("").encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(refusal(utf16).is_unreadable());
}

#[test]
fn frm_03_t07_ids_are_strings_or_integers() {
    for id in [
        "0",
        "-0",
        "-7",
        "123456789012345678901234567890",
        "\"\"",
        "\"1\"",
        r#""\ud83d\ude00""#,
    ] {
        let frame = good(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#));
        let read = frame.id().expect("an id");
        assert_eq!(
            (read.as_bytes(), frame.kind()),
            (id.as_bytes(), Kind::Request),
            "FRM-04: {id}"
        );
    }
    for id in [
        "null",
        "true",
        "{}",
        "[]",
        "1.0",
        "1.5",
        "1e0",
        "1E2",
        r#""\ud800""#,
    ] {
        let error = parse(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)).expect_err(id);
        assert_eq!((error.reason, error.id), (Reason::Id, None), "{id}");
        assert_eq!(
            (error.reason.code(), error.reason.http_status()),
            (-32600, 400)
        );
    }
}

#[test]
fn frm_23_case_52_an_id_has_at_most_256_bytes() {
    let with = |digits: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"m"}}"#,
            "1".repeat(digits)
        )
    };
    assert_eq!(good(with(256)).id().expect("an id").as_bytes().len(), 256);
    assert_eq!(refusal(with(257)), Reason::Id);
}

#[test]
fn frm_04_case_53_ids_of_different_types_differ_and_spellings_do_not() {
    let id =
        |token: &'static str| Id::from_token(Bytes::from_static(token.as_bytes())).expect(token);
    assert_ne!(id("1"), id("\"1\""));
    assert_eq!(id(r#""\u0061\/""#), id("\"a/\""));
    assert_eq!(id("\"a\""), Id::string("a"));
    assert_eq!(Id::integer(7), id("7"));
    assert_eq!(id("\"a\"").to_string(), "\"a\"");
    for token in [
        "", " 1", "1 ", "01", "-", "1.0", "null", "\"", "\"a", "\"a\"b\"", "\"\n\"",
    ] {
        assert_eq!(
            Id::from_token(Bytes::from_static(token.as_bytes())),
            None,
            "{token:?}"
        );
    }
    // Found by fuzzing: bytes that are no text passed as long as they had no escape.
    assert_eq!(Id::from_token(Bytes::from_static(b"\"\x8e\"")), None);
}

#[test]
fn frm_11_a_message_without_id_is_a_notification() {
    let frame = good(r#"{"jsonrpc":"2.0","method":"tools/call"}"#);
    assert_eq!((frame.kind(), frame.id()), (Kind::Notification, None));
    let frame = good(r#"{"jsonrpc":"2.0","method":"notifications/x","id":"n"}"#);
    assert_eq!(frame.kind(), Kind::Request);
}

#[test]
fn frm_15_null_params_arguments_and_meta_count_as_absent() {
    let frame = good(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#);
    assert_eq!(frame.params(), None);
    let frame = good(call(
        r#""name":null,"uri":null,"arguments":null,"_meta":null"#,
    ));
    assert!(frame.params().is_some());
    assert_eq!(
        (frame.name(), frame.uri(), frame.arguments(), frame.meta()),
        (None, None, None, None)
    );
}

#[test]
fn frm_15_params_and_meta_are_objects() {
    for value in ["[]", "1", "\"x\"", "false", r#"["2.0",{"name":"rm"}]"#] {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{value},"id":9}}"#);
        let error = parse(text).expect_err(value);
        assert_eq!(
            (error.reason, error.reason.code()),
            (Reason::Params, -32602)
        );
        assert_eq!(error.id, Some(Id::integer(9)), "FRM-21");
        let error = parse(call(&format!(r#""_meta":{value}"#))).expect_err(value);
        assert_eq!((error.reason, error.reason.code()), (Reason::Meta, -32602));
    }
}

#[test]
fn frm_18_t06_one_object_is_one_message() {
    let one = call("");
    for text in [
        format!("[{one}]"),
        format!(" \n[{one},{one}]"),
        "[]".to_owned(),
        r#"["2.0",1,"m"]"#.to_owned(),
    ] {
        let error = parse(&text).expect_err("an array");
        assert_eq!(
            (error.reason, error.id),
            (Reason::BatchNotAllowed, None),
            "{text}"
        );
    }
    for text in ["1", "null", "\"x\"", "true"] {
        assert_eq!(refusal(text), Reason::NotAnObject);
    }
    for text in [
        "", " ", "[1,", "nul", "{", "{\"a\"", "{}}", "{} {}", "[1] 2",
    ] {
        assert!(refusal(text).is_unreadable(), "{text}");
    }
    assert_eq!(
        refusal(format!("{one}{one}")),
        Reason::Trailing,
        "T12: two frames in one body"
    );
    assert_eq!(refusal(format!("{one}\0")), Reason::Trailing);
}

#[test]
fn frm_21_the_id_is_given_when_it_can_be_told() {
    let id = |text: &str| parse(text).expect_err(text).id;
    assert_eq!(
        id(r#"{"jsonrpc":"2.0","method":"a","method":"b","id":5}"#),
        Some(Id::integer(5))
    );
    assert_eq!(
        id(r#"{"jsonrpc":"2.0","id":5,"method":"a","\u0069d":5}"#),
        None
    );
    assert_eq!(
        id(r#"{"jsonrpc":"1","\u0069d":"x","method":"a"}"#),
        Some(Id::string("x"))
    );
    assert_eq!(
        id(r#"{"jsonrpc":"2.0","id":5,"method":"a""#),
        None,
        "not JSON"
    );
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":5,"method":"a","params":{{"x":{}"#,
        "[".repeat(200)
    );
    assert_eq!(id(&deep), Some(Id::integer(5)));
}

#[test]
fn t01_t02_frm_23_duplicate_keys_are_refused_where_policy_reads() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"rm"}}"#
            .to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"x":1}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null,"params":{}}"#.to_owned(),
        call(r#""name":"safe","name":"rm""#),
        call(r#""name":"safe","n\u0061me":"rm""#),
        call(r#""x":1,"\u0078":2"#),
        call(r#""_meta":{},"_meta":{}"#),
        call(r#""_meta":{"a/b":1,"a\/b":2}"#),
        call(r#""_meta":{"progressToken":1,"progressToken":2}"#),
        call(r#""ref":{"type":"ref/prompt","name":"a","name":"b"}"#),
    ] {
        assert_eq!(refusal(&text), Reason::Duplicate, "{text}");
    }
}

#[test]
fn frm_23_in_arguments_and_result_everything_passes_byte_for_byte() {
    let inside = r#"{"a":1,"a":2,"A":3,"\u0000":"\u0000","\ud800":"\udc00\ud800","Name":{"name":1,"name":2}}"#;
    let frame = good(call(&format!(r#""name":"n","arguments":{inside}"#)));
    assert_eq!(
        frame.text(frame.arguments().expect("arguments")),
        inside.as_bytes()
    );
    let frame = good(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{inside}}}"#));
    assert_eq!(
        frame.text(frame.result().expect("a result")),
        inside.as_bytes()
    );
    assert_eq!(
        frame
            .member(frame.result().expect("a result"), "a")
            .map(|s| frame.text(s)),
        Some(&b"2"[..])
    );
}

#[test]
fn t03_case_98_look_alike_keys_are_refused() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"METHOD":"tools/call","method":"ping"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","Params":{"name":"rm"}}"#.to_owned(),
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"param\u{17f}\":{}}".to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"m","param\u017f":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"m","\u0049d":2}"#.to_owned(),
        call(r#""name":"allowed","Name":"denied","arguments":{}"#),
        call(r#""_META":{}"#),
        call(r#""_meta":{"progre\u017fsToken":1}"#),
        call("\"_meta\":{\"progressTo\u{212a}en\":1}"),
        call(r#""_meta":{"IO.modelcontextprotocol/protocolVersion":"x"}"#),
    ] {
        assert_eq!(refusal(&text), Reason::LookAlike, "{text}");
    }
    good(call(
        r#""Names":1,"nam":2,"_meta":{"Vendor/Name":1,"name":2}"#,
    ));
}

#[test]
fn t04_nul_in_a_key_is_refused_in_the_envelope() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method\u0000":"tools/call","method":"ping"}"#.to_owned(),
        call(r#""name\u0000":"x""#),
        call(r#""_meta":{"a\u0000":1}"#),
    ] {
        assert_eq!(refusal(&text), Reason::NulInKey, "{text}");
    }
}

#[test]
fn t11_half_surrogates_are_refused_in_keys_and_in_what_policy_reads() {
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"m","\udc00":1}"#.to_owned(),
        call(r#""name":"a\ud800\u0041""#),
        call(r#""uri":"\udc00\ud800""#),
        call(r#""_meta":{"progressToken":"\udbff"}"#),
        call(r#""_meta":{"\ud800":1}"#),
    ] {
        assert_eq!(refusal(&text), Reason::Surrogate, "{text}");
    }
    let frame = good(call(
        r#""name":"\ud83d\ude00","cursor":"\ud800","_meta":{"v/x":"\ud800"}"#,
    ));
    assert_eq!(
        frame.string(frame.name().expect("a name")).as_deref(),
        Some("\u{1f600}")
    );
}

#[test]
fn frm_23_the_method_has_at_most_256_bytes() {
    let with = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
    good(with(&"m".repeat(256)));
    good(with(&r"\u006d".repeat(256)));
    assert_eq!(refusal(with(&"m".repeat(257))), Reason::Method);
    for method in ["null", "1", "{}", "[\"m\"]"] {
        assert_eq!(
            refusal(format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method}}}"#)),
            Reason::Method
        );
    }
}

#[test]
fn frm_23_envelope_objects_have_at_most_256_members_of_1024_bytes_of_key() {
    let members = |count: usize| {
        (0..count)
            .map(|n| format!("\"k{n}\":{n}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    good(call(&members(256)));
    assert_eq!(refusal(call(&members(257))), Reason::Members);
    good(call(&format!("\"_meta\":{{{}}}", members(256))));
    assert_eq!(
        refusal(call(&format!("\"_meta\":{{{}}}", members(257)))),
        Reason::Members
    );
    good(call(&format!("\"arguments\":{{{}}}", members(5000))));
    good(call(&format!("\"{}\":1", "k".repeat(1024))));
    assert_eq!(
        refusal(call(&format!("\"{}\":1", "k".repeat(1025)))),
        Reason::KeyLength
    );
}

#[test]
fn met_08_a_meta_object_has_at_most_256_kib() {
    let with = |size: usize| call(&format!(r#""_meta":{{"v/x":"{}"}}"#, "x".repeat(size)));
    good(with(256 * 1024 - 10));
    let error = parse(with(256 * 1024 - 9)).expect_err("too large");
    assert_eq!(
        (error.reason, error.reason.code()),
        (Reason::MetaSize, -32600)
    );
}

#[test]
fn limits_are_the_callers() {
    let tight = Limits {
        depth: 3,
        members: 4,
        number: 2,
        method: 1,
        id: 2,
        key: 4,
        meta: 9,
    };
    let with = |text: &str| {
        Frame::parse(Bytes::copy_from_slice(text.as_bytes()), &tight).map_err(|e| e.reason)
    };
    let ok = r#"{"jsonrpc":"2.0","id":12,"method":"m","params":{"_meta":{"a":12}}}"#;
    assert!(with(ok).is_ok());
    assert_eq!(with(&ok.replace("12}", "[]}")).err(), Some(Reason::Depth));
    assert_eq!(with(&ok.replace("12}", "123}")).err(), Some(Reason::Number));
    assert_eq!(
        with(&ok.replace("\"a\"", "\"abcd\"")).err(),
        Some(Reason::MetaSize)
    );
    assert_eq!(
        with(&ok.replace("\"a\"", "\"abcde\"")).err(),
        Some(Reason::KeyLength)
    );
    assert_eq!(
        with(&ok.replace("\"m\"", "\"mm\"")).err(),
        Some(Reason::Method)
    );
    assert_eq!(
        with(&ok.replace(":12,", ":123,")).err(),
        Some(Reason::Number)
    );
}
