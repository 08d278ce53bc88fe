//! What an event log is to its callers.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_store::SessionKey;

use crate::event_id::{EventId, StreamId};
use crate::resume::Resume;
use crate::tail::{Reader, Stop};
use crate::{LogError, Pending};

/// One stream of one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamRef {
    /// The session.
    pub session: SessionKey,
    /// The stream.
    pub id: StreamId,
}

/// The answer of one POST, and what its stream begins with. It is kept all or not at all: who has
/// been given an id of the stream has all of this behind it, whoever dies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Post {
    /// The raw id tokens of its requests, as the client wrote them (several in a batch).
    pub requests: Vec<Bytes>,
    /// What its writer notes first; see [`StreamLog::note`].
    pub note: Option<Bytes>,
    /// Its first events.
    pub events: Vec<Bytes>,
}

impl From<Vec<Bytes>> for Post {
    /// The answer of these requests, of which nothing is known yet.
    fn from(requests: Vec<Bytes>) -> Self {
        Self {
            requests,
            ..Self::default()
        }
    }
}

/// What a stream is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamKind {
    /// The SSE answer of one POST.
    Post(Post),
    /// A GET stream for what belongs to no call.
    Standalone,
}

/// A stream has been opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The stream.
    pub stream: StreamRef,
    /// The id of its beginning: for the priming event of revisions that have one (SSE-04). It can
    /// be resumed from. None while the store cannot be reached (EL-22).
    pub priming: Option<EventId>,
}

/// What an event is, as far as waiting for a standalone stream is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// To be kept as it is.
    Message,
    /// A log message: the first to go.
    Log,
    /// It says only that its subject has changed (list_changed of one kind, updated of one URI):
    /// the newest replaces the one before.
    Invalidation(Arc<str>),
    /// A request to the client; its key is handed out when it is dropped, so that the upstream
    /// gets an error.
    Question(Arc<str>),
}

/// One JSON-RPC message for a standalone stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it is.
    pub class: Class,
    /// Its bytes.
    pub payload: Bytes,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id. None for one that went out while the store could not be reached (EL-22): the client
    /// keeps the id it has, and comes back to the last event that is safe.
    pub id: Option<EventId>,
    /// Its number in the stream, from 1.
    pub seq: u64,
    /// The bytes of one JSON-RPC message.
    pub payload: Bytes,
}

/// How far a reader is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Events it has not had yet.
    pub events: usize,
    /// Bytes of those beyond the first of them (EL-21).
    pub bytes: usize,
}

impl Lag {
    /// Whether a connection this far behind is to be closed with `retry: 1000` (EL-21, SSE-17):
    /// 256 KiB beyond the first event, or 1,000 events.
    pub const fn is_too_slow(self) -> bool {
        self.events > 1000 || self.bytes > 256 * 1024
    }
}

/// Events are in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The number of the newest event of the stream.
    pub top: u64,
    /// How far its reader is behind; nothing when there is no reader.
    pub lag: Option<Lag>,
}

/// A question that will never be delivered: its upstream gets an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The session it was for.
    pub session: SessionKey,
    /// The key it was published under.
    pub question: Arc<str>,
}

/// A POST stream whose writer went away before its end (EL-15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The stream.
    pub stream: StreamRef,
    /// The raw id tokens of its requests.
    pub requests: Vec<Bytes>,
    /// What its writer noted last.
    pub note: Option<Bytes>,
}

/// What a sweep found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Streams that wait for somebody to write their end; named at each sweep until they have it.
    pub orphans: Vec<Orphan>,
    /// Questions whose time to be delivered is over or that had to make room; named once.
    pub lost: Vec<Lost>,
}

/// The most that [`StreamLog::note`] keeps.
pub const NOTE_BYTES: usize = 4096;

/// The event log of resumable streams.
pub trait StreamLog: Debug + Send + Sync + 'static {
    /// Lets the session have streams. Called once, when the session is created and before its id
    /// is given away; everything else about a session that has not begun is [`LogError::Gone`].
    fn begin_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, ()>;

    /// Forgets everything of the session: its readers stop, its writers get [`LogError::Gone`].
    /// The keys of questions that were never delivered.
    fn forget_session<'a>(&'a self, session: &'a SessionKey) -> Pending<'a, Vec<Arc<str>>>;

    /// Opens a stream. POST streams are opened through [`Writer`](crate::Writer), which cannot
    /// forget to end one.
    fn open<'a>(&'a self, session: &'a SessionKey, kind: StreamKind) -> Pending<'a, Opened>;

    /// Appends events to a POST stream, all or none; they are visible when this returns. Without
    /// events it only keeps what was noted.
    fn append<'a>(&'a self, stream: &'a StreamRef, events: Vec<Bytes>) -> Pending<'a, Appended>;

    /// Ends a POST stream, with a last event or (a cancelled call) without, exactly once: whoever
    /// comes later gets [`LogError::Ended`].
    fn finish<'a>(&'a self, stream: &'a StreamRef, last: Option<Bytes>) -> Pending<'a, Appended>;

    /// Notes what somebody else needs to go on with the call of a POST stream, should its writer
    /// go away: at most [`NOTE_BYTES`], of which the log understands nothing. It is kept with the
    /// next append or end, both or neither, in place of the one before; empty or too large, it
    /// only takes that away.
    fn note<'a>(&'a self, stream: &'a StreamRef, note: Bytes) -> Pending<'a, ()>;

    /// The caller is the writer of an orphaned POST stream from now on: nobody else is told to end
    /// it. False when it has ended, has a writer, or is not to be had here. Its note stays until
    /// there is another. Use [`Writer::claim`](crate::Writer::claim).
    fn claim<'a>(&'a self, stream: &'a StreamRef) -> Pending<'a, bool>;

    /// Notes that the writer of a POST stream is gone; nothing happens if the stream has ended.
    /// Never waits, because writers end in `drop`.
    fn abandon(&self, stream: &StreamRef);

    /// Waits while an event of `bytes` would push out history that an attached reader still lacks:
    /// back-pressure, for at most [`Limits::hold`](crate::Limits).
    fn room<'a>(&'a self, stream: &'a StreamRef, bytes: usize) -> Pending<'a, ()>;

    /// Hands events to the session's newest open standalone stream, now or when there is one. The
    /// keys of questions that had to make room for them.
    fn publish<'a>(
        &'a self,
        session: &'a SessionKey,
        events: Vec<Event>,
    ) -> Pending<'a, Vec<Arc<str>>>;

    /// Publishes one message that must not be lost while somebody reads: where there is no room for
    /// it in what waits for the newest standalone stream, it waits for some, at most
    /// [`Limits::hold`](crate::Limits). As [`publish`](Self::publish); nothing, and nothing has
    /// happened, when there was no room in time: the reader is too slow (EL-21).
    fn deliver<'a>(
        &'a self,
        session: &'a SessionKey,
        payload: Bytes,
    ) -> Pending<'a, Option<Vec<Arc<str>>>>;

    /// Attaches a reader that begins after number `after`. The reader before it, if there is one,
    /// stops; a standalone reader too many stops the one open longest.
    fn attach<'a>(&'a self, stream: &'a StreamRef, after: u64) -> Pending<'a, Reader>;

    /// Stops the stream's reader, from outside.
    fn stop<'a>(&'a self, stream: &'a StreamRef, why: Stop) -> Pending<'a, ()>;

    /// Kept events after number `after`, at most `max`, without being their reader.
    fn read<'a>(&'a self, stream: &'a StreamRef, after: u64, max: usize)
    -> Pending<'a, Vec<Entry>>;

    /// What a client of this session gets that comes with this `Last-Event-ID`. The id is verified
    /// before anything is looked up.
    fn resume<'a>(&'a self, session: &'a SessionKey, last_event_id: &'a str)
    -> Pending<'a, Resume>;

    /// Ends what is over. Called every few seconds by whoever owns the process.
    fn sweep(&self) -> Pending<'_, Swept>;
}

/// What an operation on a stream that is not there returns.
pub(crate) const fn gone<T>() -> Result<T, LogError> {
    Err(LogError::Gone)
}
