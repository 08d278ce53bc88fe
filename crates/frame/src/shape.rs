//! The envelope: drives the grammar over one message and notes where its parts are. What they amount
//! to is decided in `judge`, once the whole message is known to be JSON.
//!
//! The top level, `params`, `params._meta` and `params.ref` are *envelope objects*: the gateway
//! decides by what they hold, so a duplicate, look-alike, NUL or half-surrogate key in them is
//! refused. Inside `arguments`, `result` and everything else the same things pass, byte for byte.

use crate::error::{Fault, Reason};
use crate::judge;
use crate::keys::{Known, Level, Seen};
use crate::message::Kind;
use crate::scan::{Grammar, Text, check_encoding, check_trailing};
use crate::text;
use crate::{Limits, Span};

/// Where the parts of a message are. An empty span means absent.
#[derive(Clone, Copy, Default)]
pub(crate) struct Layout {
    pub(crate) root: Span,
    pub(crate) jsonrpc: Span,
    pub(crate) id: Span,
    pub(crate) method: Span,
    pub(crate) params: Span,
    pub(crate) name: Span,
    pub(crate) uri: Span,
    pub(crate) arguments: Span,
    pub(crate) meta: Span,
    pub(crate) progress_token: Span,
    pub(crate) result: Span,
    pub(crate) result_meta: Span,
    pub(crate) result_type: Span,
    pub(crate) content: Span,
    /// Where `content` is an array of one object: that object and its `type`.
    pub(crate) block: Span,
    pub(crate) block_type: Span,
    pub(crate) structured: Span,
    pub(crate) is_error: Span,
    pub(crate) error: Span,
}

/// `None` for the empty span.
pub(crate) fn present(span: Span) -> Option<Span> {
    (!span.is_empty()).then_some(span)
}

/// Scans and judges one message, filling in where its parts are.
pub(crate) fn read(bytes: &[u8], limits: &Limits, layout: &mut Layout) -> Result<Kind, Fault> {
    check_encoding(bytes)?;
    let grammar = Grammar::new(bytes, limits);
    let start = grammar.space(0);
    if grammar.peek(start) != Some(b'{') {
        return Err(not_an_object(&grammar, start));
    }
    let mut seen = Seen::new();
    let mut walk = Walk {
        grammar,
        limits,
        seen: &mut seen,
        escaped: 0,
        layout,
    };
    let end = walk.message(start)?;
    check_trailing(&walk.grammar, end)?;
    walk.layout.root = Span::new(start, end);
    let escaped = walk.escaped;
    judge::kind(bytes, limits, layout, escaped)
}

/// JSON of another type than object, or no JSON.
#[cold]
fn not_an_object(grammar: &Grammar<'_>, start: usize) -> Fault {
    let whole = grammar
        .value(start, 0)
        .and_then(|end| check_trailing(grammar, end));
    match whole {
        Err(fault) => fault,
        Ok(()) if grammar.peek(start) == Some(b'[') => Fault::new(Reason::BatchNotAllowed, start),
        Ok(()) => Fault::new(Reason::NotAnObject, start),
    }
}

struct Walk<'a> {
    grammar: Grammar<'a>,
    limits: &'a Limits,
    seen: &'a mut Seen,
    /// The known keys whose values are strings with escapes, one bit each.
    escaped: u32,
    layout: &'a mut Layout,
}

impl Walk<'_> {
    fn message(&mut self, open: usize) -> Result<usize, Fault> {
        self.envelope(open, Level::Message)
    }

    #[inline(never)]
    fn params(&mut self, open: usize) -> Result<usize, Fault> {
        self.envelope(open, Level::Params)
    }

    #[inline(never)]
    fn meta(&mut self, open: usize) -> Result<usize, Fault> {
        self.envelope(open, Level::Meta)
    }

    #[inline(never)]
    fn reference(&mut self, open: usize) -> Result<usize, Fault> {
        self.envelope(open, Level::Ref)
    }

    /// One envelope object. Calls itself for `params` and what is judged in it: three deep at most.
    /// Always inlined, so that each level has a copy of its own with its keys compiled in.
    #[inline(always)]
    fn envelope(&mut self, open: usize, level: Level) -> Result<usize, Fault> {
        self.grammar.check_depth(level.depth(), open)?;
        let mut at = self.grammar.space(open + 1);
        if self.grammar.peek(at) == Some(b'}') {
            return Ok(at + 1);
        }
        let base = self.seen.len();
        let mut known_before = 0u32;
        let mut members = 0u32;
        loop {
            members += 1;
            if members > u32::from(self.limits.members) {
                return Err(Fault::new(Reason::Members, at));
            }
            let rest = self.grammar.bytes.get(at..).unwrap_or_default();
            let (known, value) = match level.at_start(rest) {
                Some((known, length)) => (Some(known), self.grammar.colon(at + length)?),
                None => {
                    let (key, value) = self.grammar.key(at)?;
                    (self.judge_key(at, key, level, base)?, value)
                }
            };
            if let Some(known) = known {
                let bit = 1u32 << known as u32;
                if known_before & bit != 0 {
                    return Err(Fault::new(Reason::Duplicate, at));
                }
                known_before |= bit;
            }
            let end = self.member(level, known, value)?;
            match self.grammar.next(end, b'}')? {
                Some(next) => at = next,
                None => {
                    self.seen.truncate(base);
                    return Ok(self.grammar.space(end) + 1);
                }
            }
        }
    }

    /// Tells a known key, or refuses or remembers another one.
    #[inline(always)]
    fn judge_key(
        &mut self,
        open: usize,
        key: Text,
        level: Level,
        base: usize,
    ) -> Result<Option<Known>, Fault> {
        let raw = self
            .grammar
            .bytes
            .get(open + 1..key.end - 1)
            .unwrap_or_default();
        if key.escaped {
            let decoded = decode_key(raw, open)?;
            return match level.known(&decoded) {
                None => self
                    .judge_other(open, None, &decoded, (level, base))
                    .map(|()| None),
                known => Ok(known),
            };
        }
        match level.known(raw) {
            None => self
                .judge_other(open, Some(open + 1), raw, (level, base))
                .map(|()| None),
            known => Ok(known),
        }
    }

    /// A key without a meaning of its own: its length, its likeness, whether it is new.
    fn judge_other(
        &mut self,
        open: usize,
        at: Option<usize>,
        key: &[u8],
        (level, base): (Level, usize),
    ) -> Result<(), Fault> {
        if key.len() > self.limits.key as usize {
            return Err(Fault::new(Reason::KeyLength, open));
        }
        if level.looks_reserved(key) {
            return Err(Fault::new(Reason::LookAlike, open));
        }
        if !self.seen.insert(base, self.grammar.bytes, at, key) {
            return Err(Fault::new(Reason::Duplicate, open));
        }
        Ok(())
    }

    /// The value of a member; notes its span when it has a slot. Null counts as absent (FRM-09,
    /// FRM-15) but for id, method and jsonrpc, where it is a wrong value.
    #[inline(always)]
    fn member(&mut self, level: Level, known: Option<Known>, at: usize) -> Result<usize, Fault> {
        let Some(known) = known else {
            return self.grammar.value(at, level.depth());
        };
        let first = self.grammar.peek(at);
        let end = match (known, first) {
            (Known::Params, Some(b'{')) => self.params(at)?,
            (Known::Meta, Some(b'{')) => self.meta(at)?,
            (Known::Ref, Some(b'{')) => self.reference(at)?,
            (Known::Result, Some(b'{')) => self.result(at)?,
            // Both shortcuts, this and `at_start`, let the processor go on without waiting for the
            // search of the closing quote.
            (Known::Jsonrpc, _) if self.grammar.starts_with(at, b"\"2.0\"") => at + 5,
            (_, Some(b'"')) => {
                let text = self.grammar.string(at)?;
                self.escaped |= u32::from(text.escaped) << known as u32;
                text.end
            }
            _ => self.grammar.value(at, level.depth())?,
        };
        let null_counts = matches!(known, Known::Jsonrpc | Known::Id | Known::Method);
        if let Some(slot) = self.slot(known)
            && (first != Some(b'n') || null_counts)
        {
            *slot = Span::new(at, end);
        }
        Ok(end)
    }

    fn slot(&mut self, known: Known) -> Option<&mut Span> {
        let layout = &mut *self.layout;
        match known {
            Known::Jsonrpc => Some(&mut layout.jsonrpc),
            Known::Id => Some(&mut layout.id),
            Known::Method => Some(&mut layout.method),
            Known::Params => Some(&mut layout.params),
            Known::Result => Some(&mut layout.result),
            Known::Error => Some(&mut layout.error),
            Known::Name => Some(&mut layout.name),
            Known::Uri => Some(&mut layout.uri),
            Known::Arguments => Some(&mut layout.arguments),
            Known::Meta => Some(&mut layout.meta),
            Known::ProgressToken => Some(&mut layout.progress_token),
            Known::Ref
            | Known::ProtocolVersion
            | Known::ClientInfo
            | Known::ClientCapabilities
            | Known::LogLevel
            | Known::ServerInfo
            | Known::SubscriptionId
            | Known::RelatedTask => None,
        }
    }

    /// A result object: its keys are not judged, only those are noted that this hop looks at, so
    /// that a large result is walked once. Of duplicates the last one counts, as for every
    /// mainstream reader.
    fn result(&mut self, open: usize) -> Result<usize, Fault> {
        self.grammar.check_depth(2, open)?;
        let first = self.grammar.space(open + 1);
        if self.grammar.peek(first) == Some(b'}') {
            return Ok(first + 1);
        }
        let mut at = first;
        loop {
            let (key, value) = self.grammar.key(at)?;
            let is_content = self.is_key(at, key, "content");
            if is_content {
                self.layout.block = Span::default();
                self.layout.block_type = Span::default();
            }
            let end = match self.grammar.peek(value) {
                Some(b'[') if is_content => self.content(value)?,
                _ => self.grammar.value(value, 2)?,
            };
            self.note_result_member(at, key, Span::new(value, end));
            match self.grammar.next(end, b'}')? {
                Some(next) => at = next,
                None => return Ok(self.grammar.space(end) + 1),
            }
        }
    }

    /// The `content` of a result. Most hold one block, however large; its type is asked for and is
    /// noted here, so that nobody walks over the block again.
    fn content(&mut self, open: usize) -> Result<usize, Fault> {
        self.grammar.check_depth(3, open)?;
        let first = self.grammar.space(open + 1);
        if self.grammar.peek(first) != Some(b'{') {
            return self.grammar.value(open, 2);
        }
        let end = self.block(first)?;
        match self.grammar.next(end, b']')? {
            None => {
                self.layout.block = Span::new(first, end);
                Ok(self.grammar.space(end) + 1)
            }
            Some(mut at) => loop {
                let end = self.grammar.value(at, 3)?;
                match self.grammar.next(end, b']')? {
                    Some(next) => at = next,
                    None => return Ok(self.grammar.space(end) + 1),
                }
            },
        }
    }

    /// One block of a content array.
    fn block(&mut self, open: usize) -> Result<usize, Fault> {
        self.grammar.check_depth(4, open)?;
        let first = self.grammar.space(open + 1);
        if self.grammar.peek(first) == Some(b'}') {
            return Ok(first + 1);
        }
        let mut at = first;
        loop {
            let (key, value) = self.grammar.key(at)?;
            let end = self.grammar.value(value, 4)?;
            if self.is_key(at, key, "type") {
                self.layout.block_type = Span::new(value, end);
            }
            match self.grammar.next(end, b'}')? {
                Some(next) => at = next,
                None => return Ok(self.grammar.space(end) + 1),
            }
        }
    }

    /// Whether the key at `open` reads `name`.
    fn is_key(&self, open: usize, key: Text, name: &str) -> bool {
        let raw = self.grammar.bytes.get(open + 1..key.end - 1);
        let raw = raw.unwrap_or_default();
        if key.escaped {
            text::decode_inner(raw).is_ok_and(|decoded| decoded == name)
        } else {
            raw == name.as_bytes()
        }
    }

    #[inline(always)]
    fn note_result_member(&mut self, open: usize, key: Text, value: Span) {
        let is = |name: &str| self.is_key(open, key, name);
        let null = self.grammar.peek(value.start as usize) == Some(b'n');
        let value = if null { Span::default() } else { value };
        if is("content") {
            self.layout.content = value;
        } else if is("isError") {
            self.layout.is_error = value;
        } else if is("structuredContent") {
            self.layout.structured = value;
        } else if is("_meta") {
            self.layout.result_meta = value;
        } else if is("resultType") {
            self.layout.result_type = value;
        }
    }
}

/// The decoded form of a key with escapes.
#[cold]
fn decode_key(raw: &[u8], at: usize) -> Result<Vec<u8>, Fault> {
    let decoded = text::decode_inner(raw).map_err(|_| Fault::new(Reason::Surrogate, at))?;
    if decoded.contains('\0') {
        return Err(Fault::new(Reason::NulInKey, at));
    }
    Ok(decoded.into_owned().into_bytes())
}
