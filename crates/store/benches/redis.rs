//! What a command of Redis costs, and a session there: `cargo bench -p vestibule-store`.
//!
//! Client and server share the machine. A Redis of its own is started on a free port; without one there
//! is nothing to say.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use vestibule_store::redis::{Redis, RedisSessions, Script, Settings, Slot};
use vestibule_store::{Caps, Lifetimes, Opening, ReplicaId, SessionKey, Sessions};
use vestibule_terms::clock::SystemClock;
use vestibule_terms::{Clock, Revision, ServerId, SessionId, TenantId};
use vestibule_testkit::redis::RedisServer;

const COMMANDS: usize = 40_000;

static ECHO: Script = Script::new("echo", "return {ARGV[1], #KEYS, false, {KEYS[1]}}");

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
    let of = |percent: usize| times[(times.len() - 1) * percent / 100];
    let (half, most) = (of(50), of(99));
    let mut out = std::io::stdout();
    let _closed = writeln!(
        out,
        "{what}, {at_once} at once: {rate:.0}/s, p50 {half:.2?}, p99 {most:.2?}"
    );
}

fn key(number: usize) -> SessionKey {
    let id = SessionId::new(&number.to_string());
    let tenant = TenantId::new("acme").expect("a good name");
    SessionKey::new(&tenant, &(number % 1_000).to_string(), &id)
}

fn opening(now: u64) -> Opening {
    Opening {
        server: ServerId::new("tools").expect("a good name"),
        revision: Revision::R2025_11_25,
        capabilities: Bytes::from_static(b"{}"),
        client_info: Bytes::from_static(br#"{"name":"c","version":"1"}"#),
        created: now,
    }
}

async fn commands(redis: &Redis) {
    let slot = Slot::of(&key(0));
    let keys = [slot.key("x")];
    for at_once in [1, 64, 1_000] {
        measure("a script with 300 bytes", at_once, async |_| {
            let args = vec![Bytes::from_static(&[b'x'; 300])];
            redis
                .run(&ECHO, &slot, &keys, args)
                .await
                .expect("an answer");
        })
        .await;
    }
}

async fn sessions(redis: Redis) {
    let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
    let sessions = RedisSessions::new(redis, Lifetimes::default(), clock);
    let caps = Caps {
        per_principal: COMMANDS,
        per_tenant: COMMANDS,
    };
    measure("create", 64, async |number| {
        let opening = opening(SystemClock.unix_millis());
        let created = sessions.create(key(number), opening, caps).await;
        created.expect("room");
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    measure("touch, not cached", 64, async |number| {
        let found = sessions.touch(&key(number)).await;
        assert!(found.expect("an answer").is_some());
    })
    .await;
    measure("touch, cached", 64, async |number| {
        let found = sessions.touch(&key(number % 64)).await;
        assert!(found.expect("an answer").is_some());
    })
    .await;
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    runtime.block_on(async {
        let Some(server) = RedisServer::start() else {
            return;
        };
        let settings = Settings::new(server.url(), ReplicaId::random());
        let redis = Redis::open(settings, Arc::new(|_| {})).expect("a good address");
        commands(&redis).await;
        sessions(redis).await;
    });
}
