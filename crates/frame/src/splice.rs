//! A message with edits: the few spans that a hop owns are replaced, everything else stays a slice
//! of the bytes that came.
//!
//! Edits always refer to the original message, so that rooms can edit one after the other without
//! knowing of each other: the router takes a member out, the session puts one in, and both hold.
//! Members are edited through [`Draft::set_member`] and [`Draft::remove_member`], which keep commas
//! right in any combination; an edit inside of something that is removed or replaced as a whole goes
//! with it. Nothing is written until [`Draft::chunks`] is asked for.

use std::cmp::Reverse;
use std::fmt;

use bytes::Bytes;

use crate::Span;
use crate::json::{Member, same_key};
use crate::message::{Frame, Id};

mod edit;

use edit::{Fate, ObjectEdit, Patch, Value, put};

/// A message and the edits to make to it.
#[derive(Clone)]
pub struct Draft {
    frame: Frame,
    replaced: Vec<(Span, Bytes)>,
    objects: Vec<ObjectEdit>,
}

// === impl Draft ===

impl Draft {
    /// A draft without edits.
    pub fn new(frame: Frame) -> Draft {
        Draft {
            frame,
            replaced: Vec::new(),
            objects: Vec::new(),
        }
    }

    /// The original message; its spans are those that edits refer to.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// True while the draft is the original, byte for byte.
    pub fn is_unchanged(&self) -> bool {
        self.replaced.is_empty() && self.objects.is_empty()
    }

    /// Replaces a value. A later call for the same span wins; spans must not partly overlap.
    pub fn replace(&mut self, span: Span, with: Bytes) {
        let fates = self
            .objects
            .iter_mut()
            .flat_map(|edit| edit.members.iter_mut());
        let edited = |(member, fate): &&mut (Member, Fate)| {
            member.value == span && !matches!(fate, Fate::Kept)
        };
        if let Some((_, fate)) = fates.into_iter().find(edited) {
            *fate = Fate::Set(Value::Bytes(with));
            return;
        }
        match self
            .replaced
            .iter_mut()
            .find(|(earlier, _)| *earlier == span)
        {
            Some((_, bytes)) => *bytes = with,
            None => self.replaced.push((span, with)),
        }
    }

    /// Sets a member of an object of the original: in place when it is there, else at the end.
    pub fn set_member(&mut self, object: Span, key: &str, value: Bytes) {
        self.set(object, key, Value::Bytes(value));
    }

    /// Takes a member out of an object of the original, its duplicates too. Without it: nothing.
    pub fn remove_member(&mut self, object: Span, key: &str) {
        let edited = self.objects.iter().any(|edit| edit.object == object);
        if !edited && self.frame.member(object, key).is_none() {
            return; // the usual case: nothing to take out, so nothing to write down
        }
        let bytes = self.frame.bytes().clone();
        let edit = self.object(object);
        edit.added.retain(|(added, _)| added != key);
        for (member, fate) in &mut edit.members {
            if same_key(&bytes, member.key, key) {
                *fate = Fate::Removed;
            }
        }
    }

    /// Sets a member at a path of keys from the message object down. Objects that are missing on the
    /// way are made, and what is there but no object is replaced by one.
    pub fn set_at(&mut self, path: &[&str], value: Bytes) {
        let mut object = self.frame.root();
        let mut rest = path;
        while let [key, below @ ..] = rest {
            if below.is_empty() {
                return self.set(object, key, Value::Bytes(value));
            }
            match self.kept_object(object, key) {
                Some(inner) => object = inner,
                None => return self.set_within(object, key, below, value),
            }
            rest = below;
        }
    }

    /// Removes the member at a path of keys from the message object down, wherever it came from.
    pub fn remove_at(&mut self, path: &[&str]) {
        let mut object = self.frame.root();
        let mut rest = path;
        while let [key, below @ ..] = rest {
            if below.is_empty() {
                return self.remove_member(object, key);
            }
            match self.kept_object(object, key) {
                Some(inner) => object = inner,
                None => {
                    if let Some(slot) = self.new_value(object, key) {
                        slot.remove(below);
                    }
                    return;
                }
            }
            rest = below;
        }
    }

    /// Sets a member of `params._meta`, making both objects when they are missing.
    pub fn set_meta(&mut self, key: &str, value: Bytes) {
        self.set_at(&["params", "_meta", key], value);
    }

    /// Removes a member of `params._meta`.
    pub fn remove_meta(&mut self, key: &str) {
        self.remove_at(&["params", "_meta", key]);
    }

    /// Gives the message this id.
    pub fn set_id(&mut self, id: &Id) {
        let root = self.frame.root();
        let edited = self.objects.iter().any(|edit| edit.object == root);
        match self.frame.id_span().filter(|_| !edited) {
            // the place of the id is known: no need to take the whole message apart
            Some(span) => self.replace(span, id.token()),
            None => self.set_member(root, "id", id.token()),
        }
    }

    /// Takes the id out.
    pub fn remove_id(&mut self) {
        self.remove_member(self.frame.root(), "id");
    }

    /// The edited message as slices: kept runs of the original and what was put between them.
    pub fn chunks(&self) -> Vec<Bytes> {
        let original = self.frame.bytes();
        let mut out = Vec::new();
        let mut at = 0;
        for patch in self.patches() {
            let range = patch.at.range();
            if range.start < at {
                debug_assert!(range.end <= at, "edits must not partly overlap");
                continue; // inside of something that is removed or replaced as a whole
            }
            push(&mut out, original.slice(at..range.start));
            patch
                .with
                .into_iter()
                .for_each(|bytes| push(&mut out, bytes));
            at = range.end;
        }
        push(&mut out, original.slice(at..));
        out
    }

    /// Number of bytes of the edited message.
    pub fn len(&self) -> usize {
        if self.is_unchanged() {
            return self.frame.bytes().len();
        }
        self.chunks().iter().map(Bytes::len).sum()
    }

    /// Never true: a message has bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The edited message in one piece. Without edits these are the original bytes, not copied.
    pub fn to_bytes(&self) -> Bytes {
        if self.is_unchanged() {
            return self.frame.bytes().clone();
        }
        let chunks = self.chunks();
        let mut out = Vec::with_capacity(chunks.iter().map(Bytes::len).sum());
        chunks.iter().for_each(|chunk| out.extend_from_slice(chunk));
        Bytes::from(out)
    }

    fn patches(&self) -> Vec<Patch> {
        let replace = |(at, with): &(Span, Bytes)| Patch {
            at: *at,
            with: vec![with.clone()],
        };
        let mut patches: Vec<Patch> = self.replaced.iter().map(replace).collect();
        for edit in &self.objects {
            edit.patches(&mut patches);
        }
        patches.sort_by_key(|patch| (patch.at.start, Reverse(patch.at.end)));
        patches
    }

    fn set(&mut self, object: Span, key: &str, value: Value) {
        let bytes = self.frame.bytes().clone();
        let edit = self.object(object);
        let mut hits: Vec<_> = edit
            .members
            .iter_mut()
            .filter(|(member, _)| same_key(&bytes, member.key, key))
            .collect();
        // Of duplicates the last one counts for most readers; after this there is only one.
        let Some((last, fate)) = hits.pop() else {
            put(&mut edit.added, key, value);
            return;
        };
        *fate = Fate::Set(value);
        let span = last.value;
        hits.into_iter().for_each(|(_, fate)| *fate = Fate::Removed);
        self.replaced.retain(|(earlier, _)| *earlier != span);
    }

    /// Sets something below a member that is no object of the original (or is one no more).
    fn set_within(&mut self, object: Span, key: &str, below: &[&str], value: Bytes) {
        if let Some(slot) = self.new_value(object, key) {
            return slot.set(below, value);
        }
        let mut fresh = Value::Object(Vec::new());
        fresh.set(below, value);
        self.set(object, key, fresh);
    }

    /// The object at a member of the original that has not been replaced or removed.
    fn kept_object(&mut self, object: Span, key: &str) -> Option<Span> {
        let bytes = self.frame.bytes().clone();
        let known = self.objects.iter().find(|edit| edit.object == object);
        let span = match known {
            None => self.known_member(object, key)?,
            Some(edit) => {
                let hit = |(member, _): &&(Member, Fate)| same_key(&bytes, member.key, key);
                let (member, fate) = edit.members.iter().rfind(hit)?;
                matches!(fate, Fate::Kept).then_some(member.value)?
            }
        };
        let replaced = self.replaced.iter().any(|(earlier, _)| *earlier == span);
        (!replaced && bytes.get(span.range().start) == Some(&b'{')).then_some(span)
    }

    /// A member of the original, without a walk where the scan has noted it.
    fn known_member(&self, object: Span, key: &str) -> Option<Span> {
        let frame = &self.frame;
        let noted = match key {
            "params" if object == frame.root() => frame.params(),
            "_meta" if frame.params() == Some(object) => frame.meta(),
            _ => None,
        };
        noted.or_else(|| frame.member(object, key))
    }

    /// The value that a member was given by an earlier edit.
    fn new_value(&mut self, object: Span, key: &str) -> Option<&mut Value> {
        let bytes = self.frame.bytes().clone();
        self.adopt_replacement(object, key);
        let edit = self.object(object);
        let set = edit
            .members
            .iter_mut()
            .rev()
            .find_map(|(member, fate)| match fate {
                Fate::Set(value) if same_key(&bytes, member.key, key) => Some(value),
                Fate::Set(_) | Fate::Kept | Fate::Removed => None,
            });
        set.or_else(|| {
            edit.added
                .iter_mut()
                .find(|(added, _)| added == key)
                .map(|(_, v)| v)
        })
    }

    /// Turns a plain replacement of a member's value into an edit of that member.
    fn adopt_replacement(&mut self, object: Span, key: &str) {
        let Some(span) = self.frame.member(object, key) else {
            return;
        };
        let at = self
            .replaced
            .iter()
            .position(|(earlier, _)| *earlier == span);
        if let Some(at) = at {
            let (_, bytes) = self.replaced.swap_remove(at);
            self.set(object, key, Value::Bytes(bytes));
        }
    }

    fn object(&mut self, object: Span) -> &mut ObjectEdit {
        let at = self
            .objects
            .iter()
            .position(|edit| edit.object == object)
            .unwrap_or_else(|| {
                let members = self
                    .frame
                    .members(object)
                    .map(|member| (member, Fate::Kept))
                    .collect();
                self.objects.push(ObjectEdit {
                    object,
                    members,
                    added: Vec::new(),
                });
                self.objects.len() - 1
            });
        self.objects.get_mut(at).expect("found or pushed just now")
    }
}

impl From<Frame> for Draft {
    fn from(frame: Frame) -> Draft {
        Draft::new(frame)
    }
}

impl fmt::Debug for Draft {
    /// The message's own short form and whether it is edited: never contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edited = !self.is_unchanged();
        f.debug_struct("Draft")
            .field("frame", &self.frame)
            .field("edited", &edited)
            .finish()
    }
}

fn push(out: &mut Vec<Bytes>, bytes: Bytes) {
    if !bytes.is_empty() {
        out.push(bytes);
    }
}

#[cfg(test)]
mod tests;
