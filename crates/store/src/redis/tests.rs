//! The client against real servers.

mod access;
mod cluster;
mod failover;
mod single;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};
use vestibule_terms::{SessionId, TenantId};

use super::*;
use crate::{SessionKey, StoreError};

/// What takes longer does not come. Machines that test are busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again until it is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Settings for a busy machine, where nothing is about time-outs.
pub(super) fn patient(url: &str) -> Settings {
    Settings {
        command_timeout: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(2),
        ..Settings::new(url, ReplicaId::random())
    }
}

/// A client that is connected.
pub(super) async fn connect(url: &str) -> Redis {
    let redis = Redis::open(patient(url), Arc::new(|_event| {})).unwrap();
    let up = timeout(PATIENCE, redis.connected()).await;
    up.expect("the server answers");
    redis
}

/// A client on a runtime of its own, whose clock goes on while the test's stands still.
pub(super) fn apart(url: &str) -> Redis {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap()
    });
    let settings = Settings {
        runtime: Some(runtime.handle().clone()),
        ..patient(url)
    };
    Redis::open(settings, Arc::new(|_event| {})).unwrap()
}

fn slot(tenant: &str) -> Slot {
    let tenant = TenantId::new(tenant).unwrap();
    Slot::of(&SessionKey::new(&tenant, "alice", &SessionId::new("s")))
}

static ECHO: Script = Script::new("echo", "return {ARGV[1], #KEYS, false, {KEYS[1]}}");
static PUBLISH: Script = Script::new("publish", "return redis.call('PUBLISH', ARGV[1], ARGV[2])");

async fn echo(redis: &Redis, text: &'static str) -> Result<Reply, StoreError> {
    let slot = slot("acme");
    let args = vec![Bytes::from_static(text.as_bytes())];
    redis.run(&ECHO, &slot, &[slot.key("x")], args).await
}

/// Whether hints come, from a script that is run on any node.
async fn until_hints_come(redis: &Redis) {
    let mut hints = redis.hints();
    until("it is subscribed", async || {
        let slot = slot("acme");
        let args = vec![channel_of(redis.replica()), Bytes::from_static(b"hint")];
        let keys = [slot.key("x")];
        let published = redis.run(&PUBLISH, &slot, &keys, args);
        let _away = published.await.is_err();
        let heard = timeout(Duration::from_millis(20), hints.recv()).await;
        heard.is_ok_and(|hint| hint.unwrap() == "hint")
    })
    .await;
}

/// What the operator is told.
#[derive(Default)]
struct Told(Mutex<Vec<RedisEvent>>);

impl Told {
    fn alarm(self: &Arc<Self>) -> RedisAlarm {
        let told = Arc::clone(self);
        Arc::new(move |event| told.0.lock().unwrap().push(event))
    }

    fn all(&self) -> Vec<RedisEvent> {
        self.0.lock().unwrap().clone()
    }
}

fn is_away<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(_)))
}
