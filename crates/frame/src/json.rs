//! Walkers and small helpers for JSON text that is valid already, in a frame or outside of one.
//!
//! The walkers trust their input only so far that they end early on malformed text; they never
//! panic. Text from outside goes through [`validate`] first.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::error::{Fault, FrameError, Reason};
use crate::scan::{Grammar, check_text};
use crate::text::{self, Undecodable};
use crate::{Limits, Span};

/// One member of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The key token, quotes included.
    pub key: Span,
    /// The value.
    pub value: Span,
    /// From the key to the end of the value.
    pub whole: Span,
}

/// The members of an object, in order.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    bytes: &'a [u8],
    next: Option<usize>,
    end: usize,
    landmarks: Landmarks,
}

/// Parts whose ends are known from the first scan.
pub(crate) type Landmarks = [Span; 7];

/// The values of an array, in order.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    bytes: &'a [u8],
    next: Option<usize>,
    end: usize,
}

/// The members of the object that is the whole of `text`; none when it is no object.
pub fn members(text: &[u8]) -> Members<'_> {
    Members::new(text, Span::new(0, text.len()), Landmarks::default())
}

/// The values of the array that is the whole of `text`; none when it is no array.
pub fn elements(text: &[u8]) -> Elements<'_> {
    Elements::new(text, Span::new(0, text.len()))
}

/// The value of a member of the object that is the whole of `text`. Of duplicates the last counts.
pub fn member<'a>(text: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let span = members(text).find_last(key)?;
    text.get(span.range())
}

/// The text of a string token; none for another type and for half of a surrogate pair.
pub fn string(token: &[u8]) -> Option<Cow<'_, str>> {
    text::decode(token.trim_ascii()).ok()
}

/// The value of an integer token within 64 bits, without fraction and exponent.
pub fn integer(token: &[u8]) -> Option<i64> {
    is_plain_integer(token).then(|| std::str::from_utf8(token).ok()?.parse().ok())?
}

/// A string token for any text.
pub fn quote(text: &str) -> String {
    let mut token = Vec::with_capacity(text.len() + 2);
    text::quote_into(&mut token, text);
    String::from_utf8(token).expect("quoting adds ASCII to UTF-8")
}

/// Checks one whole JSON text of any type: encoding, grammar, depth, number length.
///
/// # Errors
/// The first breach, with its offset.
pub fn validate(text: &[u8], limits: &Limits) -> Result<(), FrameError> {
    check_text(text, limits).map_err(FrameError::from)
}

/// Checks that the keys of an object, the whole of `text`, can be read in one way only.
///
/// They must be pairwise different after decoding, and free of U+0000 and of half surrogate pairs:
/// what the gateway asks of every object that it decides by (FRM-23). Another type passes.
///
/// # Errors
/// The first key that is refused, with its offset.
pub fn unique(text: &[u8]) -> Result<(), FrameError> {
    let mut seen = HashSet::new();
    for member in members(text) {
        let at = member.key.start as usize;
        let token = text.get(member.key.range()).unwrap_or_default();
        let key = text::decode(token).map_err(|_| Fault::new(Reason::Surrogate, at))?;
        if key.contains('\0') {
            return Err(Fault::new(Reason::NulInKey, at).into());
        }
        if !seen.insert(key) {
            return Err(Fault::new(Reason::Duplicate, at).into());
        }
    }
    Ok(())
}

/// True for one whole string token.
pub(crate) fn is_string(token: &[u8]) -> bool {
    Grammar::over_valid(token)
        .string(0)
        .is_ok_and(|text| text.end == token.len())
}

/// True for an integer by the JSON grammar, without fraction and exponent.
pub(crate) fn is_plain_integer(token: &[u8]) -> bool {
    match token.strip_prefix(b"-").unwrap_or(token) {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The offset of the first member or element, when `span` is a container opened by `open`.
fn enter(bytes: &[u8], span: Span, open: u8, close: u8) -> Option<usize> {
    let grammar = Grammar::over_valid(bytes.get(..span.end as usize)?);
    let start = grammar.space(span.start as usize);
    if grammar.peek(start) != Some(open) {
        return None;
    }
    let first = grammar.space(start + 1);
    (grammar.peek(first) != Some(close)).then_some(first)
}

// === impl Members ===

impl<'a> Members<'a> {
    pub(crate) fn new(bytes: &'a [u8], object: Span, landmarks: Landmarks) -> Members<'a> {
        let next = enter(bytes, object, b'{', b'}');
        Members {
            bytes,
            next,
            end: object.end as usize,
            landmarks,
        }
    }

    /// The value of the last member with this key, compared decoded.
    pub fn find_last(self, key: &str) -> Option<Span> {
        let bytes = self.bytes;
        let hit = |member: &Member| same_key(bytes, member.key, key);
        self.filter(hit).last().map(|member| member.value)
    }

    fn value_end(&self, grammar: &Grammar<'_>, at: usize) -> Option<usize> {
        let known = |mark: &&Span| mark.start as usize == at && !mark.is_empty();
        match self.landmarks.iter().find(known) {
            Some(mark) => Some(mark.end as usize),
            None => grammar.value(at, 0).ok(),
        }
    }
}

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        let at = self.next.take()?;
        let grammar = Grammar::over_valid(self.bytes.get(..self.end)?);
        let (key, value) = grammar.key(at).ok()?;
        let end = self.value_end(&grammar, value)?;
        self.next = grammar.next(end, b'}').ok().flatten();
        Some(Member {
            key: Span::new(at, key.end),
            value: Span::new(value, end),
            whole: Span::new(at, end),
        })
    }
}

/// Compares a key token with a text, decoding only when there are escapes.
pub(crate) fn same_key(bytes: &[u8], token: Span, key: &str) -> bool {
    let token = bytes.get(token.range()).unwrap_or_default();
    let inner = token
        .get(1..token.len().saturating_sub(1))
        .unwrap_or_default();
    if inner == key.as_bytes() {
        return true;
    }
    // An escape is longer than what it stands for, so a shorter token cannot match.
    inner.len() > key.len()
        && memchr::memchr(b'\\', inner).is_some()
        && text::decode_inner(inner).as_deref() == Ok(key)
}

// === impl Elements ===

impl<'a> Elements<'a> {
    pub(crate) fn new(bytes: &'a [u8], array: Span) -> Elements<'a> {
        Elements {
            bytes,
            next: enter(bytes, array, b'[', b']'),
            end: array.end as usize,
        }
    }
}

impl Iterator for Elements<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let at = self.next.take()?;
        let grammar = Grammar::over_valid(self.bytes.get(..self.end)?);
        let end = grammar.value(at, 0).ok()?;
        self.next = grammar.next(end, b']').ok().flatten();
        Some(Span::new(at, end))
    }
}

/// True for a string token that holds half of a surrogate pair, so that it has no text.
pub fn has_lone_surrogate(token: &[u8]) -> bool {
    text::decode(token.trim_ascii()) == Err(Undecodable::LoneSurrogate)
}
