//! What a command costs: `cargo test --release -p vestibule-store --lib measure -- --ignored --nocapture`.

use futures_util::future::join_all;
use vestibule_terms::Clock;
use vestibule_terms::clock::SystemClock;
use vestibule_testkit::redis::RedisServer;

use super::*;
use crate::redis::RedisSessions;
use crate::{Caps, Lifetimes, Sessions, suite};

const COMMANDS: usize = 40_000;

/// Runs `one` so often, by so many at a time, and says how fast.
async fn measure(what: &str, at_once: usize, one: impl AsyncFn(usize)) {
    let one = &one;
    let start = Instant::now();
    let workers = (0..at_once).map(|worker| async move {
        let mut times = Vec::new();
        for number in 0..COMMANDS / at_once {
            let start = Instant::now();
            one(worker + number * at_once).await;
            times.push(start.elapsed());
        }
        times
    });
    let mut times: Vec<Duration> = join_all(workers).await.into_iter().flatten().collect();
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    times.sort();
    let of = |part: f64| times[(times.len() as f64 * part) as usize];
    let (half, most) = (of(0.5), of(0.99));
    println!("{what}, {at_once} at once: {rate:.0}/s, p50 {half:?}, p99 {most:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_commands_and_sessions() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let redis = connect(&server.url()).await;
    let slot = slot("acme");
    let keys = [slot.key("x")];
    for at_once in [1, 64, 1_000] {
        measure("a script with 300 bytes", at_once, async |_| {
            let args = vec![Bytes::from_static(&[b'x'; 300])];
            redis.run(&ECHO, &slot, &keys, args).await.unwrap();
        })
        .await;
    }
    let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
    let sessions = RedisSessions::new(redis, Lifetimes::default(), clock);
    let key = |number: usize| {
        let tenant = suite::tenant("acme");
        let id = SessionId::new(&number.to_string());
        SessionKey::new(&tenant, &(number % 1_000).to_string(), &id)
    };
    let caps = Caps {
        per_principal: COMMANDS,
        per_tenant: COMMANDS,
    };
    measure("create", 64, async |number| {
        let created = sessions.create(key(number), suite::opening(), caps).await;
        created.unwrap();
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    measure("touch, not cached", 64, async |number| {
        sessions.touch(&key(number)).await.unwrap().unwrap();
    })
    .await;
    measure("touch, cached", 64, async |number| {
        sessions.touch(&key(number % 64)).await.unwrap().unwrap();
    })
    .await;
}
