//! Several replicas on one real server.

use vestibule_terms::clock::SystemClock;
use vestibule_testkit::redis::RedisServer;

use super::*;
use crate::redis::tests::{PATIENCE, connect, until};

/// Short, so that the tests are; long enough for a busy machine.
const LEASE: Lease = Lease {
    ttl: Duration::from_secs(3),
    renew: Duration::from_millis(500),
};

async fn join(server: &RedisServer) -> Arc<RedisFleet> {
    let redis = connect(&server.url()).await;
    let fleet = RedisFleet::with_lease(redis, Arc::new(SystemClock), LEASE);
    until("it has its lease", async || fleet.may_act()).await;
    fleet
}

async fn liveness(of: &RedisFleet, by: &RedisFleet) -> Liveness {
    by.liveness(of.replica()).await.unwrap()
}

async fn until_dead(of: &RedisFleet, by: &RedisFleet) {
    let dead = async || liveness(of, by).await == Liveness::Dead;
    until("it is dead", dead).await;
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn receive(fleet: &RedisFleet) -> Command {
    let command = timeout(PATIENCE, fleet.receive()).await;
    command.expect("a command comes").unwrap()
}

/// Whoever says that it goes is believed at once: nobody need be sure of it.
#[tokio::test]
async fn who_speaks_is_alive_and_who_has_left_is_dead() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (a, b) = (join(&server).await, join(&server).await);
    assert_eq!(liveness(&a, &b).await, Liveness::Alive);
    assert_eq!(liveness(&a, &a).await, Liveness::Alive);
    a.leave().await.unwrap();
    assert!(!a.may_act());
    assert_eq!(liveness(&a, &b).await, Liveness::Dead);
    assert!(!b.send(a.replica(), bytes("too late")).await.unwrap());
}

/// Streams, section 1: nobody declares an owner dead until the store has been there for one full lease.
#[tokio::test]
async fn who_is_dropped_is_dead_when_its_lease_has_run_out() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let first = now();
    let (a, b) = (join(&server).await, join(&server).await);
    let name = a.replica().clone();
    drop(a);
    let dead = async || b.liveness(&name).await.unwrap() == Liveness::Dead;
    until("it is dead", dead).await;
    assert!(now() - first >= LEASE.ttl, "it waited for a whole lease");
    // EL-15: a replica that has just started need not wait again.
    let young = join(&server).await;
    assert_eq!(young.liveness(&name).await.unwrap(), Liveness::Dead);
    assert_eq!(liveness(&b, &young).await, Liveness::Alive);
}

#[tokio::test]
async fn a_store_that_lost_its_data_makes_nobody_dead() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (a, b) = (join(&server).await, join(&server).await);
    let gone = ReplicaId::random();
    let judges = async || b.liveness(&gone).await.unwrap() == Liveness::Dead;
    until("it judges", judges).await;
    server.ask(&["FLUSHALL"]);
    let seen = liveness(&a, &b).await;
    assert_ne!(seen, Liveness::Dead, "what it said is lost with all else");
    let alive = async || liveness(&a, &b).await == Liveness::Alive;
    until("it has spoken again", alive).await;
}

/// Streams, section 1: an owner acts only while its own lease has time left.
#[tokio::test]
async fn while_the_store_is_away_leases_run_out_and_nobody_is_dead() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (a, b) = (join(&server).await, join(&server).await);
    server.pause();
    assert!(a.may_act(), "for as long as its lease has time left");
    until("its lease has run out", async || !a.may_act()).await;
    assert_eq!(liveness(&b, &a).await, Liveness::Unknown);
    server.resume();
    until("it has its lease again", async || a.may_act()).await;
    assert_ne!(liveness(&b, &a).await, Liveness::Dead);
}

#[tokio::test]
async fn a_command_comes_until_it_is_done() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (a, b) = (join(&server).await, join(&server).await);
    assert!(a.send(b.replica(), bytes("one")).await.unwrap());
    let first = receive(&b).await;
    assert_eq!(first.bytes, "one");
    assert!(a.send(b.replica(), bytes("two")).await.unwrap());
    let second = receive(&b).await;
    assert_eq!(second.bytes, "two");
    b.done(second.token).await.unwrap();
    let again = receive(&b).await;
    assert_eq!(again, first, "what is not done comes again");
    b.done(again.token).await.unwrap();
    let next = tokio::spawn(async move { receive(&b).await.bytes });
    let b = ReplicaId::new(&next_replica(&a).await).unwrap();
    assert!(a.send(&b, bytes("three")).await.unwrap());
    assert_eq!(next.await.unwrap(), "three", "what is done does not");
}

/// The one other replica that `fleet` knows of.
async fn next_replica(fleet: &RedisFleet) -> String {
    let others = fleet.others().await.unwrap();
    assert_eq!(others.len(), 1);
    others[0].to_string()
}

#[tokio::test]
async fn a_replica_that_does_not_live_gets_no_commands() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let a = join(&server).await;
    let sent = a.send(&ReplicaId::random(), bytes("hello")).await;
    assert_eq!(sent, Ok(false));
}

#[tokio::test]
async fn an_inbox_is_bounded() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (a, b) = (join(&server).await, join(&server).await);
    for _ in 0..INBOX / 100 {
        let sent = (0..100).map(|_| a.send(b.replica(), bytes("x")));
        for sent in join_all(sent).await {
            assert_eq!(sent, Ok(true));
        }
    }
    let full = a.send(b.replica(), bytes("x")).await;
    assert_eq!(full, Err(StoreError::NoRoom("command")));
    let first = receive(&b).await;
    b.done(first.token).await.unwrap();
    assert_eq!(a.send(b.replica(), bytes("x")).await, Ok(true));
    let large = Bytes::from(vec![0; COMMAND_BYTES + 1]);
    let large = a.send(b.replica(), large).await;
    assert_eq!(large, Err(StoreError::NoRoom("command")));
}

#[tokio::test]
async fn everybody_else_hears_a_broadcast() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (a, b, c) = (
        join(&server).await,
        join(&server).await,
        join(&server).await,
    );
    a.broadcast(bytes("all")).await.unwrap();
    for fleet in [&b, &c] {
        assert_eq!(receive(fleet).await.bytes, "all");
    }
    let own = server.ask(&["XLEN", &key_of(&a, "inbox")]);
    assert_eq!(own, ":0\r\n", "but not who said it");
}

fn key_of(fleet: &RedisFleet, suffix: &str) -> String {
    let key = Slot::of_replica(fleet.replica()).key(suffix);
    String::from_utf8(key.as_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn what_a_dead_replica_left_goes_to_one_other() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (a, b, c) = (
        join(&server).await,
        join(&server).await,
        join(&server).await,
    );
    for name in ["s1", "s2", "s3"] {
        a.owns(bytes(name)).await.unwrap();
    }
    a.disowns(a.replica(), bytes("s2")).await.unwrap();
    for command in ["one", "two"] {
        assert!(b.send(a.replica(), bytes(command)).await.unwrap());
    }
    assert!(
        b.leftovers(a.replica()).await.unwrap().is_empty(),
        "it lives"
    );
    a.leave().await.unwrap();
    until_dead(&a, &b).await;
    until_dead(&a, &c).await;
    assert_eq!(c.dead().await.unwrap(), [a.replica().clone()]);

    let mut owned = c.owned_by(a.replica(), 10).await.unwrap();
    owned.sort();
    assert_eq!(owned, ["s1", "s3"]);
    assert_eq!(c.owned_by(a.replica(), 1).await.unwrap().len(), 1);

    let left = b.leftovers(a.replica()).await.unwrap();
    let said: Vec<_> = left.iter().map(|command| &command.bytes).collect();
    assert_eq!(said, ["one", "two"]);
    assert!(
        c.leftovers(a.replica()).await.unwrap().is_empty(),
        "b has them"
    );
    for command in left {
        b.done(command.token).await.unwrap();
    }
    assert!(
        b.leftovers(a.replica()).await.unwrap().is_empty(),
        "all is done"
    );
    assert_eq!(b.dead().await.unwrap(), [a.replica().clone()]);
    for name in ["s1", "s3"] {
        c.disowns(a.replica(), bytes(name)).await.unwrap();
    }
    assert!(c.dead().await.unwrap().is_empty(), "nothing is left of it");
    let known = b.others().await.unwrap();
    assert_eq!(known, [c.replica().clone()], "and it is forgotten");
    assert_eq!(liveness(&a, &b).await, Liveness::Dead, "but not alive");
}

/// What nobody keeps alive runs out by itself.
#[tokio::test]
async fn every_key_of_a_replica_has_an_end() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let (a, b) = (join(&server).await, join(&server).await);
    a.owns(bytes("s")).await.unwrap();
    b.send(a.replica(), bytes("x")).await.unwrap();
    let keys = server.ask(&["KEYS", "*"]);
    let keys: Vec<_> = keys
        .lines()
        .filter(|line| line.starts_with("vestibule"))
        .collect();
    assert!(keys.len() >= 6, "{keys:?}");
    for key in keys {
        let left = server.ask_number(&["PTTL", key]);
        assert!(left > 0, "{key} {left}");
    }
}
