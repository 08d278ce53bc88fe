//! Edits in any order against a plain model of the message; what no edit names keeps its bytes.

use bytes::Bytes;
use vestibule_frame::{Draft, Frame, Id, Limits, Span, json};

const VALUES: [&str; 6] = [
    "\"v\"",
    "-0.0e7",
    "{}",
    "{\"k\" : 1}",
    "null",
    "[ 1,\"\\ud800\" ]",
];
const KEYS: [&str; 6] = ["progressToken", "a/b", "name", "uri", "k", "\u{e9}\"\\"];
const PATHS: [&[&str]; 8] = [
    &["params"],
    &["params", "_meta"],
    &["params", "name"],
    &["params", "_meta", "progressToken"],
    &["params", "a", "b"],
    &["result", "_meta", "a/b"],
    &["params", "arguments", "k", "k"],
    &["x"],
];

/// One byte for the number of edits, two bytes for each, then a message.
pub(crate) fn check(data: &[u8]) {
    let Some((count, rest)) = data.split_first() else {
        return;
    };
    let Some((edits, text)) = rest.split_at_checked(usize::from(count % 8) * 2) else {
        return;
    };
    let Ok(frame) = Frame::parse(Bytes::copy_from_slice(text), &Limits::default()) else {
        return;
    };
    let mut model = Model::Raw(frame.text(frame.root()).to_vec());
    let mut draft = Draft::new(frame.clone());
    for pair in edits.as_chunks::<2>().0 {
        edit(&mut draft, &mut model, *pair);
    }
    let out = draft.to_bytes();
    assert_eq!(draft.chunks().concat(), out);
    assert_eq!(draft.len(), out.len());
    let limits = Limits {
        depth: 256,
        ..Limits::default()
    };
    assert_eq!(json::validate(&out, &limits), Ok(()), "{out:?}");
    same(&out, &model);
    around(&frame, &out);
}

fn edit(draft: &mut Draft, model: &mut Model, [kind, choice]: [u8; 2]) {
    let pick = usize::from(choice);
    let value = VALUES[pick / 8 % VALUES.len()];
    let bytes = Bytes::from_static(value.as_bytes());
    let key = KEYS[pick % KEYS.len()];
    let path = PATHS[pick % PATHS.len()];
    match kind % 8 {
        0 => {
            draft.set_id(&Id::string(key));
            model.set(&["id"], json::quote(key).as_bytes());
        }
        1 => {
            draft.remove_id();
            model.remove(&["id"]);
        }
        2 => {
            draft.set_meta(key, bytes);
            model.set(&["params", "_meta", key], value.as_bytes());
        }
        3 => {
            draft.remove_meta(key);
            model.remove(&["params", "_meta", key]);
        }
        4 => {
            draft.set_at(path, bytes);
            model.set(path, value.as_bytes());
        }
        5 => {
            draft.remove_at(path);
            model.remove(path);
        }
        6 => {
            draft.set_member(draft.frame().root(), key, bytes);
            model.set(&[key], value.as_bytes());
        }
        _ => {
            draft.remove_member(draft.frame().root(), key);
            model.remove(&[key]);
        }
    }
}

/// A value as bytes, or as members once something below it was edited.
#[derive(Clone, Debug)]
enum Model {
    Raw(Vec<u8>),
    Object(Vec<(String, Model)>),
}

impl Model {
    fn is_object(&self) -> bool {
        match self {
            Model::Raw(text) => text.first() == Some(&b'{'),
            Model::Object(_) => true,
        }
    }

    fn members(&mut self) -> &mut Vec<(String, Model)> {
        if let Model::Raw(text) = self {
            let member = |member: json::Member| {
                let key = key_of(text, member.key);
                let value = text.get(member.value.range()).expect("a span of the text");
                (key, Model::Raw(value.to_vec()))
            };
            *self = Model::Object(json::members(text).map(member).collect());
        }
        match self {
            Model::Object(members) => members,
            Model::Raw(_) => unreachable!("made an object just now"),
        }
    }

    fn set(&mut self, path: &[&str], value: &[u8]) {
        let [key, below @ ..] = path else { return };
        let members = self.members();
        if below.is_empty() {
            let at = members.iter().rposition(|(name, _)| name == key);
            if let Some(at) = at {
                members[at].1 = Model::Raw(value.to_vec());
                let mut index = 0;
                members.retain(|(name, _)| {
                    index += 1;
                    name != key || index - 1 == at
                });
            } else {
                members.push(((*key).to_owned(), Model::Raw(value.to_vec())));
            }
            return;
        }
        match members.iter_mut().rfind(|(name, _)| name == key) {
            Some((_, inner)) if inner.is_object() => inner.set(below, value),
            Some(_) | None => {
                let mut fresh = Model::Object(Vec::new());
                fresh.set(below, value);
                members.retain(|(name, _)| name != key);
                members.push(((*key).to_owned(), fresh));
            }
        }
    }

    fn remove(&mut self, path: &[&str]) {
        let [key, below @ ..] = path else { return };
        if !self.is_object() {
            return;
        }
        let members = self.members();
        if below.is_empty() {
            members.retain(|(name, _)| name != key);
        } else if let Some((_, inner)) = members.iter_mut().rfind(|(name, _)| name == key) {
            inner.remove(below);
        }
    }
}

/// A key decoded, or its token where it has no text.
fn key_of(text: &[u8], key: Span) -> String {
    let token = text.get(key.range()).expect("a span of the text");
    match json::string(token) {
        Some(key) => key.into_owned(),
        None => format!("no text: {}", String::from_utf8_lossy(token)),
    }
}

/// The text holds the members of the model, in any order, and kept values byte for byte.
fn same(text: &[u8], model: &Model) {
    let Model::Object(expected) = model else {
        let Model::Raw(raw) = model else { return };
        assert_eq!(super::trimmed(text), raw.as_slice());
        return;
    };
    let mut found: Vec<(String, &[u8])> = json::members(text)
        .map(|member| (key_of(text, member.key), super::slice(text, member.value)))
        .collect();
    assert_eq!(
        found.len(),
        expected.len(),
        "{} is not {expected:?}",
        String::from_utf8_lossy(text)
    );
    let mut expected: Vec<&(String, Model)> = expected.iter().collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    for ((key, value), (name, model)) in found.into_iter().zip(expected) {
        assert_eq!(key, *name);
        same(value, model);
    }
}

/// What stands around the message stays, and so does the order of the members that stay.
fn around(frame: &Frame, out: &[u8]) {
    let text = frame.bytes();
    let root = frame.root().range();
    let after = text.len() - root.end;
    assert!(out.starts_with(text.get(..root.start).expect("in range")));
    assert!(out.ends_with(text.get(root.end..).expect("in range")));
    let edited = out
        .get(root.start..out.len() - after)
        .expect("the edited object");
    let before: Vec<String> = json::members(text)
        .map(|member| key_of(text, member.key))
        .collect();
    let places: Vec<usize> = json::members(edited)
        .filter_map(|member| {
            let key = key_of(edited, member.key);
            before.iter().position(|name| *name == key)
        })
        .collect();
    assert!(places.is_sorted(), "members that stay keep their order");
}
