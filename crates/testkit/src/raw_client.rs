//! A client of bytes: sends exactly what a test writes, reads answers whole or
//! event by event, and sees connections close. One connection, no redirects,
//! no retries, no opinion.

use std::{collections::VecDeque, fmt::Display, future::Future, net::SocketAddr};

use anyhow::{Context, bail};
use bytes::Bytes;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::{
    PATIENCE,
    sse::{SseEvent, SseReader},
    wire::{Framing, Head, status},
};

/// A request in the making. Fields go out in the order they were added, with
/// the names as written; nothing is added but `Content-Length` before a body.
#[derive(Debug, Clone)]
pub struct RawRequest {
    start: String,
    fields: Vec<(String, String)>,
    body: Option<Bytes>,
}

impl RawRequest {
    /// A request without any field.
    #[must_use]
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            start: format!("{method} {target} HTTP/1.1"),
            fields: Vec::new(),
            body: None,
        }
    }

    /// An MCP POST as a correct client writes it, without revision and session.
    #[must_use]
    pub fn mcp(host: impl Display, target: &str, body: &Value) -> Self {
        Self::new("POST", target)
            .field("Host", host)
            .field("Content-Type", "application/json")
            .field("Accept", "application/json, text/event-stream")
            .body(body.to_string())
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Display) -> Self {
        self.fields.push((name.to_owned(), value.to_string()));
        self
    }

    /// Removes all fields of a name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.fields
            .retain(|(field, _)| !field.eq_ignore_ascii_case(name));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{}\r\n", self.start);
        for (name, value) in &self.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct RawResponse {
    /// Its status code.
    pub status: u16,
    /// Its status line and fields.
    pub head: Head,
    /// Its body, unchunked.
    pub body: Bytes,
}

impl RawResponse {
    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// It is none.
    #[must_use]
    pub fn json(&self) -> Value {
        let shown = || String::from_utf8_lossy(&self.body).into_owned();
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", shown()))
    }

    /// The body as the events of a stream that has ended.
    #[must_use]
    pub fn events(&self) -> Vec<SseEvent> {
        SseReader::default().push(&self.body)
    }

    /// The one JSON-RPC answer, whether it came as JSON or as the last event with data.
    ///
    /// # Panics
    ///
    /// There is none.
    #[must_use]
    pub fn answer(&self) -> Value {
        if self
            .head
            .field("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"))
        {
            let events = self.events();
            let last = events
                .iter()
                .rev()
                .find(|event| event.data.as_deref().is_some_and(|data| !data.is_empty()));
            return last.expect("an event with data").json();
        }
        self.json()
    }
}

/// One connection.
#[derive(Debug)]
pub struct RawClient {
    stream: BufReader<TcpStream>,
    framing: Framing,
    events: SseReader,
    ready: VecDeque<SseEvent>,
}

impl RawClient {
    /// Connects.
    ///
    /// # Errors
    ///
    /// Nobody listens.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true).context("no TCP")?;
        let (framing, events, ready) = (Framing::Ended, SseReader::default(), VecDeque::new());
        Ok(Self {
            stream: BufReader::new(stream),
            framing,
            events,
            ready,
        })
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        patiently("sending", async { Ok(self.stream.write_all(bytes).await?) }).await
    }

    /// Sends a request and reads its whole answer.
    ///
    /// # Errors
    ///
    /// The connection broke, or no whole answer came in time.
    pub async fn ask(&mut self, request: &RawRequest) -> anyhow::Result<RawResponse> {
        self.send(&request.bytes()).await?;
        self.response().await
    }

    /// Sends a request and reads the head of its answer; the body is read by
    /// [`Self::next_event`] or [`Self::rest`].
    ///
    /// # Errors
    ///
    /// The connection broke, or no answer came in time.
    pub async fn open(&mut self, request: &RawRequest) -> anyhow::Result<Head> {
        self.send(&request.bytes()).await?;
        self.head().await
    }

    /// Reads the head of an answer, interim ones skipped.
    ///
    /// # Errors
    ///
    /// The connection broke, or no answer came in time.
    pub async fn head(&mut self) -> anyhow::Result<Head> {
        loop {
            let head = patiently("an answer", Head::read(&mut self.stream)).await?;
            let head = head.context("the peer closed without an answer")?;
            let status = status(&head.start)?;
            if status >= 200 {
                self.framing = if matches!(status, 204 | 304) {
                    Framing::Ended
                } else {
                    head.framing(false)?
                };
                self.events = SseReader::default();
                return Ok(head);
            }
        }
    }

    /// Reads a whole answer.
    ///
    /// # Errors
    ///
    /// The connection broke, or the answer did not end in time.
    pub async fn response(&mut self) -> anyhow::Result<RawResponse> {
        let head = self.head().await?;
        let body = self.rest().await?;
        Ok(RawResponse {
            status: status(&head.start)?,
            head,
            body,
        })
    }

    /// Reads the rest of a body.
    ///
    /// # Errors
    ///
    /// The connection broke, or the body did not end in time.
    pub async fn rest(&mut self) -> anyhow::Result<Bytes> {
        let framing = std::mem::replace(&mut self.framing, Framing::Ended);
        patiently("the end of a body", framing.rest(&mut self.stream)).await
    }

    /// The next event of a stream; none when it ended as it should.
    ///
    /// # Errors
    ///
    /// The connection broke, or no event came in time.
    pub async fn next_event(&mut self) -> anyhow::Result<Option<SseEvent>> {
        while self.ready.is_empty() {
            let piece = patiently("an event", self.framing.piece(&mut self.stream)).await?;
            let Some(piece) = piece else { return Ok(None) };
            self.ready.extend(self.events.push(&piece));
        }
        Ok(self.ready.pop_front())
    }

    /// Closes the sending half, as a client does that has no more to say.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn finish(&mut self) -> anyhow::Result<()> {
        self.stream.shutdown().await.context("the connection broke")
    }

    /// Waits until the peer closes.
    ///
    /// # Errors
    ///
    /// It sent something instead, or did not close in time.
    pub async fn closed(&mut self) -> anyhow::Result<()> {
        let mut one = [0];
        match timeout(PATIENCE, self.stream.read(&mut one)).await {
            // A reset closes a connection too.
            Ok(Ok(0) | Err(_)) => Ok(()),
            Ok(Ok(_)) => bail!("the peer sent something instead of closing"),
            Err(_) => bail!("the peer did not close"),
        }
    }
}

async fn patiently<T>(
    what: &str,
    wait: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    timeout(PATIENCE, wait)
        .await
        .with_context(|| format!("waited too long for {what}"))?
}
