//! The edits of one object and the values that are put in, down to replacements of byte ranges.

use bytes::Bytes;

use crate::json::Member;
use crate::{Span, json, text};

/// Edits to the members of one object of the original.
#[derive(Clone)]
pub(super) struct ObjectEdit {
    pub(super) object: Span,
    pub(super) members: Vec<(Member, Fate)>,
    pub(super) added: Vec<(String, Value)>,
}

/// What becomes of an original member.
#[derive(Clone)]
pub(super) enum Fate {
    Kept,
    Removed,
    Set(Value),
}

/// A new value: bytes, or an object that is still being put together.
#[derive(Clone)]
pub(super) enum Value {
    Bytes(Bytes),
    Object(Vec<(String, Value)>),
}

/// One replacement in the original: nothing to something, something to nothing, or both.
pub(super) struct Patch {
    pub(super) at: Span,
    pub(super) with: Vec<Bytes>,
}

pub(super) fn put(members: &mut Vec<(String, Value)>, key: &str, value: Value) {
    match members.iter_mut().find(|(earlier, _)| earlier == key) {
        Some((_, slot)) => *slot = value,
        None => members.push((key.to_owned(), value)),
    }
}

// === impl ObjectEdit ===

impl ObjectEdit {
    /// The replacements that make the edits. A removed member takes the comma before it along when
    /// something is kept before it, else the comma behind it.
    pub(super) fn patches(&self, patches: &mut Vec<Patch>) {
        let mut previous_end = None;
        let mut kept = false;
        for (at, (member, fate)) in self.members.iter().enumerate() {
            let whole = member.whole;
            let next = self.members.get(at + 1).map(|(next, _)| next.whole.start);
            match (fate, previous_end) {
                (Fate::Kept, _) => kept = true,
                (Fate::Set(value), _) => {
                    kept = true;
                    patches.push(Patch {
                        at: member.value,
                        with: value.pieces(),
                    });
                }
                (Fate::Removed, Some(before)) if kept => {
                    patches.push(Patch {
                        at: Span {
                            start: before,
                            end: whole.end,
                        },
                        with: vec![],
                    });
                }
                (Fate::Removed, _) => {
                    let end = next.unwrap_or(whole.end);
                    patches.push(Patch {
                        at: Span {
                            start: whole.start,
                            end,
                        },
                        with: vec![],
                    });
                }
            }
            previous_end = Some(whole.end);
        }
        if !self.added.is_empty() {
            let brace = self.object.end.saturating_sub(1);
            let with = pieces_of(&self.added, kept);
            patches.push(Patch {
                at: Span {
                    start: brace,
                    end: brace,
                },
                with,
            });
        }
    }
}

/// Members as they stand between the braces; a comma first when something is before them.
fn pieces_of(members: &[(String, Value)], mut comma: bool) -> Vec<Bytes> {
    let mut out = Vec::new();
    for (key, value) in members {
        let mut lead = Vec::with_capacity(key.len() + 4);
        if comma {
            lead.push(b',');
        }
        text::quote_into(&mut lead, key);
        lead.push(b':');
        out.push(Bytes::from(lead));
        out.extend(value.pieces());
        comma = true;
    }
    out
}

// === impl Value ===

impl Value {
    fn pieces(&self) -> Vec<Bytes> {
        match self {
            Value::Bytes(bytes) => vec![bytes.clone()],
            Value::Object(members) => {
                let mut out = vec![Bytes::from_static(b"{")];
                out.extend(pieces_of(members, false));
                out.push(Bytes::from_static(b"}"));
                out
            }
        }
    }

    fn is_object(&self) -> bool {
        match self {
            Value::Bytes(bytes) => bytes.trim_ascii_start().starts_with(b"{"),
            Value::Object(_) => true,
        }
    }

    /// The members of the object this is or becomes.
    fn members(&mut self) -> &mut Vec<(String, Value)> {
        if let Value::Bytes(bytes) = self {
            let text = bytes.clone();
            let member = |member: Member| {
                let key = json::string(text.get(member.key.range())?)?.into_owned();
                Some((key, Value::Bytes(text.slice(member.value.range()))))
            };
            *self = Value::Object(json::members(&text).filter_map(member).collect());
        }
        match self {
            Value::Object(members) => members,
            Value::Bytes(_) => unreachable!("made an object just now"),
        }
    }

    pub(super) fn set(&mut self, path: &[&str], value: Bytes) {
        let [key, below @ ..] = path else { return };
        let members = self.members();
        if below.is_empty() {
            return put(members, key, Value::Bytes(value));
        }
        if !members.iter().any(|(earlier, _)| earlier == key) {
            members.push(((*key).to_owned(), Value::Object(Vec::new())));
        }
        if let Some((_, inner)) = members.iter_mut().find(|(earlier, _)| earlier == key) {
            inner.set(below, value);
        }
    }

    /// Takes out what is below; a value that is no object has nothing below and stays.
    pub(super) fn remove(&mut self, path: &[&str]) {
        let [key, below @ ..] = path else { return };
        if !self.is_object() {
            return;
        }
        let members = self.members();
        if below.is_empty() {
            members.retain(|(earlier, _)| earlier != key);
        } else if let Some((_, inner)) = members.iter_mut().find(|(earlier, _)| earlier == key) {
            inner.remove(below);
        }
    }
}
