//! What a retry must repeat: one hash over the target and the arguments of a call. Pure.
//!
//! The text is brought into one form first, because a client may write its second request
//! differently: keys in order, strings decoded, integers within 2^53 as decimals. Numbers beyond
//! that stay the tokens they are, so that neighbours that a double cannot tell apart differ
//! (XT-537).

use aws_lc_rs::digest::{SHA256, digest};
use vestibule_frame::{Frame, agree, json};

/// The members of `params` that say what is called.
const SALIENT: [&str; 3] = ["name", "uri", "arguments"];

/// The hash of what a request calls.
pub(crate) fn of(frame: &Frame) -> [u8; 32] {
    let mut text = Vec::new();
    for key in SALIENT {
        let span = frame.params().and_then(|params| frame.member(params, key));
        // Absent and null ask for the same thing.
        let value = span.map_or(&b"null"[..], |span| frame.text(span));
        canonical(value, &mut text);
        text.push(b'\n');
    }
    digest(&SHA256, &text)
        .as_ref()
        .try_into()
        .expect("SHA-256 is 32 bytes long")
}

/// Appends the one form of a JSON text. Its depth was bounded by the scanner.
fn canonical(text: &[u8], out: &mut Vec<u8>) {
    match text.first() {
        Some(b'{') => object(text, out),
        Some(b'[') => {
            out.push(b'[');
            for (at, span) in json::elements(text).enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                canonical(text.get(span.range()).unwrap_or_default(), out);
            }
            out.push(b']');
        }
        Some(b'"') => match json::string(text) {
            Some(decoded) => out.extend_from_slice(json::quote(&decoded).as_bytes()),
            None => out.extend_from_slice(text),
        },
        Some(b'-' | b'0'..=b'9') => match agree::exact_integer(text) {
            Some(number) => out.extend_from_slice(number.to_string().as_bytes()),
            None => out.extend_from_slice(text),
        },
        Some(_) | None => out.extend_from_slice(text),
    }
}

fn object(text: &[u8], out: &mut Vec<u8>) {
    let mut members: Vec<(Vec<u8>, &[u8])> = json::members(text)
        .map(|member| {
            let mut key = Vec::new();
            canonical(text.get(member.key.range()).unwrap_or_default(), &mut key);
            (key, text.get(member.value.range()).unwrap_or_default())
        })
        .collect();
    members.sort_by(|a, b| a.0.cmp(&b.0)); // stable: duplicates keep their order
    out.push(b'{');
    for (at, (key, value)) in members.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&key);
        out.push(b':');
        canonical(value, out);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use vestibule_frame::Limits;

    fn hash(params: &str) -> [u8; 32] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        of(&Frame::parse(Bytes::from(text), &Limits::default()).unwrap())
    }

    /// XT-537: integers that a double cannot tell apart are different arguments.
    #[test]
    fn xt_537_big_integers_stay_apart() {
        let with = |n: &str| hash(&format!(r#"{{"name":"a","arguments":{{"n":{n}}}}}"#));
        assert_ne!(with("9007199254740993"), with("9007199254740992"));
        assert_eq!(with("42"), with("42.0"));
        assert_ne!(with("42"), with("\"42\""));
        assert_ne!(with("1.5"), with("1.25"));
    }

    #[test]
    fn spelling_does_not_matter_and_content_does() {
        let one = hash(r#"{"name":"a","arguments":{"x":[1,{"b":2,"a":"\u0041"}],"y":null}}"#);
        let two = hash(
            r#"{ "arguments" : {"y":null, "x":[ 1 , {"a":"A","b":2}]}, "requestState":"s", "name":"\u0061"}"#,
        );
        assert_eq!(one, two);
        for other in [
            r#"{"name":"b","arguments":{"x":[1,{"b":2,"a":"A"}],"y":null}}"#,
            r#"{"name":"a","arguments":{"x":[{"b":2,"a":"A"},1],"y":null}}"#,
            r#"{"name":"a","arguments":{"x":[1,{"b":2,"a":"A"}]}}"#,
            r#"{"uri":"a","arguments":{"x":[1,{"b":2,"a":"A"}],"y":null}}"#,
        ] {
            assert_ne!(hash(other), one, "{other}");
        }
        assert_eq!(
            hash(r#"{"name":"a"}"#),
            hash(r#"{"name":"a","arguments":null}"#)
        );
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            "\\PC{0,6}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                proptest::collection::hash_map("\\PC{0,4}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Two values have one hash exactly when they are equal, however they are printed.
        #[test]
        fn equal_values_and_only_they_share_a_hash(a in value(), b in value()) {
            let print = |value: &serde_json::Value, pretty: bool| {
                let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
                hash(&format!(r#"{{"name":"n","arguments":{}}}"#, text.unwrap()))
            };
            prop_assert_eq!(print(&a, true), print(&a, false));
            prop_assert_eq!(print(&a, false) == print(&b, true), a == b);
        }
    }
}
