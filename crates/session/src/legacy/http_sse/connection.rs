//! The GET: from the session's log to the client, and the end of the session with it (HSE-05).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use vestibule_frame::sse;
use vestibule_metrics::StreamKind as Kind;
use vestibule_store::{OpenStream, SessionKey};
use vestibule_streamlog::{Class, Entry, Event, LogError, Next, Reader, StreamKind};
use vestibule_terms::{Outcome, Reject};

use crate::answer::{self, Response};
use crate::ending::Ending;
use crate::facts::Facts;
use crate::legacy::end::ended;
use crate::legacy::live::Live;
use crate::modern::drained;
use crate::observe;
use crate::room::Shared;
use crate::stream::{EventBody, come_back};

/// How long calls may go on when nobody can hear their answers any more.
const GRACE: Duration = Duration::from_secs(5);
/// When to come back when there can be no stream now.
pub(super) const LATER: Duration = Duration::from_secs(5);

/// Serves the GET that opens a session.
pub(crate) async fn connect(shared: &Arc<Shared>, facts: &Facts) -> Response {
    match open(shared, facts).await {
        Ok(connection) => {
            facts.record.set_outcome(Outcome::Ok);
            answer::events(connection.body())
        }
        Err(error) => {
            tracing::warn!(%error, "no stream could be opened");
            let (reason, retry_after) = ("streams", LATER);
            let reject = Reject::Unavailable {
                reason,
                retry_after,
            };
            answer::refuse(&facts.record, reject, None)
        }
    }
}

async fn open(shared: &Arc<Shared>, facts: &Facts) -> Result<Connection, LogError> {
    let (tenant, server) = (&facts.plan.tenant, &facts.plan.server);
    let principal = facts.principal.binding();
    let id = shared
        .rooms
        .sealer
        .mint_sse_session_id(tenant, server, &principal);
    let key = SessionKey::new(tenant, &principal, &id);
    let log = &shared.rooms.log;
    log.begin_session(&key).await?;
    // From here on the end of the connection, or of the attempt, is the end of the session.
    let closing = Closing {
        shared: Arc::clone(shared),
        key,
    };
    let opened = log.open(&closing.key, StreamKind::Standalone).await?;
    let reader = log.attach(&opened.stream, 0).await?;
    let address = format!("{}?sse={}", facts.path(), id.expose());
    Ok(Connection {
        reader,
        ready: VecDeque::from([sse::endpoint(&address)]),
        over: false,
        parting: false,
        draining: shared.draining.subscribe(),
        ending: shared.endings.of(facts),
        watched: true,
        counted: shared.observer.stream(tenant, Kind::Sse),
        open: None,
        closing,
    })
}

/// One client's stream.
struct Connection {
    reader: Reader,
    ready: VecDeque<Bytes>,
    over: bool,
    /// Whether the last word is on its way through the log.
    parting: bool,
    draining: watch::Receiver<bool>,
    ending: Ending,
    /// Whether nobody else looks after the caller's admission.
    watched: bool,
    counted: observe::Stream,
    /// Its place in the session's record, once there is one.
    open: Option<OpenStream>,
    closing: Closing,
}

// === impl Connection ===

impl Connection {
    fn body(self) -> EventBody {
        EventBody::new(stream::unfold(Box::new(self), |mut it| async move {
            let event = it.next().await?;
            Some((Ok(event), it))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            let Closing { shared, key } = &self.closing;
            tokio::select! {
                biased;
                next = self.reader.next() => {
                    self.count().await;
                    self.take(next);
                }
                () = may_part(shared, key, &mut self.draining), if !self.parting => {
                    self.part().await;
                }
                _why = self.ending.over(), if self.watched => self.expelled().await,
            }
        }
    }

    /// The record says that the stream is open from before the client has the answer to its
    /// `initialize` until the connection closes, whichever process stored it.
    async fn count(&mut self) {
        if self.open.is_none() {
            let Closing { shared, key } = &self.closing;
            let opened = OpenStream::begin(&shared.rooms.sessions, key).await;
            self.open = opened.ok().flatten();
        }
    }

    fn take(&mut self, next: Result<Next, LogError>) {
        match next {
            Ok(Next::Event(entry)) if is_last_word(&entry) => {
                let retry = self.closing.shared.spread_retry();
                self.close_with(Some(retry));
            }
            Ok(Next::Event(entry)) => {
                self.counted.event();
                self.ready
                    .push_back(sse::message(None, std::slice::from_ref(&entry.payload)));
            }
            Ok(Next::Gap) => {
                // It may have been a response, and there is no other way to say so.
                tracing::debug!("a stream without resumption has lost a message and is closed");
                self.over = true;
            }
            Ok(Next::Caught(_)) => {} // nothing has an id here
            Ok(Next::Stopped(stop)) => self.close_with(stop.retry()),
            Ok(Next::Finished | Next::Orphaned { .. }) => self.over = true,
            Err(error) => {
                tracing::debug!(%error, "a stream can no longer be read");
                self.over = true;
            }
        }
    }

    fn close_with(&mut self, retry: Option<Duration>) {
        self.ready.extend(retry.map(come_back));
        self.over = true;
    }

    /// The process stops, and no call waits any more: what is in the log goes out, then the end.
    async fn part(&mut self) {
        self.parting = true;
        let Closing { shared, key } = &self.closing;
        let published = shared.rooms.log.publish(key, vec![last_word()]).await;
        self.over = published.is_err();
    }

    /// The caller is no longer let in, or nothing may go on. What happens to an open session is
    /// decided by who used it last, as with every other; before the handshake there is only this.
    async fn expelled(&mut self) {
        self.watched = false;
        let Closing { shared, key } = &self.closing;
        let stored = shared.rooms.sessions.get(key).await;
        self.over = !matches!(stored, Ok(Some(_)));
    }
}

/// An event of no bytes is no message: nothing comes after it.
fn last_word() -> Event {
    Event {
        class: Class::Message,
        payload: Bytes::new(),
    }
}

fn is_last_word(entry: &Entry) -> bool {
    entry.payload.is_empty()
}

/// Resolves when the process stops and everything that was asked is answered: the client could not
/// come back for the rest (SSE-03).
async fn may_part(shared: &Shared, key: &SessionKey, draining: &mut watch::Receiver<bool>) {
    drained(draining).await;
    quiet(shared, key).await;
}

async fn quiet(shared: &Shared, key: &SessionKey) {
    let live = shared.lives.get(&Live::name_of(key));
    let live = live.map(|live| Arc::clone(&live));
    if let Some(line) = live.as_ref().and_then(|live| live.line.as_ref()) {
        line.quiet().await;
    }
}

/// Ends the session when the connection is closed, however that comes.
struct Closing {
    shared: Arc<Shared>,
    key: SessionKey,
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(live) = self.shared.lives.get(&Live::name_of(&self.key))
            && let Some(line) = &live.line
        {
            line.close();
        }
        // without a runtime the process is over; the next one begins without such sessions
        if let Ok(runtime) = Handle::try_current() {
            let (shared, key) = (Arc::clone(&self.shared), self.key.clone());
            runtime.spawn(async move { close(&shared, &key).await });
        }
    }
}

async fn close(shared: &Arc<Shared>, key: &SessionKey) {
    let quiet_or_not = timeout(GRACE, quiet(shared, key)).await;
    if quiet_or_not.is_err() {
        tracing::debug!("the calls of a session are cancelled, because its connection is closed");
    }
    finish(shared, key).await;
}

/// Ends the session, if it has begun. The log goes first: a handshake that is under way finds it
/// gone and takes its session back.
pub(super) async fn finish(shared: &Arc<Shared>, key: &SessionKey) {
    if let Err(error) = shared.rooms.log.forget_session(key).await {
        tracing::debug!(%error, "the stream of a session could not be forgotten");
    }
    match shared.rooms.sessions.end(key).await {
        Ok(Some(over)) => ended(shared, over).await,
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "a session could not be ended"),
    }
}
