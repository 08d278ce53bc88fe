//! The trait suite over a real server, and what only several replicas can show.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use vestibule_terms::clock::ManualClock;
use vestibule_terms::{Revision, SessionId};
use vestibule_testkit::redis::{RedisCluster, RedisServer};

use super::*;
use crate::redis::Slot;
use crate::redis::tests::{apart, connect, until};
use crate::{EndReason, OpenStream, StoreError, suite};

fn makes(url: String) -> impl Fn(Lifetimes, Arc<dyn Clock>) -> Arc<dyn Sessions> {
    move |lifetimes, clock| Arc::new(RedisSessions::new(apart(&url), lifetimes, clock))
}

mod the_suite {
    use super::*;

    fn make(server: &RedisServer) -> impl Fn(Lifetimes, Arc<dyn Clock>) -> Arc<dyn Sessions> {
        makes(server.url())
    }

    suite::tests!(server: RedisServer::start(), make);
}

#[tokio::test(start_paused = true)]
async fn el_24_the_suite_on_a_cluster() {
    let Some(cluster) = RedisCluster::start(3) else {
        return;
    };
    let make = makes(cluster.url());
    // A store that was dropped may still be saying that its streams are closed.
    let empty = || {
        for node in &cluster.nodes {
            while node.ask(&["CLIENT", "LIST"]).matches("id=").count() > 1 {
                std::thread::sleep(Duration::from_millis(5));
            }
            node.ask(&["FLUSHALL"]);
        }
    };
    suite::tests!(all make, empty);
}

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;
/// Any moment but the first.
const NOON: u64 = 1_000 * DAY;

/// Several replicas on one server, whose clocks are one.
struct World {
    server: RedisServer,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Option<Self> {
        Some(Self {
            server: RedisServer::start()?,
            clock: Arc::new(ManualClock::at(NOON)),
        })
    }

    async fn replica(&self) -> Arc<dyn Sessions> {
        let redis = connect(&self.server.url()).await;
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        Arc::new(RedisSessions::new(redis, Lifetimes::default(), clock))
    }

    fn keys(&self) -> Vec<String> {
        let keys = self.server.ask(&["KEYS", "*"]);
        let keys = keys.lines().filter(|line| line.starts_with("vestibule"));
        keys.map(str::to_owned).collect()
    }
}

fn key(id: &str) -> SessionKey {
    key_of("acme", id)
}

fn key_of(tenant: &str, id: &str) -> SessionKey {
    SessionKey::new(&suite::tenant(tenant), "alice", &SessionId::new(id))
}

async fn create(sessions: &Arc<dyn Sessions>, id: &str) -> SessionKey {
    let key = key(id);
    let created = sessions.create(key.clone(), suite::opening(), Caps::default());
    created.await.unwrap();
    key
}

async fn is_there(sessions: &Arc<dyn Sessions>, key: &SessionKey) -> bool {
    sessions.get(key).await.unwrap().is_some()
}

#[tokio::test]
async fn a_session_is_one_on_every_replica() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.replica().await, world.replica().await);
    let key = create(&a, "s").await;
    let there = b.get(&key).await.unwrap().unwrap();
    assert_eq!(*there.opening, suite::opening());
    let state = State {
        initialized: true,
        log_level: Some(Arc::from("debug")),
        subscriptions: [Arc::from("file:///ü")].into(),
        next_question: u64::MAX,
    };
    let Update::Done(changed) = b.update(&key, 1, state.clone()).await.unwrap() else {
        panic!("it was version 1");
    };
    assert_eq!(*changed.state, state);
    let late = a.update(&key, 1, State::default()).await.unwrap();
    assert!(matches!(late, Update::Conflict(now) if *now.state == state));
    let keep = a.keep(&key, Kind::Question, "q", Bytes::from_static(b"open"));
    assert!(keep.await.unwrap().unwrap().mine);
    let answers = [&a, &b].map(|replica| {
        let answered = Some(Bytes::from_static(b"answered"));
        replica.swap_kept(&key, Kind::Question, "q", b"open", answered)
    });
    let answered = join_all(answers).await;
    let first = answered.into_iter().filter(|one| *one == Ok(true)).count();
    assert_eq!(first, 1, "a question is answered once in the fleet");
}

/// What another replica does is seen a second later at most.
#[tokio::test]
async fn what_was_seen_is_good_for_a_second() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.replica().await, world.replica().await);
    let key = create(&a, "s").await;
    assert!(is_there(&b, &key).await);
    a.end(&key).await.unwrap().unwrap();
    assert!(!is_there(&a, &key).await, "own changes are seen at once");
    assert!(is_there(&b, &key).await);
    world.clock.advance(SECOND);
    assert!(!is_there(&b, &key).await);
}

/// A use is written down once a second at most.
#[tokio::test]
async fn a_busy_session_costs_one_look_up_a_second() {
    let Some(world) = World::new() else { return };
    let sessions = world.replica().await;
    let key = create(&sessions, "s").await;
    let commands = || {
        let stats = world.server.ask(&["INFO", "commandstats"]);
        let line = stats
            .lines()
            .find(|line| line.starts_with("cmdstat_evalsha"));
        let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    sessions.touch(&key).await.unwrap().unwrap();
    let before = commands();
    for _ in 0..100 {
        sessions.touch(&key).await.unwrap().unwrap();
        sessions.get(&key).await.unwrap().unwrap();
    }
    assert_eq!(commands(), before);
    world.clock.advance(SECOND);
    let touched = sessions.touch(&key).await.unwrap().unwrap();
    assert_eq!(touched.last_seen, NOON + SECOND);
    assert_eq!(commands(), before + 1);
}

/// Case 65: nothing of a session is left when it has ended, whoever ended it, and nothing of the tenant
/// either.
#[tokio::test]
async fn case_65_nothing_outlives_its_session() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.replica().await, world.replica().await);
    for id in ["ended", "idle", "streaming"] {
        let key = create(&a, id).await;
        let keep = b.keep(&key, Kind::Question, "c", Bytes::from_static(b"x"));
        keep.await.unwrap().unwrap();
    }
    let _stream = OpenStream::begin(&b, &key("streaming"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(world.keys().len(), 3 * 2 + 1 + 5 + 1, "{:?}", world.keys());
    b.end(&key("ended")).await.unwrap().unwrap();
    world.clock.advance(DAY);
    let swept = join_all([a.sweep(), b.sweep()]).await;
    let swept: Vec<_> = swept.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(swept.len(), 1, "handed out once in the fleet");
    assert_eq!(swept[0].session.key, key("idle"));
    assert_eq!(
        (swept[0].reason, swept[0].belongings.len()),
        (EndReason::Idle, 1)
    );
    b.end(&key("streaming")).await.unwrap().unwrap();
    assert_eq!(b.count(&suite::tenant("acme"), None).await.unwrap(), 0);
    world.clock.advance(DAY);
    assert!(a.sweep().await.unwrap().is_empty());
    assert!(world.keys().is_empty(), "{:?}", world.keys());
}

/// Case 63: the session that makes room is the one that was used least recently, also of many whose
/// use the index has not heard of yet.
#[tokio::test]
async fn case_63_a_session_in_use_does_not_make_room() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.replica().await, world.replica().await);
    let caps = Caps {
        per_principal: 60,
        per_tenant: 100,
    };
    let open = async |id: &str| {
        let created = a.create(key(id), suite::opening(), caps).await.unwrap();
        let evicted = created.evicted.into_iter();
        let ids = evicted.map(|ended| ended.session.key.id().expose().to_owned());
        ids.collect::<Vec<_>>()
    };
    for number in 0..50 {
        assert!(open(&format!("busy-{number}")).await.is_empty());
    }
    world.clock.advance(SECOND);
    for number in 0..10 {
        assert!(open(&format!("left-{number}")).await.is_empty());
    }
    world.clock.advance(SECOND);
    for number in 0..50 {
        let touched = b.touch(&key(&format!("busy-{number}"))).await;
        assert!(touched.unwrap().is_some());
    }
    for number in 0..10 {
        let evicted = open(&format!("new-{number}")).await;
        assert!(evicted[0].starts_with("left-"), "{evicted:?}");
        assert_eq!(evicted.len(), 1);
    }
}

/// Every replica knows how many sessions the store has, whoever opened and ended them, from its last
/// sweep: that of a tenant which could not be swept tells nothing.
#[tokio::test]
async fn every_replica_knows_how_many_sessions_there_are() {
    let Some(world) = World::new() else { return };
    let replicas = [world.replica().await, world.replica().await];
    let [a, b] = &replicas;
    let old = Opening {
        revision: Revision::R2025_06_18,
        ..suite::opening()
    };
    a.create(key("old"), old, Caps::default()).await.unwrap();
    for (tenant, id) in [("acme", "new"), ("acme", "newer"), ("other", "new")] {
        let create = a.create(key_of(tenant, id), suite::opening(), Caps::default());
        create.await.unwrap();
    }
    assert_eq!(b.census().unwrap(), [], "not counted yet");
    let counted = async |expected: &[(&str, Revision, usize)]| {
        for replica in &replicas {
            replica.sweep().await.unwrap();
            let mut found: Vec<_> = replica.census().unwrap();
            found.sort_by(|a, b| (a.tenant.as_str(), a.live).cmp(&(b.tenant.as_str(), b.live)));
            let found = found.iter();
            let found: Vec<_> = found
                .map(|some| (some.tenant.as_str(), some.revision, some.live))
                .collect();
            assert_eq!(found, expected);
        }
    };
    let (old, new) = (Revision::R2025_06_18, suite::opening().revision);
    counted(&[("acme", old, 1), ("acme", new, 2), ("other", new, 1)]).await;
    b.end(&key("old")).await.unwrap().unwrap();
    assert_eq!(b.end(&key("old")).await.unwrap(), None, "counted once");
    a.end(&key("new")).await.unwrap().unwrap();
    counted(&[("acme", new, 1), ("other", new, 1)]).await;
    world.clock.advance(DAY);
    let swept = join_all(replicas.iter().map(|replica| replica.sweep())).await;
    assert_eq!(swept.into_iter().flat_map(Result::unwrap).count(), 2);
    counted(&[]).await;
}

/// The streams of a replica that is dead stop counting.
#[tokio::test]
async fn streams_of_the_dead_do_not_keep_a_session_for_ever() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.replica().await, world.replica().await);
    let key = create(&a, "s").await;
    let of_a = OpenStream::begin(&a, &key).await.unwrap().unwrap();
    let of_b = OpenStream::begin(&b, &key).await.unwrap().unwrap();
    assert_eq!(b.get(&key).await.unwrap().unwrap().streams_open, 2);
    std::mem::forget(of_a); // killed
    drop(a);
    for _ in 0..4 {
        world.clock.advance(MINUTE);
        b.sweep().await.unwrap();
    }
    assert_eq!(b.get(&key).await.unwrap().unwrap().streams_open, 1);
    drop(of_b);
    let closed = async || b.touch(&key).await.unwrap().unwrap().streams_open == 0;
    until("it is closed", closed).await;
    world.clock.advance(DAY);
    assert_eq!(b.sweep().await.unwrap().len(), 1);
}

/// SES-03: a stream that stays open keeps its session, over any number of deadlines.
#[tokio::test]
async fn ses_03_an_open_stream_keeps_its_session() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.replica().await, world.replica().await);
    let key = create(&a, "s").await;
    let _stream = OpenStream::begin(&a, &key).await.unwrap().unwrap();
    for _ in 0..3 {
        world.clock.advance(DAY);
        a.sweep().await.unwrap();
        assert!(b.sweep().await.unwrap().is_empty());
        assert_eq!(b.get(&key).await.unwrap().unwrap().streams_open, 1);
    }
}

/// Case 63: replicas that create at the same time keep the cap, and each session that makes room is
/// handed out once.
#[tokio::test]
async fn case_63_the_caps_hold_over_all_replicas() {
    let Some(world) = World::new() else { return };
    let replicas = [world.replica().await, world.replica().await];
    let caps = Caps {
        per_principal: 5,
        per_tenant: 100,
    };
    let mut evicted = 0;
    for round in 0..10 {
        let names = (0..8).map(|number| key(&format!("{round}-{number}")));
        let creates = names
            .enumerate()
            .map(|(number, key)| replicas[number % 2].create(key, suite::opening(), caps));
        for created in join_all(creates).await {
            evicted += created.unwrap().evicted.len();
        }
        world.clock.advance(1);
    }
    let tenant = suite::tenant("acme");
    let count = replicas[0].count(&tenant, Some("alice")).await.unwrap();
    let listed = replicas[1].list(&tenant, 100).await.unwrap();
    assert_eq!((count, listed.len(), evicted), (5, 5, 75));
}

/// Streams, section 1: live sessions go on while the store is away; unknown ones and new ones do not.
#[tokio::test]
async fn el_22_while_the_store_is_away_what_was_seen_goes_on() {
    let Some(mut world) = World::new() else {
        return;
    };
    let (a, b) = (world.replica().await, world.replica().await);
    let (seen, other) = (create(&a, "seen").await, create(&b, "other").await);
    world.server.stop();
    world.clock.advance(MINUTE);
    assert!(is_there(&a, &seen).await);
    assert!(a.touch(&seen).await.unwrap().is_some());
    let stream = OpenStream::begin(&a, &seen).await.unwrap();
    assert!(stream.is_some());
    let away = |error| matches!(error, StoreError::Unavailable(_));
    assert!(
        away(a.get(&other).await.unwrap_err()),
        "unknown is not gone"
    );
    let created = a.create(key("new"), suite::opening(), Caps::default());
    assert!(away(created.await.unwrap_err()));
    assert!(away(
        a.update(&seen, 1, State::default()).await.unwrap_err()
    ));
    assert!(away(a.end(&seen).await.unwrap_err()));
    assert!(
        is_there(&a, &seen).await,
        "what was not done changes nothing"
    );
    assert!(away(a.sweep().await.unwrap_err()));
    drop(stream);
    world.clock.advance(5 * MINUTE);
    let gone = a.get(&seen).await.unwrap_err();
    assert!(away(gone), "after five minutes nothing is known");
}

/// What was counted while the store was away is written down when it is back.
#[tokio::test]
async fn el_22_streams_that_opened_meanwhile_are_counted_afterwards() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.replica().await, world.replica().await);
    let key = create(&a, "s").await;
    world.server.pause();
    let stream = OpenStream::begin(&a, &key).await.unwrap();
    assert!(stream.is_some());
    world.server.resume();
    let counted = async || {
        world.clock.advance(SECOND);
        a.sweep().await.is_ok()
            && b.get(&key)
                .await
                .is_ok_and(|it| it.unwrap().streams_open == 1)
    };
    until("it is counted", counted).await;
}

/// A name in the index whose session was never stored is no obstacle and does not stay.
#[tokio::test]
async fn a_session_that_was_half_created_is_nothing() {
    let Some(world) = World::new() else { return };
    let sessions = world.replica().await;
    let key = create(&sessions, "s").await;
    let name = Slot::of(&key).key("s");
    let name = std::str::from_utf8(name.as_bytes()).unwrap();
    world.server.ask(&["DEL", name]); // as if the second script had never run
    world.clock.advance(SECOND);
    assert!(!is_there(&sessions, &key).await);
    let listed = sessions.list(&suite::tenant("acme"), 10).await.unwrap();
    assert!(listed.is_empty());
    create(&sessions, "s").await;
    world.server.ask(&["DEL", name]);
    world.clock.advance(DAY);
    assert!(sessions.sweep().await.unwrap().is_empty());
    let count = sessions.count(&suite::tenant("acme"), None).await;
    assert_eq!(count.unwrap(), 0);
}

/// A session that is used is in the index again, should the index have lost it.
#[tokio::test]
async fn a_lost_index_is_made_again_by_use() {
    let Some(world) = World::new() else { return };
    let sessions = world.replica().await;
    let key = create(&sessions, "s").await;
    let lost = world.keys().into_iter().filter(|key| {
        let suffix = key.split("}:").nth(1).unwrap();
        suffix.starts_with("places") || suffix.starts_with("ages") || suffix.starts_with("uses")
    });
    for key in lost {
        world.server.ask(&["DEL", &key]);
    }
    let tenant = suite::tenant("acme");
    assert_eq!(sessions.count(&tenant, None).await.unwrap(), 0);
    world.clock.advance(MINUTE);
    sessions.touch(&key).await.unwrap().unwrap();
    assert_eq!(sessions.count(&tenant, Some("alice")).await.unwrap(), 1);
    assert_eq!(sessions.list(&tenant, 9).await.unwrap().len(), 1);
}

/// Ended sessions are handed out even when whoever asked has gone away.
#[tokio::test]
async fn what_ended_for_nobody_is_handed_out_by_the_sweep() {
    let Some(world) = World::new() else { return };
    let redis = connect(&world.server.url()).await;
    let clock = Arc::clone(&world.clock) as Arc<dyn Clock>;
    let sessions = RedisSessions::new(redis, Lifetimes::default(), clock);
    let mine = key("s");
    let created = sessions.create(mine.clone(), suite::opening(), Caps::default());
    created.await.unwrap();
    let (index, entry) = (sessions.0.index(mine.tenant()), index::Entry::of(&mine));
    let why = vec![Bytes::from_static(b"requested")];
    let ended = sessions.0.finish(&index, &entry, NOON, why).await.unwrap();
    drop(ended);
    let swept = sessions.sweep().await.unwrap();
    assert_eq!(swept[0].session.key, mine);
    assert!(sessions.sweep().await.unwrap().is_empty());
}

/// What no replica looks at runs out by itself.
#[tokio::test]
async fn every_key_of_a_session_has_an_end() {
    let Some(world) = World::new() else { return };
    let sessions = world.replica().await;
    let key = create(&sessions, "s").await;
    let keep = sessions.keep(&key, Kind::Question, "c", Bytes::from_static(b"x"));
    keep.await.unwrap().unwrap();
    let _stream = OpenStream::begin(&sessions, &key).await.unwrap().unwrap();
    for key in world.keys() {
        let left = world.server.ask_number(&["PTTL", &key]);
        assert!(left > DAY.cast_signed(), "{key} {left}");
    }
}
