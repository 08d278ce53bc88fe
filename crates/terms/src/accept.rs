//! Which forms of answer a client accepts: a fact of the request's `Accept` headers.

/// The forms of answer that a client accepts. A client that says nothing accepts both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepts {
    /// One JSON object (`application/json`).
    pub json: bool,
    /// An event stream (`text/event-stream`).
    pub sse: bool,
    /// Whether the client named `text/event-stream` itself, not by a wildcard or by silence: what
    /// tells a client that opens a stream from one that only looks at an address.
    pub sse_named: bool,
    /// Whether the client would rather have a stream: it names both forms, the stream with the
    /// greater weight, or first at the same weight.
    pub sse_first: bool,
}

impl Accepts {
    /// A client that accepts everything and names nothing.
    pub const ANY: Accepts = Accepts {
        json: true,
        sse: true,
        sse_named: false,
        sse_first: false,
    };

    /// Whether an answer that could be either form should be a stream.
    pub const fn wants_stream(self) -> bool {
        self.sse && (!self.json || self.sse_first)
    }

    /// Whether no form we have is acceptable.
    pub const fn nothing(self) -> bool {
        !self.json && !self.sse
    }
}
