//! One server that stops, hangs, forgets and refuses.

use futures_util::future::join_all;
use vestibule_testkit::redis::RedisServer;

use super::*;

/// What takes no longer has not waited for a server.
const AT_ONCE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_script_answers_with_numbers_texts_and_lists() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let redis = connect(&server.url()).await;
    let Reply::List(parts) = echo(&redis, "hi").await.unwrap() else {
        panic!("it answers with a list");
    };
    assert_eq!(parts[0].text(), Some("hi"));
    assert_eq!(parts[1].int(), Some(1));
    assert!(parts[2].is_nil());
    let key = slot("acme").key("x").to_bytes();
    assert_eq!(parts[3].list(), [Reply::Text(key)]);
}

#[tokio::test]
async fn el_23_a_script_that_the_server_forgot_is_sent_again() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let redis = connect(&server.url()).await;
    echo(&redis, "one").await.unwrap();
    server.ask(&["SCRIPT", "FLUSH"]);
    echo(&redis, "two").await.unwrap();
    let stats = server.ask(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_eval:calls=2"), "{stats}");
}

#[tokio::test]
async fn el_10_hints_come_also_after_a_reconnect() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let redis = connect(&server.url()).await;
    until_hints_come(&redis).await;
    server.stop();
    server.start_again();
    until_hints_come(&redis).await;
}

#[tokio::test]
async fn el_23_the_breaker_is_open_while_nothing_answers() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let told = Arc::<Told>::default();
    let redis = Redis::open(patient(&server.url()), told.alarm()).unwrap();
    timeout(PATIENCE, redis.connected()).await.unwrap();
    server.stop();
    until("it is away", async || {
        assert!(is_away(&echo(&redis, "x").await));
        told.all().len() == 2
    })
    .await;
    let start = Instant::now();
    for _ in 0..100 {
        assert!(is_away(&echo(&redis, "x").await));
    }
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    server.start_again();
    timeout(PATIENCE, redis.connected()).await.unwrap();
    echo(&redis, "back").await.unwrap();
    let told = told.all();
    assert!(
        matches!(
            told[..],
            [RedisEvent::Up, RedisEvent::Down(_), RedisEvent::Up]
        ),
        "{told:?}"
    );
}

/// A client that starts before its server waits for it, and no caller for long.
#[tokio::test]
async fn el_23_a_server_may_come_later_than_its_client() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    server.stop();
    let redis = Redis::open(patient(&server.url()), Arc::new(|_event| {})).unwrap();
    assert!(is_away(&echo(&redis, "x").await));
    server.start_again();
    timeout(PATIENCE, redis.connected()).await.unwrap();
    echo(&redis, "x").await.unwrap();
}

#[tokio::test]
async fn el_23_a_server_that_hangs_is_left_after_the_time_out() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let redis = connect(&server.url()).await;
    echo(&redis, "x").await.unwrap();
    server.pause();
    let start = Instant::now();
    assert!(is_away(&echo(&redis, "x").await));
    let took = start.elapsed();
    let limit = patient("").command_timeout;
    assert!(took >= limit && took < limit * 2, "{took:?}");
    server.resume();
    let back = async || echo(&redis, "x").await.is_ok();
    until("it is back", back).await;
}

/// READONLY is the primary gone elsewhere, and its coming back is found.
#[tokio::test]
async fn el_23_a_primary_that_became_a_replica_is_left() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    static WRITE: Script = Script::new("write", "return redis.call('SET', KEYS[1], 1)");
    let redis = connect(&server.url()).await;
    let slot = slot("acme");
    let write = || async { redis.run(&WRITE, &slot, &[slot.key("x")], vec![]).await };
    write().await.unwrap();
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(is_away(&write().await));
    until("it is seen that there is no primary", async || {
        let why = write().await.unwrap_err().to_string();
        why.contains("not a primary")
    })
    .await;
    server.ask(&["REPLICAOF", "NO", "ONE"]);
    until("it is back", async || write().await.is_ok()).await;
}

/// However many find it broken, one task reconnects.
#[tokio::test]
async fn el_23_there_is_one_reconnect_at_a_time() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let redis = connect(&server.url()).await;
    until_hints_come(&redis).await;
    let connections = || {
        let stats = server.ask(&["INFO", "stats"]);
        let mut lines = stats.lines();
        let line = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().parse::<usize>().unwrap()
    };
    let before = connections();
    server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    join_all((0..200).map(|_| echo(&redis, "x"))).await;
    until("it is back", async || echo(&redis, "x").await.is_ok()).await;
    until_hints_come(&redis).await;
    // One for commands, one for hints, and those of this test.
    assert!(
        connections() - before <= 2 + 2,
        "{}",
        connections() - before
    );
}

#[tokio::test]
async fn el_23_what_is_under_way_is_bounded() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let settings = Settings {
        in_flight: 2,
        ..patient(&server.url())
    };
    let redis = Redis::open(settings, Arc::new(|_event| {})).unwrap();
    timeout(PATIENCE, redis.connected()).await.unwrap();
    server.pause();
    let start = Instant::now();
    let (first, second, third) = tokio::join!(echo(&redis, "1"), echo(&redis, "2"), async {
        let third = echo(&redis, "3").await;
        assert!(start.elapsed() < AT_ONCE, "it does not wait for a place");
        third
    });
    assert!(is_away(&first) && is_away(&second));
    let why = third.unwrap_err().to_string();
    assert!(why.contains("too many"), "{why}");
    server.resume();
    let back = async || echo(&redis, "x").await.is_ok();
    until("the places are free again", back).await;
}

/// A mistake of ours is no outage.
#[tokio::test]
async fn a_script_with_a_mistake_is_refused_and_nobody_reconnects() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    static WRONG: Script = Script::new("wrong", "return redis.call('NO-SUCH-COMMAND')");
    let told = Arc::<Told>::default();
    let redis = Redis::open(patient(&server.url()), told.alarm()).unwrap();
    timeout(PATIENCE, redis.connected()).await.unwrap();
    let slot = slot("acme");
    let wrong = redis.run(&WRONG, &slot, &[slot.key("x")], vec![]).await;
    assert!(matches!(wrong, Err(StoreError::Refused(_))), "{wrong:?}");
    echo(&redis, "x").await.unwrap();
    assert_eq!(told.all(), [RedisEvent::Up]);
}

/// On a runtime of its own the client sees nothing of a paused clock, which stands still meanwhile.
#[tokio::test(start_paused = true)]
async fn a_paused_clock_stands_still_while_a_command_is_under_way() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let redis = apart(&server.url());
    let start = Instant::now();
    let timer = tokio::spawn(sleep(Duration::from_secs(3600)));
    for _ in 0..20 {
        echo(&redis, "x").await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(!timer.is_finished());
    timer.await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(3600));
}

/// The last clone takes the connections with it.
#[tokio::test]
async fn a_dropped_client_disconnects() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let redis = connect(&server.url()).await;
    until_hints_come(&redis).await;
    let clients = || server.ask(&["CLIENT", "LIST"]).matches("id=").count();
    assert_eq!(clients(), 3, "commands, hints, this question");
    drop(redis);
    until("only the question", async || clients() == 1).await;
}
