//! One open upstream session: what was negotiated, and the line that messages go over.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use vestibule_exchange::{BoxFuture, LogLevel, Profile};
use vestibule_frame::{Frame, Kind, encode};
use vestibule_terms::{Method, Revision};

use crate::calls::Next;
use crate::carrier::Carrier;
use crate::compose::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use crate::fault::Fault;
use crate::ids::CallId;
use crate::legacy::peer::Peer;
use crate::stdio::process::Process;
use crate::wire::{Refused, Reply, Wire, json_headers};

/// What was learnt about one upstream over HTTP that its protocol version does not say.
#[derive(Debug, Default)]
pub(crate) struct Quirks {
    /// It has no GET stream (405).
    pub(crate) no_get: AtomicBool,
    /// It asks on the GET stream, so that interactive calls must not share a session.
    pub(crate) asks_on_get: AtomicBool,
    /// Whether it takes `MCP-Protocol-Version` (VER-04).
    version_header: AtomicU8,
}

/// Longest wait until a message that is no call has been taken, and until a session has been ended.
const DELIVERY: Duration = Duration::from_secs(30);
const DELETE: Duration = Duration::from_secs(5);

const UNKNOWN: u8 = 0;
const TAKEN: u8 = 1;
const REFUSED: u8 = 2;
/// The header is left out to see whether that helps.
const TRYING: u8 = 3;

/// State of the GET stream of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GetStream {
    /// Not wanted so far.
    Unopened,
    /// On its way.
    Opening,
    /// Open, or being reconnected.
    Open,
    /// The upstream has none.
    Absent,
}

/// How messages get to the upstream.
#[derive(Debug)]
pub(crate) enum Line {
    /// A POST each.
    Http(Arc<HttpLine>),
    /// Lines on a channel.
    Pipe(Arc<Process>),
}

/// A session over HTTP, as its headers name it.
#[derive(Debug)]
pub(crate) struct HttpLine {
    pub(crate) wire: Arc<Wire>,
    pub(crate) quirks: Arc<Quirks>,
    pub(crate) revision: Revision,
    pub(crate) session_id: Option<HeaderValue>,
}

/// One open upstream session.
pub(crate) struct Live {
    pub(crate) peer: Arc<Peer>,
    pub(crate) line: Line,
    pub(crate) profile: Arc<Profile>,
    /// Whether it declared logging, and anything that arrives outside of calls: asked for every
    /// call, so read out of the profile once.
    pub(crate) logs: bool,
    pub(crate) speaks_unasked: bool,
    /// The level that was last set; held while it is being set.
    pub(crate) level: Mutex<Option<LogLevel>>,
    pub(crate) get: watch::Sender<GetStream>,
    /// Whether another process has opened it.
    pub(crate) was_attached: bool,
    over: CancellationToken,
}

// === impl Quirks ===

impl Quirks {
    /// Whether the version header is sent.
    pub(crate) fn sends_version(&self) -> bool {
        matches!(self.version_header.load(Ordering::Relaxed), UNKNOWN | TAKEN)
    }

    /// A request was taken, with the header or without it.
    pub(crate) fn version_settled(&self) {
        self.step(UNKNOWN, TAKEN);
        self.step(TRYING, REFUSED);
    }

    /// A request was answered 400. True when leaving the header out is worth an attempt; when it
    /// has been left out already, it was not the header's fault.
    pub(crate) fn version_doubted(&self) -> bool {
        let now_trying = self.step(UNKNOWN, TRYING);
        if !now_trying {
            self.step(TRYING, TAKEN);
        }
        now_trying
    }

    fn step(&self, from: u8, to: u8) -> bool {
        let order = Ordering::Relaxed;
        self.version_header
            .compare_exchange(from, to, order, order)
            .is_ok()
    }
}

// === impl HttpLine ===

impl HttpLine {
    /// The headers of a POST in this session (HDR-07, VER-04).
    pub(crate) fn post_headers(&self) -> HeaderMap {
        let mut headers = json_headers();
        self.stamp(&mut headers);
        headers
    }

    /// The headers of a GET in this session.
    pub(crate) fn get_headers(&self, last_event_id: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        self.stamp(&mut headers);
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        headers
    }

    /// The headers of anything in this session.
    pub(crate) fn stamp(&self, headers: &mut HeaderMap) {
        if let Some(id) = &self.session_id {
            headers.insert(SESSION_ID, id.clone());
        }
        if self.quirks.sends_version() {
            let version = HeaderValue::from_static(self.revision.as_str());
            headers.insert(PROTOCOL_VERSION, version);
        }
    }

    /// Ends the session; 405 is a fine answer (GET-09).
    pub(crate) async fn delete(&self) {
        if self.session_id.is_none() {
            return;
        }
        let mut headers = HeaderMap::new();
        self.stamp(&mut headers);
        let deleting = self.wire.send(&http::Method::DELETE, &headers, &[]);
        match timeout(DELETE, deleting)
            .await
            .unwrap_or(Err(Fault::Timeout))
        {
            Ok(response) => tracing::debug!(
                status = response.status().as_u16(),
                "ended an upstream session"
            ),
            Err(error) => tracing::debug!(%error, "could not end an upstream session"),
        }
    }
}

/// Whether it declared that it tells of changes.
fn declares_changes(profile: &Profile) -> bool {
    let declares = |capability: &str, flag: &str| {
        profile
            .capability(capability)
            .is_some_and(|value| vestibule_frame::json::member(&value, flag) == Some(b"true"))
    };
    declares("tools", "listChanged")
        || declares("prompts", "listChanged")
        || declares("resources", "listChanged")
        || declares("resources", "subscribe")
}

/// Carries messages of one HTTP session.
pub(crate) struct Posts(pub(crate) Arc<HttpLine>);

impl Carrier for Posts {
    fn carry(&self, message: Vec<Bytes>) -> BoxFuture<Result<(), Fault>> {
        let line = Arc::clone(&self.0);
        Box::pin(async move {
            let headers = line.post_headers();
            match timeout(DELIVERY, line.wire.deliver(&headers, &message)).await {
                Ok(delivered) => delivered.map_err(Refused::into_fault),
                Err(_elapsed) => Err(Fault::Timeout),
            }
        })
    }
}

// === impl Live ===

impl Live {
    /// A session that has just been opened.
    pub(crate) fn new(peer: Arc<Peer>, line: Line, profile: Arc<Profile>) -> Self {
        let (get, _) = watch::channel(GetStream::Unopened);
        let logs = profile.offers("logging");
        Self {
            logs,
            speaks_unasked: logs || declares_changes(&profile),
            peer,
            line,
            profile,
            level: Mutex::new(None),
            get,
            was_attached: false,
            over: CancellationToken::new(),
        }
    }

    /// The same, opened by another process.
    pub(crate) fn attached(self) -> Self {
        Self {
            was_attached: true,
            ..self
        }
    }

    /// Whether it can be used no more.
    pub(crate) fn is_over(&self) -> bool {
        match &self.line {
            Line::Http(_) => self.over.is_cancelled(),
            Line::Pipe(process) => self.over.is_cancelled() || process.has_exited(),
        }
    }

    /// The upstream has forgotten the session, or it is being given up: what hangs on it ends.
    pub(crate) fn end(&self) {
        self.over.cancel();
        self.peer.end();
    }

    /// Resolves when it has ended.
    pub(crate) fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// Gives the session up at the upstream too.
    pub(crate) async fn close(&self) {
        self.end();
        match &self.line {
            Line::Http(line) => line.delete().await,
            Line::Pipe(process) => process.stop(),
        }
    }

    /// Makes a small request of our own and waits for its answer.
    pub(crate) async fn ask(
        &self,
        id: &CallId,
        method: Method,
        params: &[u8],
    ) -> Result<Frame, Fault> {
        let message = encode::request(&id.id(), method.as_str(), Some(params));
        match &self.line {
            Line::Http(line) => ask_by_post(line, id, message).await,
            Line::Pipe(process) => {
                let mut ticket = self.peer.calls().open(id, method);
                process.write(&[message]).await?;
                loop {
                    if let Next::Answer(answer) = ticket.next().await {
                        return answer;
                    }
                }
            }
        }
    }
}

async fn ask_by_post(line: &HttpLine, id: &CallId, message: Bytes) -> Result<Frame, Fault> {
    let reply = line.wire.post(&line.post_headers(), &[message]).await?;
    let mut answer = match reply {
        Reply::Success(response) => crate::wire::Answer::new(response, line.wire.max_response())?,
        Reply::Refused(refusal) => return Err(refusal.fault()),
    };
    while let Some(item) = answer.next().await? {
        let frames = item.frames.map_err(|_| Fault::Protocol("malformed"))?;
        for frame in frames {
            if frame.kind() == Kind::Response && frame.id().is_none_or(|got| id.is(&got)) {
                answer.finish();
                return Ok(frame);
            }
        }
    }
    Err(Fault::Broken)
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
