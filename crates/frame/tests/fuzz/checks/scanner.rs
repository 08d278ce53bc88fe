//! The scanner on any bytes: no panic, spans in range, and every way to look at a message agrees
//! with every other.

use bytes::Bytes;
use serde_json::Value;
use vestibule_frame::dom::{Dom, Node};
use vestibule_frame::meta::Reserved;
use vestibule_frame::{Draft, Frame, FrameError, Id, Kind, Limits, Span, json};

use super::{slice, trimmed};

/// `data` as a body.
pub(crate) fn check(data: &[u8]) {
    any_bytes(data);
    let valid = json::validate(data, &Limits::default());
    match Frame::parse(Bytes::copy_from_slice(data), &Limits::default()) {
        Ok(frame) => {
            assert_eq!(valid, Ok(()), "what is taken is JSON");
            accepted(data, &frame);
        }
        Err(error) => refused(data, &error, valid.is_ok()),
    }
    if valid.is_ok() {
        walked(data);
        as_tree(data);
    }
    tighter(data);
}

/// The walkers and helpers end on whatever they are given.
fn any_bytes(data: &[u8]) {
    assert!(json::members(data).count() + json::elements(data).count() <= data.len());
    for member in json::members(data) {
        slice(data, member.whole);
    }
    let number = json::integer(data);
    assert!(number.is_none() || Id::from_token(Bytes::copy_from_slice(data)).is_some());
    if let Some(id) = Id::from_token(Bytes::copy_from_slice(data)) {
        assert_eq!(id.as_bytes(), data);
        assert_eq!(id.as_str().is_some(), data.starts_with(b"\""));
    }
    if json::string(data).is_some() {
        assert!(!json::has_lone_surrogate(data));
    }
    let _unique = json::unique(data).is_ok();
}

fn accepted(data: &[u8], frame: &Frame) {
    assert_eq!(frame.bytes(), data);
    assert_eq!(slice(data, frame.root()), trimmed(data));
    let parts = [
        frame.method_span(),
        frame.params(),
        frame.name(),
        frame.uri(),
        frame.arguments(),
        frame.meta(),
        frame.progress_token(),
        frame.result(),
        frame.result_meta(),
        frame.result_type(),
        frame.error(),
    ];
    for span in parts.into_iter().flatten() {
        assert!(frame.root().contains(span) && !span.is_empty());
        assert_eq!(frame.shared(span), slice(data, span));
        let alone = json::validate(slice(data, span), &Limits::default());
        assert_eq!(alone, Ok(()), "a part is a value of its own");
    }
    parts_are_the_members(frame);
    object(data, frame.members(frame.root()).collect(), frame.root());
    let draft = Draft::new(frame.clone());
    assert_eq!(draft.to_bytes().as_ptr(), frame.bytes().as_ptr());
    assert_eq!(draft.chunks().concat(), data);
}

/// The spans that the scanner noted are those that the walkers find.
fn parts_are_the_members(frame: &Frame) {
    let present = |span: &Span| frame.text(*span) != b"null";
    let at = |object: Option<Span>, key: &str| {
        object
            .and_then(|object| frame.member(object, key))
            .filter(present)
    };
    let root = Some(frame.root());
    let is_call = frame.kind() != Kind::Response;
    assert_eq!(frame.method_span(), at(root, "method"));
    assert_eq!(frame.method().is_some(), is_call);
    assert_eq!(frame.result(), at(root, "result"));
    assert_eq!(frame.error(), at(root, "error"));
    assert_eq!(frame.error_parts().is_some(), frame.error().is_some());
    let id = at(root, "id").map(|span| frame.text(span).to_vec());
    assert_eq!(frame.id().map(|id| id.as_bytes().to_vec()), id);
    let expected = match (id.is_some(), is_call) {
        (true, true) => Kind::Request,
        (false, true) => Kind::Notification,
        (_, false) => Kind::Response,
    };
    assert_eq!(frame.kind(), expected);
    assert_eq!(frame.result_meta(), at(frame.result(), "_meta"));
    assert_eq!(frame.result_type(), at(frame.result(), "resultType"));
    if is_call {
        assert_eq!(frame.params(), at(root, "params"));
        assert_eq!(frame.name(), at(frame.params(), "name"));
        assert_eq!(frame.uri(), at(frame.params(), "uri"));
        assert_eq!(frame.arguments(), at(frame.params(), "arguments"));
        assert_eq!(frame.meta(), at(frame.params(), "_meta"));
        assert_eq!(frame.progress_token(), at(frame.meta(), "progressToken"));
        assert_eq!(Reserved::of(frame).progress_token, frame.progress_token());
    }
}

fn refused(data: &[u8], error: &FrameError, valid: bool) {
    assert!(error.offset <= data.len());
    assert!(
        !(valid && error.reason.is_unreadable()),
        "{error} for valid JSON"
    );
    let Some(id) = &error.id else { return };
    assert!(
        !error.reason.is_unreadable(),
        "no id of what cannot be read"
    );
    let found = data
        .windows(id.as_bytes().len())
        .any(|part| part == id.as_bytes());
    assert!(found, "the id of a refusal stands in the body");
}

/// A valid text, walked from its root: members and elements follow each other with one comma and
/// whitespace between, and nothing else.
fn walked(text: &[u8]) {
    let whole = Span {
        start: 0,
        end: u32::try_from(text.len()).expect("small"),
    };
    match trimmed(text).first() {
        Some(b'{') => object(text, json::members(text).collect(), whole),
        Some(b'[') => {
            let values: Vec<Span> = json::elements(text).collect();
            gaps(text, whole, &values, (b'[', b']'));
            for value in values {
                walked(slice(text, value));
            }
        }
        _ => assert_eq!(
            json::members(text).count() + json::elements(text).count(),
            0
        ),
    }
}

fn object(text: &[u8], members: Vec<json::Member>, span: Span) {
    let wholes: Vec<Span> = members.iter().map(|member| member.whole).collect();
    gaps(text, span, &wholes, (b'{', b'}'));
    for member in members {
        assert_eq!(
            (member.key.start, member.value.end),
            (member.whole.start, member.whole.end)
        );
        let key = slice(text, member.key);
        assert!(json::string(key).is_some() || json::has_lone_surrogate(key));
        let between = text.get(member.key.range().end..member.value.range().start);
        assert_eq!(trimmed(between.expect("the key is before the value")), b":");
        walked(slice(text, member.value));
    }
}

fn gaps(text: &[u8], span: Span, parts: &[Span], (open, close): (u8, u8)) {
    let mut at = span.range().start;
    for (index, part) in parts.iter().enumerate() {
        let gap = text.get(at..part.range().start).expect("parts in order");
        let expected = if index == 0 { open } else { b',' };
        assert_eq!(trimmed(gap), [expected]);
        at = part.range().end;
    }
    let rest = text.get(at..span.range().end).expect("parts within");
    let expected: &[u8] = if parts.is_empty() {
        &[open, close]
    } else {
        &[close]
    };
    let rest: Vec<u8> = rest
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    assert_eq!(rest, expected);
}

/// The tree that schemas are read from holds what serde_json reads, of duplicates the last.
fn as_tree(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    match Dom::parse(data) {
        Ok(dom) => same_tree(dom.root(), &value),
        // simd-json refuses exponents of very many digits, even of zero.
        Err(error) => assert!(
            data.iter().any(|byte| matches!(byte, b'e' | b'E')),
            "{error}"
        ),
    }
}

fn same_tree(node: Node<'_>, value: &Value) {
    match value {
        Value::Null => assert!(node.is_null()),
        Value::Bool(flag) => assert_eq!(node.as_bool(), Some(*flag)),
        Value::Number(number) => {
            assert!(node.is_number());
            if let Some(integer) = number.as_i64() {
                assert_eq!(node.as_i64(), Some(integer));
            }
        }
        Value::String(text) => assert_eq!(node.as_str(), Some(text.as_str())),
        Value::Array(values) => {
            let nodes: Vec<Node<'_>> = node.as_array().expect("an array").collect();
            assert_eq!(nodes.len(), values.len());
            for (node, value) in nodes.into_iter().zip(values) {
                same_tree(node, value);
            }
        }
        Value::Object(members) => {
            assert!(node.is_object());
            for (key, value) in members {
                same_tree(node.get(key).expect("a member"), value);
            }
        }
    }
}

/// Tighter limits refuse more and find the same.
fn tighter(data: &[u8]) {
    let tight = Limits {
        depth: 4,
        members: 5,
        number: 8,
        method: 12,
        id: 8,
        key: 16,
        meta: 64,
    };
    let Ok(frame) = Frame::parse(Bytes::copy_from_slice(data), &tight) else {
        return;
    };
    let wide = Frame::parse(Bytes::copy_from_slice(data), &Limits::default());
    let wide = wide.expect("what passes tight limits passes wide ones");
    assert_eq!((frame.kind(), frame.root()), (wide.kind(), wide.root()));
    assert_eq!(frame.params(), wide.params());
    assert_eq!(frame.progress_token(), wide.progress_token());
}
