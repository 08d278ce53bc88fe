//! Why a body is refused: one closed enum with the JSON-RPC code, HTTP status and metric reason of
//! each case. The text is about the shape of the input and never quotes it.

use crate::Id;

/// Why bytes are not a message that the gateway takes.
///
/// The display text is meant for whoever sent the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// FRM-02: not UTF-8.
    #[error("the body is not valid UTF-8")]
    NotUtf8,
    /// FRM-02: begins with a byte order mark.
    #[error("the body begins with a byte order mark")]
    Bom,
    /// Not JSON by RFC 8259.
    #[error("the body is not valid JSON")]
    Syntax,
    /// Bytes after the end of the value.
    #[error("there are bytes after the end of the JSON value")]
    Trailing,
    /// FRM-23: nested too deeply.
    #[error("the message is nested too deeply")]
    Depth,
    /// FRM-23: a number token is too long.
    #[error("a number is too long")]
    Number,
    /// FRM-23: a key occurs twice where the gateway decides by it.
    #[error("a key occurs twice in the envelope, in params or in _meta")]
    Duplicate,
    /// A key that differs from a reserved one only by case or by a folding letter.
    #[error("a key differs from a reserved key only by letter case")]
    LookAlike,
    /// FRM-23: U+0000 in a key.
    #[error("a key contains U+0000")]
    NulInKey,
    /// A key of an envelope object is too long.
    #[error("a key of the envelope, of params or of _meta is too long")]
    KeyLength,
    /// A lone surrogate in a key or in a string that the gateway decides by.
    #[error("a lone surrogate in a key or in a string that the gateway reads")]
    Surrogate,
    /// FRM-23: too many members.
    #[error("the envelope, params or _meta has too many members")]
    Members,
    /// FRM-03: the id is not a string or integer of allowed length.
    #[error("id must be a string or an integer of allowed length")]
    Id,
    /// The method is not a string of allowed length.
    #[error("method must be a string of allowed length")]
    Method,
    /// FRM-01: `jsonrpc` is missing or not "2.0".
    #[error("jsonrpc must be \"2.0\"")]
    Jsonrpc,
    /// FRM-15: `params` is not an object.
    #[error("params must be an object")]
    Params,
    /// FRM-15: `params._meta` is not an object.
    #[error("_meta must be an object")]
    Meta,
    /// MET-08: `_meta` is too large.
    #[error("_meta is too large")]
    MetaSize,
    /// FRM-09: not exactly one of method, result and error.
    #[error("a message has exactly one of method, result and error")]
    Shape,
    /// The body is JSON, but no object.
    #[error("the body must be one JSON object")]
    NotAnObject,
    /// FRM-18: an array where one message is expected.
    #[error("batches are not allowed here: the body must be one JSON object")]
    BatchNotAllowed,
    /// BAT-03: an empty array.
    #[error("the batch is empty")]
    BatchEmpty,
    /// BAT-07: too many elements.
    #[error("the batch has more than 64 elements")]
    BatchTooLong,
    /// BAT-04: an element is no object.
    #[error("every element of a batch must be an object")]
    BatchElement,
    /// BAT-02: `initialize` in a batch.
    #[error("initialize must not be part of a batch")]
    BatchInitialize,
    /// BAT-01: requests and responses in one batch.
    #[error("a batch must not mix requests and responses")]
    BatchMixed,
    /// FRM-23: larger than the cap.
    #[error("the message is larger than {limit} bytes")]
    TooLarge {
        /// The cap, in bytes.
        limit: usize,
    },
}

impl Reason {
    /// The JSON-RPC error code of the answer.
    pub fn code(self) -> i64 {
        match self {
            Reason::NotUtf8 | Reason::Bom | Reason::Syntax | Reason::Trailing => -32700,
            Reason::Params | Reason::Meta => -32602,
            Reason::Depth
            | Reason::Number
            | Reason::Duplicate
            | Reason::LookAlike
            | Reason::NulInKey
            | Reason::KeyLength
            | Reason::Surrogate
            | Reason::Members
            | Reason::Id
            | Reason::Method
            | Reason::Jsonrpc
            | Reason::MetaSize
            | Reason::Shape
            | Reason::NotAnObject
            | Reason::BatchNotAllowed
            | Reason::BatchEmpty
            | Reason::BatchTooLong
            | Reason::BatchElement
            | Reason::BatchInitialize
            | Reason::BatchMixed
            | Reason::TooLarge { .. } => -32600,
        }
    }

    /// The HTTP status of the answer: 413 for size, else 400.
    pub fn http_status(self) -> u16 {
        if matches!(self, Reason::TooLarge { .. }) {
            413
        } else {
            400
        }
    }

    /// True when the bytes are no JSON at all, so that nothing in them can be trusted.
    pub fn is_unreadable(self) -> bool {
        self.code() == -32700
    }

    /// A short name from a closed set, for metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Reason::NotUtf8 => "not_utf8",
            Reason::Bom => "bom",
            Reason::Syntax => "syntax",
            Reason::Trailing => "trailing",
            Reason::Depth => "depth",
            Reason::Number => "number",
            Reason::Duplicate => "duplicate_key",
            Reason::LookAlike => "look_alike_key",
            Reason::NulInKey => "nul_in_key",
            Reason::KeyLength => "key_length",
            Reason::Surrogate => "surrogate",
            Reason::Members => "members",
            Reason::Id => "id",
            Reason::Method => "method",
            Reason::Jsonrpc => "jsonrpc",
            Reason::Params => "params",
            Reason::Meta => "meta",
            Reason::MetaSize => "meta_size",
            Reason::Shape => "shape",
            Reason::NotAnObject => "not_an_object",
            Reason::BatchNotAllowed => "batch_not_allowed",
            Reason::BatchEmpty => "batch_empty",
            Reason::BatchTooLong => "batch_too_long",
            Reason::BatchElement => "batch_element",
            Reason::BatchInitialize => "batch_initialize",
            Reason::BatchMixed => "batch_mixed",
            Reason::TooLarge { .. } => "too_large",
        }
    }
}

/// A refused body.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct FrameError {
    /// Why.
    pub reason: Reason,
    /// Where, in bytes from the start of the body; 0 when the whole is meant.
    pub offset: usize,
    /// FRM-21: the id of the message, when it could be read.
    pub id: Option<Id>,
}

impl FrameError {
    /// A refusal of the whole body, with no id.
    pub fn new(reason: Reason) -> FrameError {
        FrameError {
            reason,
            offset: 0,
            id: None,
        }
    }
}

/// A refusal inside the scanner: reason and place, no id yet. Boxed, so that the scanner's results
/// fit in two registers; only refusals pay for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault(Box<(Reason, usize)>);

impl Fault {
    #[cold]
    #[inline(never)]
    pub(crate) fn new(reason: Reason, at: usize) -> Fault {
        Fault(Box::new((reason, at)))
    }

    pub(crate) fn reason(&self) -> Reason {
        self.0.0
    }
}

impl From<Fault> for FrameError {
    fn from(fault: Fault) -> FrameError {
        let (reason, offset) = *fault.0;
        FrameError {
            reason,
            offset,
            id: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;
    use std::collections::HashSet;

    const ALL: [Reason; 27] = [
        Reason::NotUtf8,
        Reason::Bom,
        Reason::Syntax,
        Reason::Trailing,
        Reason::Depth,
        Reason::Number,
        Reason::Duplicate,
        Reason::LookAlike,
        Reason::NulInKey,
        Reason::KeyLength,
        Reason::Surrogate,
        Reason::Members,
        Reason::Id,
        Reason::Method,
        Reason::Jsonrpc,
        Reason::Params,
        Reason::Meta,
        Reason::MetaSize,
        Reason::Shape,
        Reason::NotAnObject,
        Reason::BatchNotAllowed,
        Reason::BatchEmpty,
        Reason::BatchTooLong,
        Reason::BatchElement,
        Reason::BatchInitialize,
        Reason::BatchMixed,
        Reason::TooLarge { limit: 4 },
    ];

    #[test]
    fn every_reason_has_a_label_and_a_text_of_its_own() {
        let labels: HashSet<_> = ALL.iter().map(|reason| reason.label()).collect();
        let texts: HashSet<_> = ALL.iter().map(|reason| reason.to_string()).collect();
        assert_eq!((labels.len(), texts.len()), (ALL.len(), ALL.len()));
    }

    #[test]
    fn frm_23_only_size_is_413_and_only_what_is_no_json_is_a_parse_error() {
        let with = |code: i64| {
            ALL.iter()
                .filter(move |reason| reason.code() == code)
                .count()
        };
        assert_eq!((with(-32700), with(-32602), with(-32600)), (4, 2, 21));
        assert!(
            ALL.iter()
                .filter(|reason| reason.is_unreadable())
                .all(|r| r.code() == -32700)
        );
        let large: Vec<_> = ALL
            .iter()
            .filter(|reason| reason.http_status() == 413)
            .collect();
        assert_eq!(large, [&Reason::TooLarge { limit: 4 }]);
    }
}
