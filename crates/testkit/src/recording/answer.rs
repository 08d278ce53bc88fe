//! What a recording upstream can answer: well-formed, slow, endless, or none.

use std::{fmt, future::Future, pin::Pin};

use anyhow::Context;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Recorded;
use crate::sse;

/// Pieces a stream may hold that the peer has not read.
const PIECES: usize = 64;

/// One answer of the script.
pub enum Answer {
    /// A whole response; its length is added.
    Full {
        /// Status code.
        status: u16,
        /// Fields, in order.
        fields: Vec<(String, String)>,
        /// Body.
        body: Bytes,
    },
    /// A chunked response whose body the test writes; see [`Answer::stream`].
    Stream {
        /// Status code.
        status: u16,
        /// Fields, in order.
        fields: Vec<(String, String)>,
        /// Where the body comes from.
        pieces: mpsc::Receiver<Piece>,
    },
    /// A response whose body repeats this piece for ever.
    Endless(Bytes),
    /// These bytes instead of HTTP; then the connection closes.
    Bytes(Bytes),
    /// Nothing, while the connection stays open.
    Hang,
    /// Nothing, and the connection closes.
    Close,
    /// Whatever the future says, when it says it.
    Later(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Full { .. } => "Full",
            Self::Stream { .. } => "Stream",
            Self::Endless(_) => "Endless",
            Self::Bytes(_) => "Bytes",
            Self::Hang => "Hang",
            Self::Close => "Close",
            Self::Later(_) => "Later",
        })
    }
}

/// A part of a streamed body, or its premature end.
#[derive(Debug)]
pub enum Piece {
    /// Bytes to send, as one chunk.
    Bytes(Bytes),
    /// Close the connection without ending the body.
    Break,
}

impl Answer {
    /// A JSON response.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::whole(status, "application/json", body.to_string())
    }

    /// A text response.
    #[must_use]
    pub fn text(status: u16, body: &str) -> Self {
        Self::whole(status, "text/plain", body.to_owned())
    }

    /// A response without a body.
    #[must_use]
    pub fn empty(status: u16) -> Self {
        Self::Full {
            status,
            fields: Vec::new(),
            body: Bytes::new(),
        }
    }

    fn whole(status: u16, kind: &str, body: String) -> Self {
        Self::Full {
            status,
            fields: vec![("content-type".to_owned(), kind.to_owned())],
            body: body.into(),
        }
    }

    /// The JSON-RPC result of a request, as JSON.
    #[must_use]
    pub fn result(request: &Recorded, result: &Value) -> Self {
        Self::json(
            200,
            &json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "result": result }),
        )
    }

    /// The JSON-RPC error of a request, as JSON.
    #[must_use]
    pub fn error(request: &Recorded, status: u16, code: i64, message: &str) -> Self {
        let error = json!({ "code": code, "message": message });
        Self::json(
            status,
            &json!({ "jsonrpc": "2.0", "id": request.rpc_id(), "error": error }),
        )
    }

    /// A whole event stream: these messages, then its end.
    #[must_use]
    pub fn events<'a>(messages: impl IntoIterator<Item = &'a Value>) -> Self {
        let body: String = messages
            .into_iter()
            .map(|message| sse::encode(None, &message.to_string()))
            .collect();
        Self::whole(200, "text/event-stream", body)
    }

    /// An event stream that the test writes through the handle. The head goes
    /// out at once.
    #[must_use]
    pub fn stream() -> (AnswerStream, Self) {
        let (sender, pieces) = mpsc::channel(PIECES);
        let fields = vec![
            ("content-type".to_owned(), "text/event-stream".to_owned()),
            ("cache-control".to_owned(), "no-cache".to_owned()),
        ];
        (
            AnswerStream { pieces: sender },
            Self::Stream {
                status: 200,
                fields,
                pieces,
            },
        )
    }

    /// Adds a field to a response that has some.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        if let Self::Full { fields, .. } | Self::Stream { fields, .. } = &mut self {
            fields.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// An answer that waits for a future.
    #[must_use]
    pub fn later(answer: impl Future<Output = Self> + Send + 'static) -> Self {
        Self::Later(Box::pin(answer))
    }
}

/// The writing end of a streamed answer. Dropping it ends the body properly.
#[derive(Debug)]
pub struct AnswerStream {
    pieces: mpsc::Sender<Piece>,
}

impl AnswerStream {
    /// Sends a message as an event without an id.
    ///
    /// # Errors
    ///
    /// The client has gone.
    pub async fn message(&self, message: &Value) -> anyhow::Result<()> {
        self.bytes(sse::encode(None, &message.to_string())).await
    }

    /// Sends an event with an id.
    ///
    /// # Errors
    ///
    /// The client has gone.
    pub async fn event(&self, id: &str, data: &str) -> anyhow::Result<()> {
        self.bytes(sse::encode(Some(id), data)).await
    }

    /// Sends bytes, as one chunk.
    ///
    /// # Errors
    ///
    /// The client has gone.
    pub async fn bytes(&self, bytes: impl Into<Bytes>) -> anyhow::Result<()> {
        self.pieces
            .send(Piece::Bytes(bytes.into()))
            .await
            .ok()
            .context("the client has gone")
    }

    /// Closes the connection in the middle of the body.
    pub async fn break_off(self) {
        // A client that has gone needs no breaking off.
        self.pieces.send(Piece::Break).await.ok();
    }

    /// Waits until the client closes the connection.
    pub async fn gone(&self) {
        self.pieces.closed().await;
    }
}
