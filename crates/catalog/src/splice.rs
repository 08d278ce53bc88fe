//! Edits to one raw item of a list: spans replaced or cut, every other byte kept.
//!
//! An item is no message, so a `Draft` cannot hold it; the rule is the same.

use std::ops::Range;

use bytes::Bytes;
use vestibule_frame::{Member, json};

/// Edits to one text, in any order; ranges do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Edits(Vec<(Range<usize>, Vec<u8>)>);

impl Edits {
    pub(crate) fn replace(&mut self, range: Range<usize>, with: impl Into<Vec<u8>>) {
        self.0.push((range, with.into()));
    }

    /// The text with the edits made; the very same bytes when there are none.
    pub(crate) fn apply(mut self, text: &Bytes) -> Bytes {
        if self.0.is_empty() {
            return text.clone();
        }
        self.0.sort_by_key(|(range, _)| range.start);
        let mut out = Vec::with_capacity(text.len() + 64);
        let mut at = 0;
        for (range, with) in self.0 {
            out.extend_from_slice(text.get(at..range.start).unwrap_or_default());
            out.extend_from_slice(&with);
            at = range.end;
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        Bytes::from(out)
    }
}

/// Where the value of a member stands, as offsets of the whole text, when `object` does.
pub(crate) fn find(text: &[u8], object: &Range<usize>, key: &str) -> Option<Range<usize>> {
    let span = json::members(text.get(object.clone())?)
        .find_last(key)?
        .range();
    Some(object.start + span.start..object.start + span.end)
}

/// The same down a path of keys.
pub(crate) fn find_at(text: &[u8], path: &[&str]) -> Option<Range<usize>> {
    path.iter()
        .try_fold(0..text.len(), |object, key| find(text, &object, key))
}

/// Takes the members for which `unwanted` holds out of the object at `object`, commas included.
pub(crate) fn cut_members(
    edits: &mut Edits,
    text: &[u8],
    object: &Range<usize>,
    unwanted: impl Fn(&str) -> bool,
) {
    let Some(inner) = text.get(object.clone()) else {
        return;
    };
    let members: Vec<Member> = json::members(inner).collect();
    let drop = |member: &Member| {
        let token = inner.get(member.key.range()).unwrap_or_default();
        json::string(token).is_some_and(|key| unwanted(&key))
    };
    let mut kept_before = false;
    for (at, member) in members.iter().enumerate() {
        if !drop(member) {
            kept_before = true;
            continue;
        }
        let whole = member.whole.range();
        // With a kept member before it the comma in front goes along, else the one behind.
        let range = if kept_before {
            members[at - 1].whole.range().end..whole.end
        } else {
            let end = members
                .get(at + 1)
                .map_or(whole.end, |next| next.whole.range().start);
            whole.start..end
        };
        edits.replace(
            object.start + range.start..object.start + range.end,
            Vec::new(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &'static str) -> Bytes {
        let mut edits = Edits::default();
        cut_members(&mut edits, text.as_bytes(), &(0..text.len()), |key| {
            key == "x"
        });
        edits.apply(&Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn members_are_cut_with_the_right_comma() {
        assert_eq!(cut(r#"{"x":1}"#), "{}");
        assert_eq!(cut(r#"{"x":1, "a":2}"#), r#"{"a":2}"#);
        assert_eq!(cut(r#"{"a":2 , "x":1}"#), r#"{"a":2}"#);
        assert_eq!(cut(r#"{"a":1,"x":2,"b":3}"#), r#"{"a":1,"b":3}"#);
        assert_eq!(cut(r#"{"x":1,"\u0078":2}"#), "{}");
        assert_eq!(cut(r#"{"x":1,"x":2,"a":[{"x":0}]}"#), r#"{"a":[{"x":0}]}"#);
        assert_eq!(cut(r#"{"a":0,"x":1,"x":2}"#), r#"{"a":0}"#);
    }

    #[test]
    fn nested_values_are_found_by_offset() {
        let text = br#"{"a":{"b" : "c"}}"#;
        assert_eq!(
            text.get(find_at(text, &["a", "b"]).unwrap()),
            Some(&b"\"c\""[..])
        );
        assert!(find_at(text, &["a", "b", "c"]).is_none());
    }
}
