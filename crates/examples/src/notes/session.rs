//! Sessions: what a client and this server agreed on, and what goes on between them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::http::Events;
use crate::rpc::{self, Params};

/// How many sessions there may be; the one that was not used for longest makes room.
const MAX_SESSIONS: usize = 256;
/// How long a user may take to answer.
const ANSWER: Duration = Duration::from_secs(300);

/// Locks that are held for a few lines of plain code, and whose value no panic leaves half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) version: &'static str,
    /// What the client can do for us.
    pub(super) capabilities: Params,
    /// Ends everything that belongs to the session.
    pub(super) ended: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last_used: Instant,
    severity: usize,
    stream: Option<Events>,
    subscriptions: HashSet<String>,
    /// Requests that are being answered, by id.
    running: HashMap<String, CancellationToken>,
    /// Our own requests that wait for an answer, by id.
    questions: HashMap<String, oneshot::Sender<Result<Value, Value>>>,
    asked: u64,
}

/// The id of a request as a key: the number 1 and the text "1" differ.
fn key(id: &Value) -> String {
    id.to_string()
}

impl Session {
    fn new(version: &'static str, capabilities: Params, ended: CancellationToken) -> Option<Self> {
        let mut secret = [0; 16];
        aws_lc_rs::rand::fill(&mut secret).ok()?;
        let state = State {
            last_used: Instant::now(),
            severity: rpc::severity("info").unwrap_or_default(),
            stream: None,
            subscriptions: HashSet::new(),
            running: HashMap::new(),
            questions: HashMap::new(),
            asked: 0,
        };
        Some(Self {
            id: format!("{:032x}", u128::from_be_bytes(secret)),
            version,
            capabilities,
            ended,
            state: Mutex::new(state),
        })
    }

    /// Makes `events` the stream for what belongs to no request. One that was there before ends.
    pub(super) fn open_stream(&self, events: Events) {
        lock(&self.state).stream = Some(events);
    }

    /// Sends what belongs to no request, if the client listens.
    pub(super) fn push(&self, message: &Value) {
        let mut state = lock(&self.state);
        let delivered = state.stream.as_ref().map(|stream| stream.offer(message));
        if delivered == Some(false) {
            state.stream = None; // gone, or too slow: the client opens another
        }
    }

    pub(super) fn subscribe(&self, uri: &str) {
        lock(&self.state).subscriptions.insert(uri.to_owned());
    }

    pub(super) fn unsubscribe(&self, uri: &str) {
        lock(&self.state).subscriptions.remove(uri);
    }

    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        lock(&self.state).subscriptions.contains(uri)
    }

    pub(super) fn set_severity(&self, severity: usize) {
        lock(&self.state).severity = severity;
    }

    pub(super) fn wants(&self, level: &str) -> bool {
        rpc::severity(level) >= Some(lock(&self.state).severity)
    }

    /// A request begins; the token says that the client no longer wants its answer.
    pub(super) fn begin(self: &Arc<Self>, id: &Value) -> Running {
        let token = self.ended.child_token();
        let mut state = lock(&self.state);
        state.running.insert(key(id), token.clone());
        Running {
            session: Arc::clone(self),
            key: key(id),
            cancelled: token,
        }
    }

    /// The client no longer wants the answer to a request.
    pub(super) fn cancel(&self, id: &Value) {
        if let Some(running) = lock(&self.state).running.get(&key(id)) {
            running.cancel();
        }
    }

    /// The client answers one of our requests. Late and unknown answers are ignored.
    pub(super) fn answered(&self, id: &Value, outcome: Result<Value, Value>) {
        let question = lock(&self.state).questions.remove(&key(id));
        if let Some(question) = question
            && question.send(outcome).is_err()
        {
            tracing::debug!("an answer came too late");
        }
    }

    /// Asks the client something on the stream of the request it is about.
    pub(super) async fn ask(
        &self,
        events: &Events,
        method: &str,
        params: &Value,
    ) -> Option<Result<Value, Value>> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut state = lock(&self.state);
            state.asked += 1;
            let id = json!(format!("notes-{}", state.asked));
            state.questions.insert(key(&id), sender);
            id
        };
        let _forgotten = Forget {
            session: self,
            id: &id,
        };
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        events.send(&request).await;
        let answer = tokio::time::timeout(ANSWER, receiver).await;
        answer.ok().and_then(Result::ok)
    }
}

/// Removes a question when nobody waits for its answer any more.
struct Forget<'a> {
    session: &'a Session,
    id: &'a Value,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(&self.session.state).questions.remove(&key(self.id));
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Running {
    session: Arc<Session>,
    key: String,
    cancelled: CancellationToken,
}

impl Running {
    /// Ends when the client no longer wants the answer.
    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.session.state).running.remove(&self.key);
    }
}

/// Every session, by id.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Arc<Session>>>);

impl Sessions {
    /// Opens a session. `None` where the system has no randomness for its id.
    pub(super) fn open(
        &self,
        version: &'static str,
        capabilities: Params,
        ended: CancellationToken,
    ) -> Option<Arc<Session>> {
        let session = Arc::new(Session::new(version, capabilities, ended)?);
        let mut sessions = lock(&self.0);
        if sessions.len() >= MAX_SESSIONS {
            let oldest = sessions
                .values()
                .min_by_key(|session| lock(&session.state).last_used);
            if let Some(oldest) = oldest.map(|session| session.id.clone()) {
                end(&mut sessions, &oldest);
            }
        }
        sessions.insert(session.id.clone(), Arc::clone(&session));
        Some(session)
    }

    /// The live session of that id, which is now in use.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Session>> {
        let session = lock(&self.0).get(id).map(Arc::clone)?;
        lock(&session.state).last_used = Instant::now();
        Some(session)
    }

    /// Ends a session; whether there was one.
    pub(super) fn end(&self, id: &str) -> bool {
        end(&mut lock(&self.0), id)
    }

    /// Every live session.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.0).values().map(Arc::clone).collect()
    }
}

fn end(sessions: &mut HashMap<String, Arc<Session>>, id: &str) -> bool {
    let Some(session) = sessions.remove(id) else {
        return false;
    };
    session.ended.cancel();
    true
}
