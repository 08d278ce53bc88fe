//! The table of SEP-2243 and what real clients got wrong.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::{
    Annotated, Disagreement, INTEGER_MAX, ValueKind, decode_value, encode_value, exact_integer,
    params, standard, synthesise, task_name, volunteered,
};
use crate::head::{Head, Problem};
use crate::{Frame, Limits};

fn head(lines: &[(&str, &str)]) -> Head {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
        headers.append(
            name,
            HeaderValue::from_bytes(value.as_bytes()).expect("a header value"),
        );
    }
    Head::read(&headers)
}

fn frame(method: &str, id: &str, members: &str) -> Frame {
    let text = format!(
        r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{{{members}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}}}}"#
    );
    Frame::parse(Bytes::from(text), &Limits::default()).expect("a good message")
}

fn call(members: &str) -> Frame {
    frame("tools/call", "\"id\":1,", members)
}

const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
const METHOD: (&str, &str) = ("mcp-method", "tools/call");
const NAME: (&str, &str) = ("mcp-name", "get_weather");

fn text(result: Result<(), Disagreement>) -> String {
    let error = result.expect_err("a disagreement");
    assert_eq!(error.code(), -32020);
    error.to_string()
}

#[test]
fn hdr_10_equal_headers_agree_however_the_body_is_spelled() {
    let body = call(r#""n\u0061me":"get_we\u0061ther","#);
    assert_eq!(standard(&head(&[VERSION, METHOD, NAME]), &body), Ok(()));
}

#[test]
fn hdr_10_t20_missing_headers_are_refused() {
    let body = call(r#""name":"get_weather","#);
    let missing = |lines: &[_]| text(standard(&head(lines), &body));
    assert_eq!(
        missing(&[METHOD, NAME]),
        "header mcp-protocol-version is missing"
    );
    assert_eq!(missing(&[VERSION, NAME]), "header mcp-method is missing");
    assert_eq!(missing(&[VERSION, METHOD]), "header mcp-name is missing");
    let list = frame("tools/list", "\"id\":1,", "");
    assert_eq!(
        standard(&head(&[VERSION, ("mcp-method", "tools/list")]), &list),
        Ok(())
    );
}

#[test]
fn hdr_10_t20_case_101_different_headers_are_refused() {
    let body = call(r#""name":"get_weather","#);
    let with = |line| text(standard(&head(&[VERSION, METHOD, NAME, line]), &body));
    assert!(with(NAME).contains("mcp-name occurs more than once"));
    for (version, method, name, what) in [
        (
            "2025-11-25",
            "tools/call",
            "get_weather",
            "mcp-protocol-version",
        ),
        ("2026-07-28", "tools/list", "get_weather", "mcp-method"),
        ("2026-07-28", "TOOLS/CALL", "get_weather", "mcp-method"),
        ("2026-07-28", "tools/call", "delete_all", "mcp-name"),
        ("2026-07-28", "tools/call", "Get_weather", "mcp-name"),
        (
            "2026-07-28",
            "tools/call",
            "=?BASE64?Z2V0X3dlYXRoZXI=?=",
            "mcp-name",
        ),
    ] {
        let lines = [
            ("mcp-protocol-version", version),
            ("mcp-method", method),
            ("mcp-name", name),
        ];
        let message = text(standard(&head(&lines), &body));
        assert!(
            message.starts_with(&format!("header {what} differs")),
            "{message}"
        );
    }
    let number = call(r#""name":1,"#);
    let lines = [VERSION, METHOD, ("mcp-name", "1")];
    assert!(text(standard(&head(&lines), &number)).contains("params.name"));
}

#[test]
fn hdr_17_case_154_encoded_names_are_compared_decoded() {
    let uri = frame(
        "resources/read",
        "\"id\":1,",
        "\"uri\":\"oni://\u{6d4b}\u{8bd5}\",",
    );
    let read = ("mcp-method", "resources/read");
    let with = |name| standard(&head(&[VERSION, read, ("mcp-name", name)]), &uri);
    assert_eq!(with("=?base64?b25pOi8v5rWL6K+V?="), Ok(()));
    assert!(text(with("oni://\u{6d4b}\u{8bd5}")).contains("characters that are not allowed"));
    assert!(text(with("=?base64?b25pOi8v5rWL6K-V?=")).contains("not decodable"));
    assert!(text(with("=?base64?b25pOi8v5rWL6K+V")).contains("differs"));
    let literal = call(r#""name":"=?base64?abc?=","#);
    let name = encode_value("=?base64?abc?=");
    assert_ne!(name, "=?base64?abc?=");
    assert_eq!(
        standard(&head(&[VERSION, METHOD, ("mcp-name", &name)]), &literal),
        Ok(())
    );
    assert!(
        standard(
            &head(&[VERSION, METHOD, ("mcp-name", "=?base64?abc?=")]),
            &literal
        )
        .is_err()
    );
}

#[test]
fn hdr_12_a_task_id_may_lack_its_header_but_must_match() {
    let body = frame("tasks/get", "\"id\":1,", r#""taskId":"t1","#);
    let lines = [VERSION, ("mcp-method", "tasks/get")];
    assert_eq!(standard(&head(&lines), &body), Ok(()));
    assert!(task_name(&head(&lines), &body).is_err());
    let with = |name| standard(&head(&[lines[0], lines[1], ("mcp-name", name)]), &body);
    assert_eq!(with("t1"), Ok(()));
    assert!(text(with("t2")).contains("params.taskId"));
}

#[test]
fn hdr_13_headers_of_a_notification_are_not_required_but_must_match() {
    let note = frame("notifications/cancelled", "", "");
    assert_eq!(standard(&head(&[]), &note), Ok(()));
    assert!(standard(&head(&[METHOD]), &note).is_err());
    assert!(standard(&head(&[("mcp-protocol-version", "2025-11-25")]), &note).is_err());
}

#[test]
fn case_101_volunteered_headers_of_a_legacy_request_must_match() {
    let body = call(r#""name":"a","#);
    assert_eq!(
        volunteered(&head(&[("mcp-protocol-version", "2025-06-18")]), &body),
        Ok(())
    );
    assert!(volunteered(&head(&[NAME]), &body).is_err());
    assert!(volunteered(&head(&[("mcp-method", "ping")]), &body).is_err());
}

fn annotated(path: &[&str], header: &str, kind: ValueKind) -> Annotated {
    let path = path.iter().map(|key| (*key).to_owned()).collect();
    Annotated {
        path,
        header: header.to_owned(),
        kind,
    }
}

fn list() -> [Annotated; 3] {
    [
        annotated(&["tenant"], "Tenant", ValueKind::Str),
        annotated(&["page", "size"], "Size", ValueKind::Int),
        annotated(&["dry"], "Dry", ValueKind::Bool),
    ]
}

#[test]
fn hdr_19_annotated_arguments_are_compared_by_type() {
    let arguments = br#"{"tenant":"\u0061 ","page":{"size":42.0},"dry":true,"more":{}}"#;
    let good = [
        ("mcp-param-tenant", "=?base64?YSA=?="),
        ("Mcp-Param-SIZE", "42"),
        ("mcp-param-dry", "true"),
        ("mcp-param-unknown", "HDR-20: ignored"),
    ];
    assert_eq!(params(&head(&good), &list(), Some(arguments)), Ok(()));
    for (at, bad, what) in [
        (
            0,
            ("mcp-param-tenant", "a"),
            "differs from params.arguments.tenant",
        ),
        (
            1,
            ("mcp-param-size", "43"),
            "differs from params.arguments.page.size",
        ),
        (1, ("mcp-param-size", "0x2a"), "differs"),
        (2, ("mcp-param-dry", "True"), "differs"),
        (2, ("mcp-param-other", "true"), "mcp-param-dry is missing"),
        (0, ("mcp-param-tenant", "=?base64?YSA?="), "not decodable"),
    ] {
        let mut lines = good;
        lines[at] = bad;
        let message = text(params(&head(&lines), &list(), Some(arguments)));
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn hdr_19_a_header_for_an_absent_or_null_argument_is_refused() {
    assert_eq!(
        params(&head(&[]), &list(), Some(b"{\"tenant\":null,\"page\":{}}")),
        Ok(())
    );
    assert_eq!(params(&head(&[]), &list(), None), Ok(()));
    for arguments in [Some(&b"{\"tenant\":null}"[..]), Some(b"{}"), None] {
        let message = text(params(
            &head(&[("mcp-param-tenant", "")]),
            &list(),
            arguments,
        ));
        assert!(message.contains("not in the body"), "{message}");
    }
    let message = text(params(&head(&[]), &list(), Some(b"{\"tenant\":\"\"}")));
    assert!(message.contains("missing"), "{message}");
    assert_eq!(
        params(
            &head(&[("mcp-param-tenant", "")]),
            &list(),
            Some(b"{\"tenant\":\"\"}")
        ),
        Ok(())
    );
}

#[test]
fn frm_23_t02_t04_ambiguous_keys_on_the_way_are_refused() {
    for arguments in [
        r#"{"tenant":"a","ten\u0061nt":"b"}"#,
        r#"{"tenant\u0000":"a"}"#,
        r#"{"\ud800":1}"#,
        r#"{"page":{"size":1,"size":2}}"#,
    ] {
        let result = params(
            &head(&[("mcp-param-tenant", "a")]),
            &list(),
            Some(arguments.as_bytes()),
        );
        let only = params(&head(&[]), &list()[1..], Some(arguments.as_bytes()));
        let error = result.and(only).expect_err(arguments);
        assert!(matches!(error, Disagreement::Ambiguous { .. }) || error.code() == -32020);
    }
    let twice = params(
        &head(&[]),
        &list()[1..2],
        Some(br#"{"page":{"size":1,"size":2}}"#),
    );
    assert_eq!(twice.expect_err("ambiguous").code(), -32600);
    let elsewhere = br#"{"dry":true,"more":{"a":1,"a":2}}"#;
    assert_eq!(
        params(
            &head(&[("mcp-param-dry", "true")]),
            &list()[2..],
            Some(elsewhere)
        ),
        Ok(())
    );
}

#[test]
fn xmh_05_headers_are_made_from_the_arguments() {
    let arguments = "{\"tenant\":\"\u{e9}\",\"page\":{\"size\":1e2},\"dry\":false}";
    let expected = [
        ("Mcp-Param-Tenant".to_owned(), "=?base64?w6k=?=".to_owned()),
        ("Mcp-Param-Size".to_owned(), "100".to_owned()),
        ("Mcp-Param-Dry".to_owned(), "false".to_owned()),
    ];
    assert_eq!(synthesise(&list(), Some(arguments.as_bytes())), expected);
    assert_eq!(
        synthesise(&list(), Some(br#"{"tenant":null,"page":[],"dry":{}}"#)),
        []
    );
    assert_eq!(synthesise(&list(), None), []);
}

#[test]
fn t10_xmh_02_integers_are_exact_within_their_range() {
    for (token, value) in [
        ("0", Some(0)),
        ("-0", Some(0)),
        ("42.000", Some(42)),
        ("4.2e1", Some(42)),
        ("4200e-2", Some(42)),
        ("0.0e99", Some(0)),
        ("9007199254740991", Some(INTEGER_MAX)),
        ("-9007199254740991", Some(-INTEGER_MAX)),
        ("9007199254740992", None),
        ("9007199254740991.5", None),
        ("1e400", None),
        ("1e99999999999", None),
        ("1.5", None),
        ("01", None),
        ("+1", None),
        ("", None),
        ("-", None),
        ("1.", None),
        ("\"1\"", None),
        ("true", None),
    ] {
        assert_eq!(exact_integer(token.as_bytes()), value, "{token}");
    }
}

#[test]
fn hdr_16_what_is_not_plain_is_encoded() {
    for plain in [
        "",
        "a b",
        "file:///a,b",
        "=?base64?",
        "=?BASE64?YQ==?=",
        "=?base64?=",
    ] {
        assert_eq!(encode_value(plain), plain);
        assert_eq!(decode_value(plain.as_bytes()).as_deref(), Ok(plain));
    }
    for unsafe_text in [
        " a",
        "a ",
        "a\tb",
        "\u{e9}",
        "a\nb",
        "=?base64?YQ==?=",
        "\u{7f}",
    ] {
        let encoded = encode_value(unsafe_text);
        assert!(encoded.starts_with("=?base64?"), "{encoded}");
        assert_eq!(decode_value(encoded.as_bytes()).as_deref(), Ok(unsafe_text));
    }
    assert_eq!(decode_value(b"\t =?base64?YQ==?= "), Ok("a".to_owned()));
    assert_eq!(decode_value(b"=?base64?YQ?="), Err(Problem::Undecodable));
    assert_eq!(decode_value(b"=?base64?gA==?="), Err(Problem::Undecodable));
    assert_eq!(decode_value(b"a\xffb"), Err(Problem::Illegal));
}

proptest! {
    #[test]
    fn hdr_16_every_text_survives_a_header(text in any::<String>()) {
        let encoded = encode_value(&text);
        prop_assert!(HeaderValue::from_str(&encoded).is_ok());
        prop_assert_eq!(decode_value(encoded.as_bytes()), Ok(text));
    }

    #[test]
    fn xmh_05_made_headers_agree_with_their_arguments(tenant in any::<String>(), size in -INTEGER_MAX..=INTEGER_MAX, dry in any::<bool>()) {
        let arguments = serde_json::json!({"tenant": tenant, "page": {"size": size}, "dry": dry}).to_string();
        let made = synthesise(&list(), Some(arguments.as_bytes()));
        let lines: Vec<(&str, &str)> = made.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        prop_assert_eq!(params(&head(&lines), &list(), Some(arguments.as_bytes())), Ok(()));
    }
}
