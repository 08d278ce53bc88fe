//! The scanner against serde_json, on JSON that was damaged at random.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use proptest::prelude::{
    Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use serde_json::Value;
use serde_json::value::RawValue;
use vestibule_frame::{Draft, Frame, Limits, json as walk};

use crate::parse;

/// JSON texts with a taste for what parsers disagree about.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|flag| flag.to_string()),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,4})?([eE][+-]?[0-9]{1,3})?",
        "\"[a-z\u{e9}\u{1f600} ]{0,20}\"",
        "\"(\\\\[\"\\\\/bfnrt]|\\\\u00[0-9a-f]{2}|\\\\ud83d\\\\ude00|x){0,6}\"",
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let key = "\"[a-c]{0,2}\"";
        let space = prop::sample::select(vec!["", " ", "\n", "\t\r"]);
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..5), space.clone())
                .prop_map(|(values, space)| format!("[{space}{}{space}]", values.join(","))),
            (prop::collection::vec((key, inner), 0..5), space).prop_map(|(members, space)| {
                let member =
                    |(key, value): &(String, String)| format!("{key}{space}:{space}{value}");
                let members: Vec<String> = members.iter().map(member).collect();
                format!("{{{}{space}}}", members.join(&format!("{space},")))
            }),
        ]
    })
}

/// Damage at a place: a byte is dropped, replaced or put in.
fn damage() -> impl Strategy<Value = (usize, u8, u8)> {
    let bytes = prop::sample::select(b"{}[],:\"\\ \n0-+.eEtfn\x00\x1f\x7f\xc3\xa9u/a".to_vec());
    (any::<usize>(), 0u8..3, bytes)
}

fn damaged(text: &str, damages: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (place, how, byte) in damages {
        let at = place % (bytes.len() + 1);
        match how {
            0 if at < bytes.len() => drop(bytes.remove(at)),
            1 if at < bytes.len() => bytes[at] = *byte,
            _ => bytes.insert(at, *byte),
        }
    }
    bytes
}

/// Whether serde_json takes the text, without converting numbers or pairing surrogates.
fn serde_takes(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok() && serde_json::from_slice::<&RawValue>(text).is_ok()
}

/// Spells some characters of the string tokens of a text as escapes.
fn escaped(text: &str, picks: &[bool]) -> String {
    let mut picks = picks.iter().cycle();
    let mut out = String::new();
    let mut inside = false;
    let mut chars = text.chars();
    while let Some(letter) = chars.next() {
        match letter {
            '\\' => {
                out.push(letter);
                out.extend(chars.next());
            }
            '"' => {
                inside = !inside;
                out.push(letter);
            }
            _ if inside && *picks.next().expect("a cycle") => {
                let mut units = [0; 2];
                let escape = |unit: &u16| format!("\\u{unit:04x}");
                out.extend(letter.encode_utf16(&mut units).iter().map(escape));
            }
            _ => out.push(letter),
        }
    }
    out
}

/// What policy reads of a message: the verdict, or the decoded parts.
fn verdict(text: &str) -> Result<Vec<Option<String>>, &'static str> {
    let frame = parse(text).map_err(|error| error.reason.label())?;
    let string = |span| frame.string(span).map(Cow::into_owned);
    Ok(vec![
        Some(format!("{:?}", frame.kind())),
        frame
            .id()
            .map(|id| id.as_str().map_or_else(|| id.to_string(), Cow::into_owned)),
        frame.method().map(Cow::into_owned),
        frame.name().and_then(string),
        frame.uri().and_then(string),
        frame.progress_token().and_then(string),
    ])
}

/// Messages, many of which are refused for one reason or another.
fn message() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "jsonrpc", "id", "method", "params", "result", "error", "x", "Method", "name", "iD",
    ]);
    let params = prop::sample::select(vec![
        r#"{"name":"a","arguments":{"name":1,"name":2}}"#,
        r#"{"name":"a","name":"b"}"#,
        r#"{"name":"a","Name":"b"}"#,
        r#"{"_meta":{"progressToken":"t","a/b":1},"uri":"u:é"}"#,
        r#"{"_meta":{"progressToken":"t","progresstoken":1}}"#,
        "[]",
        "null",
    ]);
    let member = (
        key,
        prop::sample::select(vec!["1", "\"2.0\"", "null", "{}", "\"m\""]),
    )
        .prop_map(|(key, value)| format!("\"{key}\":{value}"));
    (prop::collection::vec(member, 0..2), params).prop_map(|(members, params)| {
        let head = r#""jsonrpc":"2.0","id":"i","method":"tools/call""#;
        let extra: String = members.iter().map(|member| format!(",{member}")).collect();
        format!("{{{head}{extra},\"params\":{params}}}")
    })
}

proptest! {
    /// The verdict on any text is serde_json's.
    #[test]
    fn the_grammar_is_that_of_serde_json(text in value(), damages in prop::collection::vec(damage(), 0..4)) {
        let bytes = damaged(&text, &damages);
        let taken = walk::validate(&bytes, &Limits::default()).is_ok();
        prop_assert_eq!(taken, serde_takes(&bytes), "{}", String::from_utf8_lossy(&bytes));
    }

    /// Nothing panics on any bytes, and what is taken is JSON.
    #[test]
    fn any_bytes_are_judged_alike(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let taken = walk::validate(&bytes, &Limits::default()).is_ok();
        prop_assert_eq!(taken, serde_takes(&bytes));
        let _verdict = Frame::parse(Bytes::from(bytes), &Limits::default()).is_ok();
    }

    /// T05: spelling characters as escapes changes neither verdict nor what policy reads.
    #[test]
    fn t05_escapes_never_change_the_verdict(text in message(), picks in prop::collection::vec(any::<bool>(), 1..20)) {
        prop_assert_eq!(verdict(&escaped(&text, &picks)), verdict(&text), "{}", escaped(&text, &picks));
    }

    /// T02, case 98: what is taken means the same to a reader that keeps the last of two members,
    /// and nothing that is no JSON is taken.
    #[test]
    fn t02_what_is_taken_reads_the_same_elsewhere(text in message(), damages in prop::collection::vec(damage(), 0..3)) {
        let bytes = damaged(&text, &damages);
        let Ok(frame) = parse(&bytes) else { return Ok(()) };
        prop_assert!(serde_takes(&bytes));
        let Ok(read) = serde_json::from_slice::<Value>(&bytes) else { return Ok(()) };
        let string = |value: &Value| value.as_str().map(str::to_owned);
        let ours = |span: Option<_>| span.and_then(|span| frame.string(span)).map(Cow::into_owned);
        prop_assert_eq!(frame.method().map(Cow::into_owned), string(&read["method"]));
        if frame.method().is_some() {
            prop_assert_eq!(ours(frame.name()), string(&read["params"]["name"]));
            prop_assert_eq!(ours(frame.uri()), string(&read["params"]["uri"]));
            let token = &read["params"]["_meta"]["progressToken"];
            prop_assert_eq!(ours(frame.progress_token()), string(token));
            prop_assert_eq!(frame.arguments().is_some(), !read["params"]["arguments"].is_null());
        }
        let id = frame.id().map(|id| serde_json::from_slice::<Value>(id.as_bytes()).expect("JSON"));
        prop_assert_eq!(id.unwrap_or_default(), read["id"].clone());
    }

    /// The walkers see what serde_json sees.
    #[test]
    fn members_are_those_of_serde_json(text in value()) {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{text}}}"#);
        if text == "null" {
            return Ok(());
        }
        let frame = parse(&body).expect("a good message");
        let result = frame.result().expect("a result");
        prop_assert_eq!(frame.text(result), text.as_bytes());
        let mut last = HashMap::new();
        for member in frame.members(result) {
            let key = frame.string(member.key).expect("a key").into_owned();
            last.insert(key, String::from_utf8_lossy(frame.text(member.value)).into_owned());
        }
        let elements = frame.elements(result).map(|span| frame.text(span)).collect::<Vec<_>>();
        let members = serde_json::from_str::<HashMap<String, &RawValue>>(&text);
        let expected = members.unwrap_or_default().into_iter().map(|(k, v)| (k, v.get().to_owned()));
        prop_assert_eq!(last, expected.collect::<HashMap<_, _>>());
        let expected = serde_json::from_str::<Vec<&RawValue>>(&text).unwrap_or_default();
        prop_assert_eq!(elements, expected.iter().map(|v| v.get().as_bytes()).collect::<Vec<_>>());
    }

    /// Quoting and reading back is the identity, and the token is JSON.
    #[test]
    fn quoting_is_undone_by_reading(text in any::<String>()) {
        let token = walk::quote(&text);
        let read = walk::string(token.as_bytes()).map(Cow::into_owned);
        prop_assert_eq!(read, Some(text.clone()));
        prop_assert_eq!(serde_json::from_str::<String>(&token).ok(), Some(text));
    }

    /// A message that is edited and put back is the message.
    #[test]
    fn an_edit_undone_leaves_the_bytes(id in any::<i64>(), value in value()) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"a":{value}}}}}"#);
        let frame = parse(&text).expect("a good message");
        let mut draft = Draft::new(frame.clone());
        draft.set_id(&vestibule_frame::Id::string("other"));
        draft.set_id(&frame.id().expect("an id"));
        prop_assert_eq!(draft.to_bytes(), text.as_bytes());
        let error = vestibule_frame::encode::error(frame.id().as_ref(), -1, "x", Some(value.as_bytes()));
        prop_assert_eq!(parse(&error).expect("good").id(), frame.id());
    }
}
