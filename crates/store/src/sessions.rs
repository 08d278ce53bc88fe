//! What a legacy session is to the store: one record, and the operations on it.
//!
//! A record has a part that never changes after the handshake ([`Opening`]) and a part that does
//! ([`State`], by compare and swap). It holds data only, no handles, so that any process that can
//! read it can go on with the session.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vestibule_terms::{Revision, ServerId, TenantId};

use crate::{Belonging, Kept, Kind, Pending, SessionKey, StoreError};

/// What the handshake settled, once and for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The server the session was opened on.
    pub server: ServerId,
    /// The negotiated revision.
    pub revision: Revision,
    /// The client's `capabilities`, the raw JSON of its request.
    pub capabilities: Bytes,
    /// The client's `clientInfo`, the raw JSON of its request.
    pub client_info: Bytes,
    /// Milliseconds since the Unix epoch.
    pub created: u64,
}

/// What changes while a session lives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Whether `notifications/initialized` has arrived.
    pub initialized: bool,
    /// The level of `logging/setLevel`, if one was set.
    pub log_level: Option<Arc<str>>,
    /// Subscribed resource URIs, as the client named them.
    pub subscriptions: BTreeSet<Arc<str>>,
    /// The number of the next question to the client; never used twice in a session.
    pub next_question: u64,
}

/// A live session as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub key: SessionKey,
    /// What the handshake settled.
    pub opening: Arc<Opening>,
    /// What has changed since.
    pub state: Arc<State>,
    /// Grows by one with each change of `state`.
    pub version: u64,
    /// The last request or the last moment a stream was open; milliseconds since the epoch.
    pub last_seen: u64,
    /// How many of its streams are open.
    pub streams_open: usize,
}

/// How many sessions there may be. Zero means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// For one principal of a tenant.
    pub per_principal: usize,
    /// For a tenant.
    pub per_tenant: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            per_principal: 256,
            per_tenant: 20_000,
        }
    }
}

/// How long sessions live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Longest time without a request and without an open stream (SES-03, case 66).
    pub idle: Duration,
    /// Longest life whatever happens; none by default.
    pub age: Option<Duration>,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(24 * 60 * 60),
            age: None,
        }
    }
}

/// Why a session is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// Somebody asked for it.
    Requested,
    /// Its principal or tenant opened another one over the cap.
    Evicted,
    /// Nobody used it for too long.
    Idle,
    /// It reached the longest life.
    Age,
}

impl EndReason {
    /// The label of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            EndReason::Requested => "requested",
            EndReason::Evicted => "evicted",
            EndReason::Idle => "idle",
            EndReason::Age => "age",
        }
    }
}

/// A session that has just ended. Whoever receives it closes what belonged to it elsewhere:
/// calls, event logs, upstream sessions. It is handed out once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The session as it was.
    pub session: Stored,
    /// Why it ended.
    pub reason: EndReason,
    /// What was kept for it.
    pub belongings: Vec<Belonging>,
}

/// A session has been created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The new session.
    pub session: Stored,
    /// Those that made room for it.
    pub evicted: Vec<Ended>,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// It is stored; the session as it is now.
    Done(Stored),
    /// Somebody else was faster; the session as it is now.
    Conflict(Stored),
    /// There is no such session.
    Gone,
}

/// How many live sessions of one revision a tenant has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// The tenant.
    pub tenant: TenantId,
    /// The revision.
    pub revision: Revision,
    /// How many.
    pub live: usize,
}

/// The store's side of sessions. Absent, ended, expired and foreign are one: `None`.
pub trait Sessions: Debug + Send + Sync + 'static {
    /// Stores a new session. Over a cap, the least recently used sessions without open streams of
    /// that principal or tenant end; where there are none the new one is refused.
    fn create(&self, key: SessionKey, opening: Opening, caps: Caps) -> Pending<'_, Created>;

    /// The session, without counting as use.
    fn get<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>>;

    /// The session, counted as use: the idle limit starts anew.
    fn touch<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>>;

    /// Replaces the state if the session's version is still `version`.
    fn update<'a>(&'a self, key: &'a SessionKey, version: u64, state: State)
    -> Pending<'a, Update>;

    /// Counts a stream that opens: while any is open the session is neither idle nor evicted.
    /// Use [`OpenStream`], which cannot forget the other half.
    fn stream_opened<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>>;

    /// Counts a stream that has closed. Never waits, because connections end in `drop`; an
    /// implementation over a network queues it.
    fn stream_closed(&self, key: &SessionKey);

    /// Keeps a small record that belongs to the session and ends with it, unless there is one of
    /// that kind and name: what is there now. A session has at most 256 of them, together 256 KiB.
    fn keep<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        record: Bytes,
    ) -> Pending<'a, Option<Kept>>;

    /// The record of that kind and name.
    fn kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
    ) -> Pending<'a, Option<Bytes>>;

    /// The names and records of that kind, ordered by name; none where there is no such session.
    fn all_kept<'a>(&'a self, key: &'a SessionKey, kind: Kind)
    -> Pending<'a, Vec<(String, Bytes)>>;

    /// Replaces `expected` by `record`, `None` removes it; `false` when something else is there, or
    /// nothing.
    fn swap_kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        expected: &'a [u8],
        record: Option<Bytes>,
    ) -> Pending<'a, bool>;

    /// Ends the session. `None` where there was none, or another call has ended it already.
    fn end<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Ended>>;

    /// Ends every session whose time is over and hands them out. Called about once a second by
    /// whoever owns the process; nothing else calls it.
    fn sweep(&self) -> Pending<'_, Vec<Ended>>;

    /// How many live sessions the tenant, or one principal of it, has.
    fn count<'a>(&'a self, tenant: &'a TenantId, principal: Option<&'a str>) -> Pending<'a, usize>;

    /// How many live sessions the store has, as the last sweep of all tenants found; nothing is asked
    /// for it. `None` from the store of one process, whose caller sees every session come and go.
    fn census(&self) -> Option<Vec<Census>> {
        None
    }

    /// The tenant's sessions, oldest first, at most `max`.
    fn list<'a>(&'a self, tenant: &'a TenantId, max: usize) -> Pending<'a, Vec<Stored>>;
}

/// What is done when the call returns; the future only carries the result.
pub(crate) fn done<'a, T: Send + 'a>(result: Result<T, StoreError>) -> Pending<'a, T> {
    Box::pin(std::future::ready(result))
}

/// Changes a session's state, again and again until nobody else was faster, and returns what
/// `change` returned the last time. `None` when there is no such session.
pub async fn modify<T: Send>(
    sessions: &dyn Sessions,
    key: &SessionKey,
    mut change: impl FnMut(&mut State) -> T + Send,
) -> Result<Option<T>, StoreError> {
    let Some(mut stored) = sessions.get(key).await? else {
        return Ok(None);
    };
    loop {
        let mut state = State::clone(&stored.state);
        let result = change(&mut state);
        match sessions.update(key, stored.version, state).await? {
            Update::Done(_) => return Ok(Some(result)),
            Update::Conflict(now) => stored = now,
            Update::Gone => return Ok(None),
        }
    }
}

/// A stream of a session that is open for as long as this lives.
#[derive(Debug)]
pub struct OpenStream {
    sessions: Arc<dyn Sessions>,
    key: SessionKey,
}

impl OpenStream {
    /// Counts a stream of the session as open; `None` when there is no such session.
    pub async fn begin(
        sessions: &Arc<dyn Sessions>,
        key: &SessionKey,
    ) -> Result<Option<Self>, StoreError> {
        let found = sessions.stream_opened(key).await?;
        Ok(found.map(|_| Self {
            sessions: Arc::clone(sessions),
            key: key.clone(),
        }))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.sessions.stream_closed(&self.key);
    }
}
