//! A seeded history of writers, flaky clients and passing time against the in-memory log, and
//! against the one on disk, whose process is killed and followed by another now and then.
//!
//! Clients lose connections, come back from any event they have dispatched, open second
//! connections and lag. After every step the log's invariants hold; what a client has dispatched
//! is always the beginning of what was written to its stream, each event once, in order, unless
//! it was told of a loss. `VESTIBULE_SEED` replays one history.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{advance, timeout};
use vestibule_store::{Disk, SessionKey, Writing};

use crate::embedded::tests::{Folder, open, settings};
use crate::suite::{sealer, session};
use crate::{
    Class, Event, EventId, Limits, LogError, MemoryLog, Next, Reader, Resume, Stop, StreamKind,
    StreamLog, StreamRef, Writer,
};

const SEEDS: u64 = 256;
const STEPS: usize = 150;

/// A small generator of its own (splitmix64), so that a seed means the same everywhere.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a mut [T]) -> Option<&'a mut T> {
        if all.is_empty() {
            None
        } else {
            Some(&mut all[self.below(all.len())])
        }
    }
}

/// What one client knows of one stream.
struct Client {
    stream: StreamRef,
    reader: Option<Reader>,
    /// A connection that was replaced and has not noticed.
    stuck: Option<Reader>,
    /// Ids and payloads it has dispatched; the first is the beginning of the stream.
    had: Vec<(EventId, Bytes)>,
    told_of_loss: bool,
    done: bool,
}

impl Client {
    fn new(stream: StreamRef, priming: EventId, reader: Reader) -> Self {
        let had = vec![(priming, Bytes::new())];
        Self {
            stream,
            reader: Some(reader),
            stuck: None,
            had,
            told_of_loss: false,
            done: false,
        }
    }

    fn payloads(&self) -> Vec<Bytes> {
        self.had
            .iter()
            .skip(1)
            .map(|(_, payload)| payload.clone())
            .collect()
    }
}

/// A POST stream: what was written, and whether it has had its end.
struct Post {
    writer: Option<Writer>,
    written: Vec<Bytes>,
    client: Client,
}

struct World {
    dice: Dice,
    memory: Arc<MemoryLog>,
    log: Arc<dyn StreamLog>,
    session: SessionKey,
    posts: Vec<Post>,
    standalone: Vec<Client>,
    published: Vec<Bytes>,
    told_of_loss: bool,
    counter: usize,
    limits: Limits,
    /// Where the log is on disk.
    disk: Option<(Folder, Arc<Disk>)>,
    restarts: usize,
}

impl World {
    async fn new(seed: u64, on_disk: bool) -> Self {
        let mut dice = Dice(seed);
        let limits = match dice.below(3) {
            0 => Limits::default(),
            1 => Limits {
                stream_events: 3,
                session_streams: 6,
                ..Limits::default()
            },
            _ => Limits {
                session_bytes: 1500,
                process_bytes: 1200,
                ..Limits::default()
            },
        };
        let session = session("acme", "alice", "s1");
        let memory = Arc::new(MemoryLog::new(sealer(), limits));
        let log: Arc<dyn StreamLog> = Arc::clone(&memory) as Arc<dyn StreamLog>;
        log.begin_session(&session).await.unwrap();
        let mut world = Self {
            dice,
            memory,
            log,
            session,
            posts: vec![],
            standalone: vec![],
            published: vec![],
            told_of_loss: false,
            counter: 0,
            limits,
            disk: None,
            restarts: 0,
        };
        if on_disk {
            world.begin_on(Folder::new(), false);
        }
        world
    }

    /// Goes on with what is in the folder. Every process tells its readers that it does not know
    /// what came before it; here that is known, and only a loss in this history is one.
    fn begin_on(&mut self, folder: Folder, lossy: bool) {
        let sessions = [self.session.clone()];
        let settings = settings(&folder, Writing::Caller);
        let (log, disk) = open(settings, &sealer(), self.limits, &sessions);
        self.memory = Arc::clone(log.memory());
        self.memory.set_lossy(&self.session, lossy);
        self.log = log;
        self.disk = Some((folder, disk));
    }

    /// The process is killed, another one follows: connections and writers are gone.
    async fn restart(&mut self) {
        let Some((folder, _)) = &self.disk else {
            return;
        };
        let left = folder.killed();
        let lossy = self.memory.set_lossy(&self.session, false);
        self.begin_on(left, lossy);
        self.restarts += 1;
        let posts = self.posts.iter_mut();
        for client in posts
            .map(|post| &mut post.client)
            .chain(&mut self.standalone)
        {
            client.reader = None;
            client.stuck = None;
        }
        for post in &mut self.posts {
            drop(post.writer.take()); // abandons a stream of the log that is gone
        }
        for orphan in self.log.sweep().await.unwrap().orphans {
            let lost = Some(Bytes::from("lost"));
            self.log.finish(&orphan.stream, lost.clone()).await.unwrap();
            let mut posts = self.posts.iter_mut();
            let post = posts.find(|post| post.client.stream == orphan.stream);
            post.expect("a stream of this world").written.extend(lost);
        }
    }

    fn payload(&mut self) -> Bytes {
        self.counter += 1;
        let padding = " ".repeat(self.dice.below(80));
        Bytes::from(format!("{}{padding}", self.counter))
    }

    async fn step(&mut self) {
        if self.disk.is_some() && self.dice.below(25) == 0 {
            self.restart().await;
        }
        match self.dice.below(14) {
            0 => self.open_post().await,
            1 => self.open_standalone().await,
            2..=4 => self.write().await,
            5 => self.finish().await,
            6 | 7 => self.publish().await,
            8..=10 => self.read_some().await,
            11 => self.disconnect(),
            12 => self.reconnect_one().await,
            _ => self.pass_time().await,
        }
        self.memory.check_invariants();
        self.check_clients();
    }

    async fn open_post(&mut self) {
        let Ok(writer) = Writer::open(&self.log, &self.session, vec![Bytes::from("7")]).await
        else {
            return; // all streams of the session are in use
        };
        let opened = writer.opened().clone();
        let reader = self.log.attach(&opened.stream, 0).await.unwrap();
        let client = Client::new(opened.stream, opened.priming.unwrap(), reader);
        self.posts.push(Post {
            writer: Some(writer),
            written: vec![],
            client,
        });
    }

    async fn open_standalone(&mut self) {
        let Ok(opened) = self.log.open(&self.session, StreamKind::Standalone).await else {
            return;
        };
        let reader = self.log.attach(&opened.stream, 0).await.unwrap();
        self.standalone
            .push(Client::new(opened.stream, opened.priming.unwrap(), reader));
    }

    async fn write(&mut self) {
        let batch: Vec<Bytes> = (0..=self.dice.below(4)).map(|_| self.payload()).collect();
        let Some(post) = self.dice.pick(&mut self.posts) else {
            return;
        };
        let Some(writer) = &post.writer else { return };
        writer.append(batch.clone()).await.unwrap();
        post.written.extend(batch);
    }

    async fn finish(&mut self) {
        let last = self.payload();
        let vanish = self.dice.below(3) == 0;
        let Some(post) = self.dice.pick(&mut self.posts) else {
            return;
        };
        let Some(writer) = post.writer.take() else {
            return;
        };
        if vanish {
            drop(writer);
            let orphans = self.log.sweep().await.unwrap().orphans;
            assert!(
                orphans
                    .iter()
                    .any(|orphan| orphan.stream == post.client.stream)
            );
            self.log
                .finish(&post.client.stream, Some(last.clone()))
                .await
                .unwrap();
        } else {
            writer.finish(Some(last.clone())).await.unwrap();
        }
        post.written.push(last);
    }

    async fn publish(&mut self) {
        let payload = self.payload();
        let event = Event {
            class: Class::Message,
            payload: payload.clone(),
        };
        self.log.publish(&self.session, vec![event]).await.unwrap();
        self.published.push(payload);
    }

    async fn read_some(&mut self) {
        let count = self.dice.below(6);
        let posts = self.posts.len();
        let index = self.dice.below((posts + self.standalone.len()).max(1));
        if let Some(post) = self.posts.get_mut(index) {
            read(&mut post.client, count).await;
        } else if let Some(client) = self.standalone.get_mut(index - posts) {
            self.told_of_loss |= read(client, count).await;
        }
    }

    /// A connection breaks; what was on its way, up to two events, was never dispatched.
    fn disconnect(&mut self) {
        let in_flight = self.dice.below(3);
        let mut clients: Vec<&mut Client> = self
            .posts
            .iter_mut()
            .map(|post| &mut post.client)
            .chain(self.standalone.iter_mut())
            .filter(|client| client.reader.is_some() && !client.done)
            .collect();
        let Some(client) = self.dice.pick(&mut clients) else {
            return;
        };
        client.reader = None;
        client.stuck = None;
        let kept = client.had.len().saturating_sub(in_flight).max(1);
        client.had.truncate(kept);
    }

    async fn reconnect_one(&mut self) {
        let posts = self.posts.len();
        let index = self.dice.below((posts + self.standalone.len()).max(1));
        if let Some(post) = self.posts.get_mut(index) {
            reconnect(&self.log, &self.session, &mut post.client).await;
        } else if let Some(client) = self.standalone.get_mut(index - posts) {
            self.told_of_loss |= reconnect(&self.log, &self.session, client).await;
        }
    }

    async fn pass_time(&mut self) {
        let seconds = [1, 1, 5, 5, 10, 10, 20, 20, 40, 90, 310, 910][self.dice.below(12)];
        advance(Duration::from_secs(seconds)).await;
        self.log.sweep().await.unwrap();
    }

    fn check_clients(&self) {
        for post in &self.posts {
            let had = post.client.payloads();
            assert!(had.len() <= post.written.len());
            assert_eq!(
                had,
                post.written[..had.len()],
                "the beginning, once, in order"
            );
        }
        let mut where_had = HashMap::new();
        for client in &self.standalone {
            let had = client.payloads();
            let order = |payload: &Bytes| self.published.iter().position(|p| p == payload);
            assert!(had.iter().is_sorted_by_key(order), "in order");
            for payload in had {
                let before = where_had.insert(payload, client.stream.id);
                assert_eq!(before, None, "one message, one stream, once");
            }
        }
    }

    /// Every client comes back for the rest. Nothing may be missing without a word.
    async fn settle(&mut self) {
        for index in 0..self.posts.len() {
            let post = &mut self.posts[index];
            if let Some(writer) = post.writer.take() {
                writer.finish(Some(Bytes::from("end"))).await.unwrap();
                post.written.push(Bytes::from("end"));
            }
            for _ in 0..3 {
                reconnect(&self.log, &self.session, &mut post.client).await;
                read(&mut post.client, usize::MAX).await;
            }
            self.memory.check_invariants();
        }
        self.open_standalone().await;
        for _ in 0..2 {
            for client in self.standalone.iter_mut().rev() {
                self.told_of_loss |= reconnect(&self.log, &self.session, client).await;
                self.told_of_loss |= read(client, usize::MAX).await;
                client.reader = None;
                client.stuck = None;
            }
        }
        self.check_clients();
        for post in &self.posts {
            let client = &post.client;
            assert!(client.done, "every request ends");
            assert!(client.told_of_loss || client.payloads() == post.written);
        }
        let had: usize = self
            .standalone
            .iter()
            .map(|client| client.payloads().len())
            .sum();
        assert!(
            self.told_of_loss || had == self.published.len(),
            "nothing lost in silence"
        );
    }

    async fn close(self) -> Tally {
        let lost = self
            .posts
            .iter()
            .filter(|post| post.client.told_of_loss)
            .count();
        let tally = Tally {
            exact: self.posts.len() - lost,
            lost,
            exact_standalone: usize::from(!self.told_of_loss && self.published.len() > 5),
            lost_standalone: usize::from(self.told_of_loss),
            restarts: self.restarts,
        };
        self.log.forget_session(&self.session).await.unwrap();
        drop((self.posts, self.standalone));
        self.log.sweep().await.unwrap();
        let stats = self.memory.stats();
        assert_eq!((stats.sessions, stats.streams, stats.bytes), (0, 0, 0));
        assert_eq!(self.memory.tenants(), 0);
        tally
    }
}

/// Reads up to `count` events that are there; whether a loss was told.
async fn read(client: &mut Client, count: usize) -> bool {
    let standalone = client.stream.id.is_standalone();
    for _ in 0..count {
        let Some(reader) = &mut client.reader else {
            return client.told_of_loss;
        };
        let Ok(next) = timeout(Duration::from_millis(300), reader.next()).await else {
            return client.told_of_loss;
        };
        match next.unwrap() {
            Next::Event(entry) => client.had.push((entry.id.unwrap(), entry.payload)),
            Next::Caught(_) => panic!("the store is never away"),
            Next::Gap => {
                client.told_of_loss = true;
                if !standalone {
                    client.done = true;
                    client.reader = None;
                }
            }
            Next::Finished => {
                client.done = true;
                client.reader = None;
            }
            Next::Orphaned { .. } => panic!("orphans are finished in the step that makes them"),
            Next::Stopped(stop) => {
                // One that was evicted may be forgotten when the session opens many more.
                let expected = matches!(stop, Stop::Evicted | Stop::Forgotten);
                assert!(
                    standalone && expected,
                    "{stop:?} does not stop the newest reader"
                );
                client.reader = None;
            }
        }
    }
    client.told_of_loss
}

/// Comes back with the last id that was dispatched; whether a loss was told. An older connection
/// may still hang about.
async fn reconnect(log: &Arc<dyn StreamLog>, session: &SessionKey, client: &mut Client) -> bool {
    if client.done {
        return client.told_of_loss;
    }
    let last = client.had.last().expect("the beginning at least").0.clone();
    let resume = match log.resume(session, last.as_str()).await {
        Ok(resume) => resume,
        Err(error) => {
            assert!(matches!(error, LogError::Full(_)), "{error}");
            return client.told_of_loss; // refused in band; it tries again
        }
    };
    let (stream, after) = match resume {
        Resume::Replay { stream, after } | Resume::Ending { stream, after } => {
            let exact = after + 1 == client.had.len() as u64;
            assert!(exact || client.told_of_loss, "it stands where it said");
            (stream, after)
        }
        Resume::StandaloneGap { stream, after } => {
            client.told_of_loss = true;
            (stream, after)
        }
        Resume::LostPost { .. } | Resume::Unknown => {
            client.told_of_loss = true;
            client.done = true;
            client.reader = None;
            return true;
        }
        Resume::Finished => {
            client.done = true;
            client.reader = None;
            return client.told_of_loss;
        }
        other @ (Resume::Foreign | Resume::NoSession) => panic!("{other:?}"),
    };
    client.stuck = client.reader.take();
    client.reader = Some(log.attach(&stream, after).await.unwrap());
    client.stream = stream;
    client.told_of_loss
}

/// What histories ended in: a simulation in which everything is lost proves nothing.
#[derive(Debug, Default)]
struct Tally {
    exact: usize,
    lost: usize,
    exact_standalone: usize,
    lost_standalone: usize,
    restarts: usize,
}

async fn run(seed: u64, on_disk: bool) -> Tally {
    let mut world = World::new(seed, on_disk).await;
    for _ in 0..STEPS {
        world.step().await;
    }
    world.settle().await;
    world.close().await
}

fn in_paused_time(seed: u64, on_disk: bool) -> Tally {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(run(seed, on_disk))
}

fn every_history(on_disk: bool) -> Tally {
    if let Ok(seed) = std::env::var("VESTIBULE_SEED") {
        return in_paused_time(seed.parse().expect("VESTIBULE_SEED is a number"), on_disk);
    }
    let mut all = Tally::default();
    let seeds = if on_disk { SEEDS / 4 } else { SEEDS };
    for seed in 0..seeds {
        println!("seed {seed}");
        let one = in_paused_time(seed, on_disk);
        all.exact += one.exact;
        all.lost += one.lost;
        all.exact_standalone += one.exact_standalone;
        all.lost_standalone += one.lost_standalone;
        all.restarts += one.restarts;
    }
    println!("{all:?}");
    let enough = |count: usize, of_all: u64| count as u64 > of_all * seeds / SEEDS;
    assert!(enough(all.exact, 500) && enough(all.lost, 100), "{all:?}");
    let standalone = (all.exact_standalone, all.lost_standalone);
    assert!(
        enough(standalone.0, 20) && enough(standalone.1, 25),
        "{all:?}"
    );
    all
}

/// EL-13, EL-16: exact resumption, or a loss that is told, in every history.
#[test]
fn res_03_resumption_is_exact_or_the_loss_is_told_in_any_history() {
    every_history(false);
}

/// EL-27, EL-13: the same when the process is killed now and then.
#[test]
fn res_03_resumption_is_exact_or_the_loss_is_told_over_restarts() {
    let all = every_history(true);
    assert!(all.restarts > 300, "{all:?}");
}
