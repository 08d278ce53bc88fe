//! A primary that is replaced, as sentinels do it.

use vestibule_testkit::redis::Sentinels;

use super::*;

static COUNT: Script = Script::new("count", "return redis.call('INCR', KEYS[1])");

async fn count(redis: &Redis) -> Result<Reply, StoreError> {
    let slot = slot("acme");
    redis.run(&COUNT, &slot, &[slot.key("x")], vec![]).await
}

/// The old primary lives and answers READONLY.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_23_the_new_primary_is_found_while_the_old_one_lives() {
    let Some(sentinels) = Sentinels::start() else {
        return;
    };
    let redis = connect(&sentinels.url()).await;
    assert_eq!(count(&redis).await.unwrap().int(), Some(1));
    tokio::task::block_in_place(|| sentinels.fail_over());
    let slot = slot("acme");
    let key = slot.key("x");
    let key = std::str::from_utf8(key.as_bytes()).unwrap();
    // The old one takes writes, and loses them, until a sentinel tells it that it is a replica.
    until("the new one is written to", async || {
        let counted = count(&redis).await.is_ok();
        counted && sentinels.replica.ask(&["GET", key]).lines().nth(1) == Some("2")
    })
    .await;
    until_hints_come(&redis).await;
}

/// The old primary is killed, and a sentinel too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_23_the_new_primary_is_found_when_the_old_one_is_dead() {
    let Some(mut sentinels) = Sentinels::start() else {
        return;
    };
    let told = Arc::<Told>::default();
    let redis = Redis::open(patient(&sentinels.url()), told.alarm()).unwrap();
    timeout(PATIENCE, redis.connected()).await.unwrap();
    count(&redis).await.unwrap();
    sentinels.primary.stop();
    assert!(is_away(&count(&redis).await));
    until("the new one is found", async || count(&redis).await.is_ok()).await;
    until_hints_come(&redis).await;
    let told = told.all();
    assert_eq!(told.first(), Some(&RedisEvent::Up));
    assert_eq!(told.last(), Some(&RedisEvent::Up));
    assert!(told.len() == 3, "one outage: {told:?}");
}
