//! One message: a validated body with the spans of its parts, and the id as the exact token it was.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::FrameError;
use crate::json::{self, Elements, Landmarks, Members};
use crate::judge;
use crate::shape::{self, Layout, present};
use crate::text;
use crate::{Limits, Span};

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// It has a method and an id.
    Request,
    /// It has a method and no id.
    Notification,
    /// It has a result or an error.
    Response,
}

/// One whole scanned JSON-RPC message.
///
/// A handle: cheap to clone, and to hand from stage to stage. Every span that its methods return refers
/// to [`Frame::bytes`].
#[derive(Clone)]
pub struct Frame(Arc<Scanned>);

/// The bytes and a small table of spans.
struct Scanned {
    bytes: Bytes,
    layout: Layout,
    kind: Kind,
}

/// The members of an error object as they are; whether they are as they should be is FRM-10.
#[derive(Clone, Debug)]
pub struct ErrorParts<'a> {
    /// `code`, when it is an integer.
    pub code: Option<i64>,
    /// `message`, when it is a string; else empty.
    pub message: Cow<'a, str>,
    /// `data`, when present and not null.
    pub data: Option<Span>,
}

// === impl Frame ===

impl Frame {
    /// Reads exactly one JSON-RPC message.
    ///
    /// # Errors
    /// Any breach of the JSON grammar, the limits, or the shape of a message; with the id, when it
    /// could be read and the bytes are JSON.
    pub fn parse(bytes: Bytes, limits: &Limits) -> Result<Frame, FrameError> {
        let mut layout = Layout::default();
        match shape::read(&bytes, limits, &mut layout) {
            Ok(kind) => Ok(Frame(Arc::new(Scanned {
                bytes,
                layout,
                kind,
            }))),
            Err(fault) if fault.reason().is_unreadable() => Err(fault.into()),
            Err(fault) => Err(FrameError {
                id: judge::recover_id(&bytes, limits),
                ..FrameError::from(fault)
            }),
        }
    }

    /// The message as it came, surrounding whitespace included.
    pub fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    /// The raw text of a span.
    pub fn text(&self, span: Span) -> &[u8] {
        self.0.bytes.get(span.range()).unwrap_or_default()
    }

    /// The raw text of a span as a slice that shares the message's memory.
    pub fn shared(&self, span: Span) -> Bytes {
        if self.0.bytes.get(span.range()).is_none() {
            return Bytes::new();
        }
        self.0.bytes.slice(span.range())
    }

    /// Request, notification or response.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The id; a response with an error may lack it.
    pub fn id(&self) -> Option<Id> {
        let span = present(self.0.layout.id)?;
        (self.text(span).first() != Some(&b'n')).then(|| Id(self.shared(span)))
    }

    /// The span of the id, null or not.
    pub(crate) fn id_span(&self) -> Option<Span> {
        present(self.0.layout.id)
    }

    /// The method, decoded; none for responses.
    pub fn method(&self) -> Option<Cow<'_, str>> {
        self.string(present(self.0.layout.method)?)
    }

    /// The span of the method token, quotes included.
    pub fn method_span(&self) -> Option<Span> {
        present(self.0.layout.method)
    }

    /// The `params` object. Null counts as absent (FRM-15); none for responses.
    pub fn params(&self) -> Option<Span> {
        self.if_call(self.0.layout.params)
    }

    /// `params.name`, any type but null.
    pub fn name(&self) -> Option<Span> {
        self.if_call(self.0.layout.name)
    }

    /// `params.uri`, any type but null.
    pub fn uri(&self) -> Option<Span> {
        self.if_call(self.0.layout.uri)
    }

    /// `params.arguments`, any type but null.
    pub fn arguments(&self) -> Option<Span> {
        self.if_call(self.0.layout.arguments)
    }

    /// The `params._meta` object.
    pub fn meta(&self) -> Option<Span> {
        self.if_call(self.0.layout.meta)
    }

    /// `params._meta.progressToken`, any type but null.
    pub fn progress_token(&self) -> Option<Span> {
        self.if_call(self.0.layout.progress_token)
    }

    /// The result of a response.
    pub fn result(&self) -> Option<Span> {
        present(self.0.layout.result)
    }

    /// `_meta` of the result object, any type but null.
    pub fn result_meta(&self) -> Option<Span> {
        present(self.0.layout.result_meta)
    }

    /// `resultType` of the result object, any type but null.
    pub fn result_type(&self) -> Option<Span> {
        present(self.0.layout.result_type)
    }

    /// `content` of the result object, any type but null.
    pub fn result_content(&self) -> Option<Span> {
        present(self.0.layout.content)
    }

    /// The `type` of the one object in `content`, where that is all it holds: known without
    /// another walk over a block that may be large.
    pub fn only_block_type(&self) -> Option<Span> {
        present(self.0.layout.block)?;
        present(self.0.layout.block_type)
    }

    /// `structuredContent` of the result object, any type but null.
    pub fn result_structured(&self) -> Option<Span> {
        present(self.0.layout.structured)
    }

    /// Whether the result object says `isError`.
    pub fn result_is_error(&self) -> bool {
        self.text(self.0.layout.is_error) == b"true"
    }

    /// The error of a response.
    pub fn error(&self) -> Option<Span> {
        present(self.0.layout.error)
    }

    /// Code, message and data of the error of a response.
    pub fn error_parts(&self) -> Option<ErrorParts<'_>> {
        let error = self.error()?;
        let code = self
            .member(error, "code")
            .and_then(|span| json::integer(self.text(span)));
        let message = self
            .member(error, "message")
            .and_then(|span| self.string(span));
        let data = self
            .member(error, "data")
            .filter(|span| self.text(*span) != b"null");
        Some(ErrorParts {
            code,
            message: message.unwrap_or_default(),
            data,
        })
    }

    /// The message object itself.
    pub fn root(&self) -> Span {
        self.0.layout.root
    }

    /// The members of an object of this message; none when `object` is not the span of an object.
    pub fn members(&self, object: Span) -> Members<'_> {
        Members::new(&self.0.bytes, object, self.landmarks())
    }

    /// The values of an array of this message; none when `array` is not the span of an array.
    pub fn elements(&self, array: Span) -> Elements<'_> {
        Elements::new(&self.0.bytes, array)
    }

    /// The value of a member of an object of this message. Of duplicates the last one counts.
    pub fn member(&self, object: Span, key: &str) -> Option<Span> {
        self.members(object).find_last(key)
    }

    /// The decoded text of a string; none for another type and for a string with half of a surrogate
    /// pair, which has no text.
    pub fn string(&self, span: Span) -> Option<Cow<'_, str>> {
        text::decode(self.text(span)).ok()
    }

    /// The value of a member of `params._meta`.
    pub fn meta_member(&self, key: &str) -> Option<Span> {
        self.member(self.meta()?, key)
    }

    fn if_call(&self, span: Span) -> Option<Span> {
        present(span).filter(|_| self.0.kind != Kind::Response)
    }

    /// Large parts whose ends are known, so that a walk need not scan them again.
    fn landmarks(&self) -> Landmarks {
        let parts = &self.0.layout;
        [
            parts.params,
            parts.arguments,
            parts.meta,
            parts.result,
            parts.result_meta,
            parts.content,
            parts.structured,
        ]
    }
}

impl fmt::Debug for Frame {
    /// Kind, method and size: never the contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("kind", &self.0.kind)
            .field("method", &self.method())
            .field("len", &self.0.bytes.len())
            .finish()
    }
}

/// A request id: the exact JSON token, so that it is echoed byte for byte (FRM-04).
///
/// Ids are equal when they are the same JSON value spelled with or without escapes: `"a"` equals
/// `"\u0061"`, but `1` and `"1"` differ, and integers compare by their digits.
#[derive(Clone)]
pub struct Id(Bytes);

// === impl Id ===

impl Id {
    /// The token.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The token as shared bytes.
    pub fn token(&self) -> Bytes {
        self.0.clone()
    }

    /// An id from a JSON token of any length; none unless it is a string or an integer.
    pub fn from_token(token: Bytes) -> Option<Id> {
        let text = simdutf8::basic::from_utf8(&token).is_ok();
        (text && Id::is_token(&token, usize::MAX)).then_some(Id(token))
    }

    /// A string id.
    pub fn string(text: &str) -> Id {
        Id(Bytes::from(json::quote(text)))
    }

    /// An integer id.
    pub fn integer(number: i64) -> Id {
        Id(Bytes::from(number.to_string()))
    }

    /// The text of a string id; none for an integer.
    pub fn as_str(&self) -> Option<Cow<'_, str>> {
        text::decode(&self.0).ok()
    }

    pub(crate) fn copy_from(token: &[u8]) -> Id {
        Id(Bytes::copy_from_slice(token))
    }

    /// FRM-03: a string that has a text, or an integer without fraction and exponent.
    pub(crate) fn is_token(token: &[u8], limit: usize) -> bool {
        token.len() <= limit
            && match token.first() {
                Some(b'"') => {
                    text::is_plain(token) || (json::is_string(token) && text::decode(token).is_ok())
                }
                Some(b'-' | b'0'..=b'9') => json::is_plain_integer(token),
                _ => false,
            }
    }

    /// What equality and hash go by: the token, its string content decoded.
    fn value(&self) -> (bool, Cow<'_, [u8]>) {
        match text::decode(&self.0) {
            Ok(Cow::Borrowed(text)) => (true, Cow::Borrowed(text.as_bytes())),
            Ok(Cow::Owned(text)) => (true, Cow::Owned(text.into_bytes())),
            Err(_) => (false, Cow::Borrowed(self.as_bytes())),
        }
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Id) -> bool {
        self.0 == other.0 || self.value() == other.value()
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value().hash(state);
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}
