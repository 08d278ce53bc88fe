//! Replicas of a log over a real server.

mod cluster;
mod ended;
mod fleet;
mod outage;
mod owners;
mod repair;
mod simulation;
mod standalone;
mod suite;

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use vestibule_store::redis::{Redis, Settings};
use vestibule_store::{Alone, Fleet, Sealer, SessionKey};
use vestibule_terms::Clock;
use vestibule_testkit::redis::RedisServer;

use self::fleet::{Member, Town};
use super::{Mode, RedisLog};
use crate::suite::{sealer, session};
use crate::{
    Class, Event, EventId, Limits, MemoryLog, Next, Opened, Reader, Resume, StreamKind, StreamLog,
    StreamRef, Writer,
};

/// What becomes of a replica's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// They go and are answered.
    Open,
    /// The process has been stopped, or killed: nothing goes on.
    Stopped,
    /// They run, and their answers are lost.
    Unanswered,
}

/// Whether a replica still reaches anybody, and hears anything.
#[derive(Debug, Clone)]
pub(super) struct Fate {
    way: Arc<watch::Sender<Way>>,
    deaf: Arc<watch::Sender<bool>>,
}

impl Default for Fate {
    fn default() -> Self {
        Self {
            way: Arc::new(watch::Sender::new(Way::Open)),
            deaf: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl Fate {
    pub(super) async fn goes_on(&self) {
        let mut way = self.way.subscribe();
        let _its_sender_lives = way.wait_for(|way| *way != Way::Stopped).await.is_err();
    }

    pub(super) fn loses_answers(&self) -> bool {
        *self.way.borrow() == Way::Unanswered
    }

    pub(super) fn is_deaf(&self) -> bool {
        *self.deaf.borrow()
    }
}

/// Where clients of the server run, so that paused clocks of tests are not theirs.
fn elsewhere() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    })
}

/// A clock that goes with the runtime's, paused or not.
struct Tokio(Instant);

impl Clock for Tokio {
    fn unix_millis(&self) -> u64 {
        1_700_000_000_000 + u64::try_from(self.0.elapsed().as_millis()).unwrap()
    }
}

thread_local! {
    /// The server of the test that runs on this thread; it ends with the thread.
    static SERVER: RefCell<Option<RedisServer>> = const { RefCell::new(None) };
}

/// The address of the test's server; none when there is no server to be had.
fn server() -> Option<String> {
    SERVER.with_borrow_mut(|server| {
        if server.is_none() {
            *server = RedisServer::start();
        }
        server.as_ref().map(RedisServer::url)
    })
}

fn with_server<T>(act: impl FnOnce(&mut RedisServer) -> T) -> T {
    SERVER.with_borrow_mut(|server| act(server.as_mut().expect("it was started")))
}

/// What the server answers.
fn ask(command: &[&str]) -> String {
    with_server(|server| server.ask(command))
}

/// The names of all that is stored, without the prefix and the tag.
fn stored() -> Vec<String> {
    let all = ask(&["KEYS", "*"]);
    let names = all.lines().filter_map(|line| line.split_once("}:"));
    let mut names: Vec<String> = names.map(|(_, name)| name.trim().to_owned()).collect();
    names.sort();
    names
}

/// The full names of all keys of that kind.
fn keys_of(kind: &str) -> Vec<String> {
    let all = ask(&["KEYS", &format!("*}}:{kind}*")]);
    let names = all.lines().filter(|line| line.starts_with("vestibule"));
    names.map(|name| name.trim().to_owned()).collect()
}

fn client(url: &str, fleet: &dyn Fleet) -> Redis {
    let mut settings = Settings::new(url, fleet.replica().clone());
    settings.runtime = Some(elsewhere().handle().clone());
    settings.command_timeout = Duration::from_secs(10); // machines that test are busy
    Redis::open(settings, Arc::new(|_| {})).unwrap()
}

fn log_of(
    url: &str,
    fleet: Arc<dyn Fleet>,
    sealer: Sealer,
    limits: Limits,
    mode: Mode,
) -> Arc<RedisLog> {
    let redis = client(url, &*fleet);
    let clock = Arc::new(Tokio(Instant::now()));
    RedisLog::open(redis, fleet, sealer, limits, Arc::new(move |_| mode), clock)
}

/// A log of one replica; without a server there is nothing to be shown.
fn make(sealer: Sealer, limits: Limits) -> Arc<dyn StreamLog> {
    let Some(url) = server() else {
        return Arc::new(MemoryLog::new(sealer, limits));
    };
    log_of(&url, Arc::new(Alone::new()), sealer, limits, Mode::Required)
}

/// One replica of a test.
struct Replica {
    log: Arc<RedisLog>,
    any: Arc<dyn StreamLog>,
    member: Arc<Member>,
}

/// Replicas that share a server.
struct Replicas {
    town: Arc<Town>,
    url: String,
    limits: Limits,
    mode: Mode,
}

impl Replicas {
    /// None without a server.
    fn new() -> Option<Self> {
        Some(Self {
            town: Arc::default(),
            url: server()?,
            limits: Limits::default(),
            mode: Mode::BestEffort,
        })
    }

    fn start(&self) -> Replica {
        let member = Town::join(&self.town);
        let fleet = Arc::clone(&member) as Arc<dyn Fleet>;
        let log = log_of(&self.url, fleet, sealer(), self.limits, self.mode);
        let any = Arc::clone(&log) as Arc<dyn StreamLog>;
        Replica { log, any, member }
    }
}

impl Replica {
    fn fate(&self) -> &Fate {
        &self.log.core.fate
    }

    fn goes(&self, way: Way) {
        self.fate().way.send_replace(way);
    }

    /// The process is killed, and everybody has noticed.
    fn kill(&self) {
        self.goes(Way::Stopped);
        self.member.is_dead(true);
    }

    /// It hears no hints from now on.
    fn deafen(&self) {
        self.fate().deaf.send_replace(true);
    }

    async fn writer(&self) -> Writer {
        Writer::open(&self.any, &mine(), vec![text("7")])
            .await
            .unwrap()
    }

    async fn standalone(&self) -> (Opened, Reader) {
        let opened = self.any.open(&mine(), StreamKind::Standalone).await;
        let opened = opened.unwrap();
        let reader = self.any.attach(&opened.stream, 0).await.unwrap();
        (opened, reader)
    }

    async fn publish(&self, payload: &str) {
        let event = Event {
            class: Class::Message,
            payload: text(payload),
        };
        self.any.publish(&mine(), vec![event]).await.unwrap();
    }

    async fn resume(&self, id: &EventId) -> Resume {
        self.any.resume(&mine(), id.as_str()).await.unwrap()
    }

    /// Resumes from that id, where that is possible without loss.
    async fn reader(&self, id: &EventId) -> Reader {
        let resumed = self.resume(id).await;
        let (Resume::Replay { stream, after } | Resume::Ending { stream, after }) = resumed else {
            panic!("{resumed:?}");
        };
        self.any.attach(&stream, after).await.unwrap()
    }

    /// What the store has by now is what was appended here.
    async fn shipped(&self) {
        assert!(self.log.shipped(Duration::from_secs(10)).await);
    }
}

fn mine() -> SessionKey {
    session("acme", "alice", "s1")
}

fn text(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

fn texts<const N: usize>(all: [&str; N]) -> Vec<Bytes> {
    all.into_iter().map(text).collect()
}

fn priming(writer: &Writer) -> EventId {
    writer.opened().priming.clone().expect("the store is there")
}

async fn next(reader: &mut Reader) -> Next {
    timeout(Duration::from_secs(20), reader.next())
        .await
        .expect("something comes")
        .unwrap()
}

async fn event(reader: &mut Reader) -> (Option<EventId>, String) {
    let next = next(reader).await;
    let Next::Event(entry) = next else {
        panic!("an event, not {next:?}");
    };
    (entry.id, String::from_utf8(entry.payload.to_vec()).unwrap())
}

/// The next events, each with an id.
async fn payloads(reader: &mut Reader, count: usize) -> Vec<String> {
    let mut had = vec![];
    for _ in 0..count {
        let (id, payload) = event(reader).await;
        assert!(id.is_some(), "{payload} has an id");
        had.push(payload);
    }
    had
}

/// Whether nothing comes for a while.
async fn quiet(reader: &mut Reader) -> bool {
    timeout(Duration::from_millis(150), reader.next())
        .await
        .is_err()
}

async fn is_empty(log: &Replica, stream: &StreamRef) -> bool {
    log.any.read(stream, 0, 9).await.unwrap().is_empty()
}
