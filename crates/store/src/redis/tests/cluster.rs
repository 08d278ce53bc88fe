//! A cluster of three primaries.

use vestibule_testkit::redis::RedisCluster;

use super::*;
use crate::redis::RedisFleet;
use crate::{Fleet, Liveness};

static COUNT: Script = Script::new("count", "return redis.call('INCR', KEYS[1])");

async fn count(redis: &Redis, tenant: &str) -> Result<i64, StoreError> {
    let slot = slot(tenant);
    let counted = redis.run(&COUNT, &slot, &[slot.key("x")], vec![]).await;
    counted.map(|counted| counted.int().unwrap())
}

/// The slot of the tenant's session, in a cluster whose slots nobody has moved.
fn hash_slot(cluster: &RedisCluster, tenant: &str) -> (u16, usize) {
    let tag = slot(tenant);
    let hash_slot = cluster.nodes[0].ask_number(&["CLUSTER", "KEYSLOT", tag.tag()]);
    let hash_slot = u16::try_from(hash_slot).unwrap();
    (
        hash_slot,
        usize::from(hash_slot) * cluster.nodes.len() / 16_384,
    )
}

#[tokio::test]
async fn el_24_every_slot_is_found_and_hints_come_from_every_node() {
    let Some(cluster) = RedisCluster::start(3) else {
        return;
    };
    let redis = connect(&cluster.url()).await;
    let tenants: Vec<_> = (0..32).map(|number| format!("tenant{number}")).collect();
    for round in 1..=2 {
        for tenant in &tenants {
            assert_eq!(count(&redis, tenant).await, Ok(round), "{tenant}");
        }
    }
    let written = cluster.nodes.iter();
    let written: Vec<_> = written.map(|node| node.ask_number(&["DBSIZE"])).collect();
    assert!(written.iter().all(|size| *size > 0), "{written:?}");
    assert_eq!(written.iter().sum::<i64>(), 32);
    until_hints_come(&redis).await;
}

#[tokio::test]
async fn el_23_a_slot_that_moved_is_followed() {
    let Some(cluster) = RedisCluster::start(3) else {
        return;
    };
    let redis = connect(&cluster.url()).await;
    assert_eq!(count(&redis, "first").await, Ok(1));
    let tenant = "other";
    let (moved, owner) = hash_slot(&cluster, tenant);
    let next = (owner + 1) % 3;
    cluster.move_slot(moved, next);
    assert_eq!(count(&redis, tenant).await, Ok(1));
    let keys = ["CLUSTER", "COUNTKEYSINSLOT", &moved.to_string()];
    assert_eq!(cluster.nodes[next].ask_number(&keys), 1);
}

/// A tenant whose session is on that node.
fn on_node(cluster: &RedisCluster, node: usize) -> String {
    let mut tenants = (0..).map(|number| format!("tenant{number}"));
    let found = tenants.find(|tenant| hash_slot(cluster, tenant).1 == node);
    found.unwrap()
}

/// A node that is down, or hangs, takes its own slots with it and no others.
#[tokio::test]
async fn el_23_the_other_nodes_of_a_cluster_go_on() {
    let Some(cluster) = RedisCluster::start(3) else {
        return;
    };
    let told = Arc::<Told>::default();
    let settings = Settings {
        command_timeout: Duration::from_millis(500),
        ..patient(&cluster.url())
    };
    let redis = Redis::open(settings, told.alarm()).unwrap();
    timeout(PATIENCE, redis.connected()).await.unwrap();
    let tenants = [0, 1, 2].map(|node| on_node(&cluster, node));
    for tenant in &tenants {
        assert_eq!(count(&redis, tenant).await, Ok(1));
    }
    cluster.nodes[1].pause();
    for round in 2..8 {
        assert!(is_away(&count(&redis, &tenants[1]).await));
        assert_eq!(count(&redis, &tenants[0]).await, Ok(round));
        assert_eq!(count(&redis, &tenants[2]).await, Ok(round));
    }
    cluster.nodes[1].resume();
    let back = async || count(&redis, &tenants[1]).await.is_ok();
    until("it is back", back).await;
    assert_eq!(told.all(), [RedisEvent::Up]);
    until_hints_come(&redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_23_a_node_that_is_replaced_is_followed() {
    let Some(mut cluster) = RedisCluster::start_with_replicas(3) else {
        return;
    };
    let redis = connect(&cluster.url()).await;
    let tenant = on_node(&cluster, 1);
    assert_eq!(count(&redis, &tenant).await, Ok(1));
    cluster.nodes[1].stop();
    let replaced = async || count(&redis, &tenant).await.is_ok();
    until("its replica has taken over", replaced).await;
    until_hints_come(&redis).await;
}

#[tokio::test]
async fn a_fleet_lives_on_a_cluster() {
    let Some(cluster) = RedisCluster::start(3) else {
        return;
    };
    let clock = Arc::new(vestibule_terms::clock::SystemClock);
    let mut fleets = Vec::new();
    for _ in 0..3 {
        let redis = connect(&cluster.url()).await;
        fleets.push(RedisFleet::open(redis, Arc::clone(&clock) as _));
    }
    for fleet in &fleets {
        until("it has its lease", async || fleet.may_act()).await;
    }
    let seen = fleets[0].liveness(fleets[1].replica()).await;
    assert_eq!(seen, Ok(Liveness::Alive));
    fleets[0]
        .broadcast(Bytes::from_static(b"all"))
        .await
        .unwrap();
    for fleet in &fleets[1..] {
        let command = timeout(PATIENCE, fleet.receive()).await.unwrap().unwrap();
        assert_eq!(command.bytes, "all");
        fleet.done(command.token).await.unwrap();
    }
}
