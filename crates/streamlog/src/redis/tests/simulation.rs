//! A seeded history of three replicas: writers, flaky clients that come back at any of them, kills
//! and lost hints, lost answers and lost data. `VESTIBULE_SEED` chooses one history; the server
//! and the threads of its clients add an order of their own.

mod client;

use std::collections::HashMap;

use client::Client;

use super::*;
use crate::simulation::Dice;
use crate::{LogError, Stop};

const SEEDS: u64 = 12;
const STEPS: usize = 120;
const LOST: &[u8] = b"outcome unknown";

/// A POST stream: what was written, and by which replica.
struct Post {
    writer: Option<Writer>,
    owner: usize,
    /// The store has its end.
    safe: bool,
    written: Vec<Bytes>,
    /// Its writer was killed: what was not stored by then is gone, and somebody else ends it.
    cut: bool,
    client: Client,
}

struct World {
    dice: Dice,
    replicas: Replicas,
    /// All there ever were, and whether they live.
    started: Vec<(Replica, bool)>,
    posts: Vec<Post>,
    standalone: Vec<Client>,
    published: Vec<Bytes>,
    told_of_loss: bool,
    /// Whether hints are lost in this history, or data.
    deaf: bool,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    events: usize,
    resumes: usize,
    kills: usize,
    taken_over: usize,
    emptied: usize,
}

impl World {
    fn new(seed: u64, replicas: Replicas) -> Self {
        ask(&["FLUSHALL"]);
        let started = (0..3).map(|_| (replicas.start(), true)).collect();
        Self {
            dice: Dice(seed),
            replicas,
            started,
            posts: vec![],
            standalone: vec![],
            published: vec![],
            told_of_loss: false,
            deaf: seed.is_multiple_of(2),
            tally: Tally::default(),
        }
    }

    /// One of the replicas that live.
    fn any(&mut self) -> usize {
        let mut living: Vec<usize> = (0..self.started.len())
            .filter(|index| self.started[*index].1)
            .collect();
        *self.dice.pick(&mut living).expect("three live")
    }

    fn payload(&mut self) -> Bytes {
        self.tally.events += 1;
        text(&format!("event {}", self.tally.events))
    }

    async fn step(&mut self) {
        match self.dice.below(20) {
            0 | 1 => self.open_post().await,
            2 => self.open_standalone().await,
            3..=6 => self.write().await,
            7 => self.finish().await,
            8 | 9 => self.publish().await,
            10..=12 => self.read_some().await,
            13 => self.disconnect(),
            14 | 15 => self.reconnect_one().await,
            16 => self.kill().await,
            17 => self.lose_answers().await,
            18 => self.trouble(),
            _ => self.pass_time().await,
        }
        self.check();
    }

    async fn open_post(&mut self) {
        let at = self.any();
        let log = Arc::clone(&self.started[at].0.any);
        let writer = Writer::open(&log, &mine(), texts(["7"]).to_vec())
            .await
            .unwrap();
        let reader = log.attach(writer.stream(), 0).await.unwrap();
        let client = Client::new(writer.opened(), (at, reader));
        self.posts.push(Post {
            writer: Some(writer),
            owner: at,
            safe: false,
            written: vec![],
            cut: false,
            client,
        });
    }

    async fn open_standalone(&mut self) {
        let at = self.any();
        let (opened, reader) = self.started[at].0.standalone().await;
        self.standalone.push(Client::new(&opened, (at, reader)));
    }

    async fn write(&mut self) {
        let batch: Vec<Bytes> = (0..=self.dice.below(4)).map(|_| self.payload()).collect();
        let mut open: Vec<&mut Post> = self
            .posts
            .iter_mut()
            .filter(|post| post.writer.is_some())
            .collect();
        let Some(post) = self.dice.pick(&mut open) else {
            return;
        };
        let writer = post.writer.as_ref().expect("it is open");
        writer.append(batch.clone()).await.unwrap();
        post.written.extend(batch);
    }

    async fn finish(&mut self) {
        let last = self.payload();
        let at_once = self.dice.below(2) == 0;
        let mut open: Vec<&mut Post> = self
            .posts
            .iter_mut()
            .filter(|post| post.writer.is_some())
            .collect();
        let Some(post) = self.dice.pick(&mut open) else {
            return;
        };
        let writer = post.writer.take().expect("it is open");
        writer.finish(Some(last.clone())).await.unwrap();
        post.written.push(last);
        if at_once {
            self.started[post.owner].0.shipped().await;
            post.safe = true;
        }
    }

    async fn publish(&mut self) {
        let payload = self.payload();
        let at = self.any();
        let event = Event {
            class: Class::Message,
            payload: payload.clone(),
        };
        self.started[at]
            .0
            .any
            .publish(&mine(), vec![event])
            .await
            .unwrap();
        self.published.push(payload);
    }

    /// A client of all there are.
    fn client(&mut self) -> Option<&mut Client> {
        let index = self
            .dice
            .below((self.posts.len() + self.standalone.len()).max(1));
        match self.posts.len() {
            posts if index < posts => Some(&mut self.posts[index].client),
            posts => self.standalone.get_mut(index - posts),
        }
    }

    async fn read_some(&mut self) {
        let count = self.dice.below(6);
        if let Some(client) = self.client() {
            self.told_of_loss |= client.read(count).await;
        }
    }

    /// A connection breaks; what was on its way was never dispatched.
    fn disconnect(&mut self) {
        let in_flight = self.dice.below(3);
        if let Some(client) = self.client().filter(|client| !client.done) {
            client.reader = None;
            let kept = client.had.len().saturating_sub(in_flight).max(1);
            client.had.truncate(kept);
        }
    }

    async fn reconnect_one(&mut self) {
        let at = self.any();
        let log = Arc::clone(&self.started[at].0.any);
        self.tally.resumes += 1;
        if let Some(client) = self.client() {
            self.told_of_loss |= client.reconnect(at, &log).await;
        }
    }

    /// A replica is killed and another one takes its place.
    async fn kill(&mut self) {
        let at = self.any();
        self.tally.kills += 1;
        self.started[at].0.kill();
        self.started[at].1 = false;
        for post in &mut self.posts {
            if post.owner == at && !post.safe {
                post.writer = None;
                post.cut = true;
            }
        }
        let posts = self.posts.iter_mut().map(|post| &mut post.client);
        for client in posts.chain(&mut self.standalone) {
            client.reader.take_if(|(reads, _)| *reads == at);
        }
        self.started.push((self.replicas.start(), true));
        self.sweep().await;
    }

    /// Answers of a replica to what it appends are lost for a moment.
    async fn lose_answers(&mut self) {
        let at = self.any();
        self.started[at].0.goes(Way::Unanswered);
        self.write().await;
        self.write().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.started[at].0.goes(Way::Open);
    }

    /// A replica becomes deaf, or the store loses all there is of streams whose owners live. Not in
    /// one history: who does not hear that he should repair something may do it too late.
    fn trouble(&mut self) {
        let at = self.any();
        if self.deaf {
            let deaf = self.dice.below(2) == 0;
            self.started[at].0.fate().deaf.send_replace(deaf);
            return;
        }
        let lives = |post: &Post| !post.cut && self.started[post.owner].1;
        let whole = self
            .posts
            .iter()
            .all(|post| lives(post) || post.client.done);
        if self.dice.below(4) == 0 && whole {
            self.tally.emptied += 1;
            for post in &mut self.posts {
                post.safe = false; // until its owner is asked, or appends something
            }
            for key in keys_of("m:").into_iter().chain(keys_of("e:")) {
                ask(&["DEL", &key]);
            }
        }
    }

    async fn pass_time(&mut self) {
        let seconds = [1, 1, 5, 5, 10, 20][self.dice.below(6)];
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.sweep().await;
    }

    async fn sweep(&mut self) {
        for at in 0..self.started.len() {
            let (replica, lives) = &self.started[at];
            if !lives {
                continue;
            }
            for orphan in replica.any.sweep().await.unwrap().orphans {
                self.tally.taken_over += 1;
                let lost = Some(Bytes::from_static(LOST));
                let ended = replica.any.finish(&orphan.stream, lost).await;
                assert!(matches!(ended, Ok(_) | Err(LogError::Ended)), "{ended:?}");
            }
        }
    }

    fn check(&self) {
        for post in &self.posts {
            post.check();
        }
        let mut seen = HashMap::new();
        for client in &self.standalone {
            let had = client.payloads();
            let order = |payload: &Bytes| self.published.iter().position(|one| one == payload);
            assert!(had.iter().is_sorted_by_key(order), "in order");
            for payload in had {
                let before = seen.insert(payload, client.stream.id);
                assert_eq!(before, None, "one message, one stream, once");
            }
        }
    }

    /// Everybody comes back for the rest. Nothing may be missing without a word.
    async fn settle(&mut self) {
        for post in &mut self.posts {
            if let Some(writer) = post.writer.take() {
                writer.finish(Some(text("end"))).await.unwrap();
                post.written.push(text("end"));
            }
        }
        self.sweep().await;
        for index in 0..self.posts.len() {
            for _ in 0..3 {
                let at = self.any();
                let log = Arc::clone(&self.started[at].0.any);
                let client = &mut self.posts[index].client;
                client.reconnect(at, &log).await;
                client.read(usize::MAX).await;
            }
            let post = &self.posts[index];
            post.check();
            assert!(post.client.done, "every request ends");
            let whole = post.cut || post.client.payloads() == post.written;
            assert!(post.client.told_of_loss || whole, "{:?}", post.written);
            assert!(
                !post.client.told_of_loss || post.cut,
                "whoever lives repairs"
            );
        }
        self.open_standalone().await;
        for _ in 0..2 {
            for index in (0..self.standalone.len()).rev() {
                let at = self.any();
                let log = Arc::clone(&self.started[at].0.any);
                let client = &mut self.standalone[index];
                self.told_of_loss |= client.reconnect(at, &log).await;
                self.told_of_loss |= client.read(usize::MAX).await;
                client.reader = None;
            }
        }
        self.check();
        let had: usize = self
            .standalone
            .iter()
            .map(|client| client.had.len() - 1)
            .sum();
        let all = had == self.published.len();
        assert!(
            self.told_of_loss || all,
            "{had} of {}",
            self.published.len()
        );
    }
}

impl Post {
    /// What the client has is the beginning of what was written, each event once; after a kill
    /// somebody else's end may follow.
    fn check(&self) {
        let had = self.client.payloads();
        let mine = match had.split_last() {
            Some((last, before)) if self.cut && last == LOST => before,
            _ => &had[..],
        };
        assert!(mine.len() <= self.written.len());
        assert_eq!(
            mine,
            &self.written[..mine.len()],
            "the beginning, once, in order"
        );
    }
}

/// EL-13, EL-14, EL-16: resumption at any replica is exact or the loss is told, every request has
/// one end, and no message is sent twice.
#[test]
fn el_16_resumption_is_exact_in_any_history_of_three_replicas() {
    let chosen = std::env::var("VESTIBULE_SEED").ok();
    let seeds = match chosen.map(|seed| seed.parse().expect("a number")) {
        Some(seed) => seed..seed + 1,
        None => 0..SEEDS,
    };
    let whole = seeds.end - seeds.start == SEEDS;
    let mut all = Tally::default();
    for seed in seeds {
        let Some(replicas) = Replicas::new() else {
            return;
        };
        println!("seed {seed}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let one = runtime.block_on(async move {
            let mut world = World::new(seed, replicas);
            for _ in 0..STEPS {
                world.step().await;
            }
            world.settle().await;
            world.tally
        });
        all.events += one.events;
        all.resumes += one.resumes;
        all.kills += one.kills;
        all.taken_over += one.taken_over;
        all.emptied += one.emptied;
    }
    println!("{all:?}");
    let enough = all.events > 800 && all.kills > 40 && all.taken_over > 20 && all.emptied > 3;
    assert!(enough || !whole, "{all:?}");
}
