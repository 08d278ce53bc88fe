//! The grammar: RFC 8259 over validated UTF-8, one pass, no recursion, no allocation.
//!
//! [`Grammar`] knows JSON and nothing of JSON-RPC: each method takes the offset where something
//! begins and gives the offset behind it. `shape` drives it over the envelope of a message. Nesting
//! is kept in a bit stack of fixed size, so a depth bomb costs neither stack nor heap.

use crate::error::{Fault, Reason};
use crate::limits::{DEPTH_CEILING, Limits};
use crate::simd::string_stop;

/// The text being scanned, with the bounds that hold everywhere in it.
#[derive(Clone, Copy)]
pub(crate) struct Grammar<'a> {
    pub(crate) bytes: &'a [u8],
    depth: usize,
    number: usize,
}

/// A scanned string token.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// Offset behind the closing quote.
    pub(crate) end: usize,
    /// True when the token contains escapes.
    pub(crate) escaped: bool,
}

/// What follows an offset inside a value.
enum Step {
    /// A value begins here.
    Value(usize),
    /// A value has ended here.
    Ended(usize),
}

/// The kinds of the open containers, one bit each: 1 is an object. The innermost up to 64 are in
/// `top`, so that ordinary messages never touch the rest.
struct Stack {
    top: u64,
    below: [u64; STACK_WORDS],
    depth: usize,
}

const STACK_WORDS: usize = DEPTH_CEILING as usize / 64;

impl Stack {
    fn new() -> Stack {
        Stack {
            top: 0,
            below: [0; STACK_WORDS],
            depth: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, object: bool) {
        if self.depth.is_multiple_of(64)
            && let Some(word) = self.below.get_mut(self.depth / 64)
        {
            *word = self.top;
        }
        self.top = self.top << 1 | u64::from(object);
        self.depth += 1;
    }

    #[inline(always)]
    fn pop(&mut self) {
        self.depth -= 1;
        self.top >>= 1;
        if self.depth.is_multiple_of(64)
            && let Some(word) = self.below.get(self.depth / 64)
        {
            self.top = *word;
        }
    }

    #[inline(always)]
    fn in_object(&self) -> bool {
        self.top & 1 == 1
    }
}

impl<'a> Grammar<'a> {
    /// A scanner over `bytes`, which must be valid UTF-8 already.
    pub(crate) fn new(bytes: &'a [u8], limits: &Limits) -> Grammar<'a> {
        Grammar {
            bytes,
            depth: usize::from(limits.depth.min(DEPTH_CEILING)),
            number: limits.number as usize,
        }
    }

    /// A scanner over text that was validated before: no bound but the size of the stack.
    pub(crate) fn over_valid(bytes: &'a [u8]) -> Grammar<'a> {
        Grammar {
            bytes,
            depth: usize::from(DEPTH_CEILING),
            number: usize::MAX,
        }
    }

    /// The byte at an offset.
    #[inline(always)]
    pub(crate) fn peek(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// True when the text at an offset begins with `token`.
    #[inline(always)]
    pub(crate) fn starts_with(&self, at: usize, token: &[u8]) -> bool {
        self.bytes
            .get(at..)
            .is_some_and(|rest| rest.starts_with(token))
    }

    /// Skips insignificant whitespace.
    #[inline(always)]
    pub(crate) fn space(&self, from: usize) -> usize {
        let mut at = from;
        while matches!(self.peek(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            at += 1;
        }
        at
    }

    /// Refuses when `depth` containers are more than allowed.
    #[inline(always)]
    pub(crate) fn check_depth(&self, depth: usize, at: usize) -> Result<(), Fault> {
        if depth > self.depth {
            Err(Fault::new(Reason::Depth, at))
        } else {
            Ok(())
        }
    }

    /// The string whose opening quote is at `open`.
    #[inline(always)]
    pub(crate) fn string(&self, open: usize) -> Result<Text, Fault> {
        if self.peek(open) != Some(b'"') {
            return Err(Fault::new(Reason::Syntax, open));
        }
        let mut escaped = false;
        let mut at = string_stop(self.bytes, open + 1);
        loop {
            match self.peek(at) {
                Some(b'"') => {
                    return Ok(Text {
                        end: at + 1,
                        escaped,
                    });
                }
                Some(b'\\') => at = string_stop(self.bytes, self.escape(at)?),
                _ => return Err(Fault::new(Reason::Syntax, at)),
            }
            escaped = true;
        }
    }

    /// The escape whose backslash is at `at`. Surrogates need not pair up here.
    #[inline]
    fn escape(&self, at: usize) -> Result<usize, Fault> {
        match self.peek(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => match self.bytes.get(at + 2..at + 6) {
                Some(hex) if hex.iter().all(u8::is_ascii_hexdigit) => Ok(at + 6),
                _ => Err(Fault::new(Reason::Syntax, at)),
            },
            _ => Err(Fault::new(Reason::Syntax, at)),
        }
    }

    /// A key, its colon and the space around; gives the key token and the offset of the value.
    #[inline(always)]
    pub(crate) fn key(&self, open: usize) -> Result<(Text, usize), Fault> {
        let key = self.string(open)?;
        Ok((key, self.colon(key.end)?))
    }

    /// The colon behind a key and the space around it; gives the offset of the value.
    #[inline(always)]
    pub(crate) fn colon(&self, key_end: usize) -> Result<usize, Fault> {
        let colon = self.space(key_end);
        if self.peek(colon) != Some(b':') {
            return Err(Fault::new(Reason::Syntax, colon));
        }
        Ok(self.space(colon + 1))
    }

    /// One whole value of any kind, inside `outer` open containers; gives the offset behind it.
    #[inline(always)]
    pub(crate) fn value(&self, at: usize, outer: usize) -> Result<usize, Fault> {
        match self.peek(at) {
            Some(b'"') => Ok(self.string(at)?.end),
            Some(b'{' | b'[') => self.container(at, outer),
            _ => self.scalar(at),
        }
    }

    /// One object or array. Iterative: the only memory is the bit stack.
    fn container(&self, open: usize, outer: usize) -> Result<usize, Fault> {
        let mut stack = Stack::new();
        let mut at = open;
        loop {
            let step = match self.start(at, outer, &mut stack)? {
                Step::Ended(end) => self.ended(end, &mut stack)?,
                step @ Step::Value(_) => step,
            };
            match step {
                Step::Value(next) => at = next,
                Step::Ended(end) => return Ok(end),
            }
        }
    }

    /// The beginning of a value: enters a container or passes a scalar.
    #[inline(always)]
    fn start(&self, at: usize, outer: usize, stack: &mut Stack) -> Result<Step, Fault> {
        let (object, close) = match self.peek(at) {
            Some(b'{') => (true, b'}'),
            Some(b'[') => (false, b']'),
            Some(b'"') => return Ok(Step::Ended(self.string(at)?.end)),
            _ => return Ok(Step::Ended(self.scalar(at)?)),
        };
        self.check_depth(outer + stack.depth + 1, at)?;
        let first = self.space(at + 1);
        if self.peek(first) == Some(close) {
            return Ok(Step::Ended(first + 1));
        }
        stack.push(object);
        if object {
            Ok(Step::Value(self.key(first)?.1))
        } else {
            Ok(Step::Value(first))
        }
    }

    /// Behind a value: goes on to the next one, or closes containers as long as they end here.
    #[inline(always)]
    fn ended(&self, end: usize, stack: &mut Stack) -> Result<Step, Fault> {
        let mut at = end;
        while stack.depth > 0 {
            at = self.space(at);
            let object = stack.in_object();
            match self.peek(at) {
                Some(b',') if object => {
                    return Ok(Step::Value(self.key(self.space(at + 1))?.1));
                }
                Some(b',') => return Ok(Step::Value(self.space(at + 1))),
                Some(b'}') if object => {}
                Some(b']') if !object => {}
                _ => return Err(Fault::new(Reason::Syntax, at)),
            }
            at += 1;
            stack.pop();
        }
        Ok(Step::Ended(at))
    }

    /// A number or one of the three literals.
    #[inline(always)]
    fn scalar(&self, at: usize) -> Result<usize, Fault> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        match rest.first() {
            Some(b'-' | b'0'..=b'9') => self.number(at),
            Some(b't') if rest.starts_with(b"true") => Ok(at + 4),
            Some(b'f') if rest.starts_with(b"false") => Ok(at + 5),
            Some(b'n') if rest.starts_with(b"null") => Ok(at + 4),
            _ => Err(Fault::new(Reason::Syntax, at)),
        }
    }

    #[inline(always)]
    fn number(&self, start: usize) -> Result<usize, Fault> {
        let integer = start + usize::from(self.peek(start) == Some(b'-'));
        let mut at = match self.peek(integer) {
            Some(b'0') => integer + 1,
            _ => self.digits(integer)?,
        };
        if self.peek(at) == Some(b'.') {
            at = self.digits(at + 1)?;
        }
        if matches!(self.peek(at), Some(b'e' | b'E')) {
            let signed = matches!(self.peek(at + 1), Some(b'+' | b'-'));
            at = self.digits(at + 1 + usize::from(signed))?;
        }
        if at - start > self.number {
            return Err(Fault::new(Reason::Number, start));
        }
        Ok(at)
    }

    /// One or more digits.
    #[inline(always)]
    fn digits(&self, start: usize) -> Result<usize, Fault> {
        let mut at = start;
        while self.peek(at).is_some_and(|byte| byte.is_ascii_digit()) {
            at += 1;
        }
        if at == start {
            Err(Fault::new(Reason::Syntax, at))
        } else {
            Ok(at)
        }
    }

    /// Behind a member or element: the offset of the next one, or of the end behind `close`.
    #[inline(always)]
    pub(crate) fn next(&self, end: usize, close: u8) -> Result<Option<usize>, Fault> {
        let at = self.space(end);
        match self.peek(at) {
            Some(b',') => Ok(Some(self.space(at + 1))),
            Some(byte) if byte == close => Ok(None),
            _ => Err(Fault::new(Reason::Syntax, at)),
        }
    }
}

/// Refuses what is not UTF-8 without a byte order mark, and what offsets of 32 bits cannot reach.
pub(crate) fn check_encoding(bytes: &[u8]) -> Result<(), Fault> {
    const LARGEST: usize = u32::MAX as usize;
    if bytes.len() > LARGEST {
        return Err(Fault::new(Reason::TooLarge { limit: LARGEST }, 0));
    }
    if simdutf8::basic::from_utf8(bytes).is_err() {
        let valid = simdutf8::compat::from_utf8(bytes).map_or_else(|e| e.valid_up_to(), str::len);
        return Err(Fault::new(Reason::NotUtf8, valid));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(Fault::new(Reason::Bom, 0));
    }
    Ok(())
}

/// One whole JSON text: exactly one value with nothing but whitespace around it.
pub(crate) fn check_text(bytes: &[u8], limits: &Limits) -> Result<(), Fault> {
    check_encoding(bytes)?;
    let grammar = Grammar::new(bytes, limits);
    let end = grammar.value(grammar.space(0), 0)?;
    check_trailing(&grammar, end)
}

/// Nothing but whitespace behind the value.
pub(crate) fn check_trailing(grammar: &Grammar<'_>, end: usize) -> Result<(), Fault> {
    let at = grammar.space(end);
    if at == grammar.bytes.len() {
        Ok(())
    } else {
        Err(Fault::new(Reason::Trailing, at))
    }
}
