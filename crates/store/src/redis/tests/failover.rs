//! A primary that is replaced, as sentinels do it.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use vestibule_testkit::redis::{RedisServer, Sentinels};

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

/// A sentinel that names `primary` and says that as long as `leaves` it is being replaced.
async fn sentinel_of(primary: u16, leaves: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, primary, Arc::clone(&leaves)));
        }
    });
    port
}

async fn answer(mut stream: TcpStream, primary: u16, leaves: Arc<AtomicBool>) {
    let mut asked = [0; 512];
    while let Ok(length @ 1..) = stream.read(&mut asked).await {
        let port = primary.to_string();
        let flags = match leaves.load(Ordering::Relaxed) {
            true => "master,failover_in_progress",
            false => "master",
        };
        let asked = String::from_utf8_lossy(&asked[..length]).to_uppercase();
        let (ip, epoch) = (["ip", "127.0.0.1"], ["config-epoch", "3"]);
        let parts = match asked.contains("GET-MASTER-ADDR") {
            true => vec!["127.0.0.1", &port],
            false => [ip, ["port", &port], ["flags", flags], epoch].concat(),
        };
        let texts = parts.iter();
        let texts: String = texts
            .map(|text| format!("${}\r\n{text}\r\n", text.len()))
            .collect();
        let answer = format!("*{}\r\n{texts}", parts.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// What a primary takes while another one replaces it would be lost: a server that was killed is
/// often back before the sentinels have agreed on its successor.
#[tokio::test]
async fn el_23_a_primary_that_is_being_replaced_is_not_written_to() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let leaves = Arc::new(AtomicBool::new(true));
    let sentinel = sentinel_of(server.port(), Arc::clone(&leaves)).await;
    let told = Arc::<Told>::default();
    let url = format!("redis-sentinel://127.0.0.1:{sentinel}/main");
    let redis = Redis::open(patient(&url), told.alarm()).unwrap();
    until("it was looked for", async || !told.all().is_empty()).await;
    let why = "the primary is being replaced".to_owned();
    assert_eq!(told.all(), [RedisEvent::Down(why)]);
    assert!(is_away(&count(&redis).await));
    leaves.store(false, Ordering::Relaxed);
    until("it is written to", async || count(&redis).await.is_ok()).await;
}
