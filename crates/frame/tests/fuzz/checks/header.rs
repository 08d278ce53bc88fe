//! Control headers and their agreement with a body: nothing panics, values survive encoding, and the
//! headers that we write for a body agree with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use vestibule_frame::agree::{
    Annotated, Disagreement, INTEGER_MAX, ValueKind, decode_value, encode_value, exact_integer,
    params, standard, synthesise,
};
use vestibule_frame::head::{self, Head, Problem};
use vestibule_frame::{Frame, Kind, Limits, Span, json};

/// Header lines, a blank line, a body.
pub(crate) fn check(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        value(line);
        integer(line);
    }
    let (lines, body) = parts(data);
    let headers = read(lines);
    let head = Head::read(&headers);
    findings(&headers, &head);
    let Ok(frame) = Frame::parse(Bytes::copy_from_slice(body), &Limits::default()) else {
        return;
    };
    agreement(&head, &frame);
    if let Some(arguments) = frame.arguments() {
        mirrored(frame.text(arguments));
    }
}

fn parts(data: &[u8]) -> (&[u8], &[u8]) {
    match data.windows(2).position(|pair| pair == b"\n\n") {
        None => (data, &[]),
        Some(at) => data.split_at(at + 1),
    }
}

fn read(lines: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = HeaderName::from_bytes(parts.next().unwrap_or_default());
        let value = HeaderValue::from_bytes(parts.next().unwrap_or_default());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

/// HDR-16, HDR-17: what is encoded is decoded to itself, and one text has one encoded form.
fn value(line: &[u8]) {
    if let Ok(text) = std::str::from_utf8(line) {
        let encoded = encode_value(text);
        assert!(HeaderValue::from_str(&encoded).is_ok());
        assert_eq!(decode_value(encoded.as_bytes()), Ok(text.to_owned()));
    }
    let Ok(decoded) = decode_value(line) else {
        return;
    };
    let trimmed: Vec<u8> = line.trim_ascii().to_vec();
    if trimmed.starts_with(b"=?base64?") && trimmed.ends_with(b"?=") && trimmed.len() >= 11 {
        let again = format!("=?base64?{}?=", STANDARD.encode(&decoded));
        assert_eq!(
            again.as_bytes(),
            trimmed,
            "base64 is read in its one strict form"
        );
    } else {
        assert!(decoded.bytes().all(|byte| matches!(byte, 0x20..=0x7e)));
    }
}

/// An integer is taken for what any number parser takes it for.
fn integer(line: &[u8]) {
    let Ok(text) = std::str::from_utf8(line) else {
        return;
    };
    match exact_integer(line) {
        Some(number) => {
            assert!(number.unsigned_abs() <= INTEGER_MAX.unsigned_abs());
            let float: f64 = text.parse().expect("an integer is a number");
            #[allow(clippy::cast_precision_loss, reason = "exact up to 2^53")]
            let same = float == number as f64;
            assert!(same, "{text} is {float}, not {number}");
        }
        None => {
            let plain =
                json::integer(line).filter(|n| n.unsigned_abs() <= INTEGER_MAX.unsigned_abs());
            assert_eq!(plain, None, "{text}");
        }
    }
}

/// T21: a control header that occurs twice or under an alias refuses the request.
fn findings(headers: &HeaderMap, head: &Head) {
    let control = [
        head::PROTOCOL_VERSION,
        head::SESSION_ID,
        head::LAST_EVENT_ID,
        head::METHOD,
        head::NAME,
    ];
    for name in headers.keys() {
        let hyphens = name.as_str().replace('_', "-");
        let ours = control.contains(&hyphens.as_str()) || hyphens.starts_with(head::PARAM_PREFIX);
        let alias = hyphens != name.as_str();
        let twice = headers.get_all(name).iter().count() > 1;
        if ours && (alias || twice) {
            let finding = head.refusal().expect("a finding that refuses");
            assert!(matches!(
                finding.problem,
                Problem::Repeated | Problem::Underscore
            ));
        }
    }
    if let Some(session) = &head.session {
        assert!(!session.is_empty() && session.bytes().all(|byte| matches!(byte, 0x21..=0x7e)));
        assert!(!format!("{head:?}").contains(&format!("{session:?}")) || session.len() < 16);
    }
    assert!(
        head.params.len()
            <= headers
                .keys()
                .filter(|name| name.as_str().starts_with(head::PARAM_PREFIX))
                .count()
    );
}

/// A head that agrees says what the body says.
fn agreement(head: &Head, frame: &Frame) {
    if standard(head, frame).is_err() || frame.kind() != Kind::Request {
        return;
    }
    assert_eq!(head.method.as_deref(), frame.method().as_deref());
    let named = match frame.method().as_deref() {
        Some("tools/call" | "prompts/get") => frame.name(),
        Some("resources/read") => frame.uri(),
        _ => return,
    };
    let text = named.and_then(|span: Span| frame.string(span));
    assert!(text.is_some() && head.name.as_deref() == text.as_deref());
}

/// XMH-05: the headers that are written for arguments agree with them, unless no header can.
fn mirrored(arguments: &[u8]) {
    let annotation = |path: &[&str], header: &str, kind| Annotated {
        path: path.iter().map(|key| (*key).to_owned()).collect(),
        header: header.to_owned(),
        kind,
    };
    let annotated = [
        annotation(&["a"], "A", ValueKind::Str),
        annotation(&["n"], "Number", ValueKind::Int),
        annotation(&["b"], "flag", ValueKind::Bool),
        annotation(&["o", "a"], "Deep-A", ValueKind::Str),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in synthesise(&annotated, Some(arguments)) {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
        headers.append(name, HeaderValue::from_str(&value).expect("a header value"));
    }
    let head = Head::read(&headers);
    assert!(head.findings.is_empty());
    for one in annotated {
        let verdict = params(&head, std::slice::from_ref(&one), Some(arguments));
        if matches!(verdict, Ok(()) | Err(Disagreement::Ambiguous { .. })) {
            continue;
        }
        let mut token = Some(arguments);
        for key in &one.path {
            token = token.and_then(|object| json::member(object, key));
        }
        let token = token.expect("a value that no header carries");
        let unwritable = matches!(token.first(), Some(b'{' | b'['))
            || json::has_lone_surrogate(token)
            || (one.kind == ValueKind::Int && exact_integer(token).is_none());
        assert!(
            unwritable,
            "{verdict:?} for {}",
            String::from_utf8_lossy(token)
        );
    }
}
