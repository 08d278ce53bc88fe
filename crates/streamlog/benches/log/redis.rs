//! Two replicas over one server.

use vestibule_store::redis::{Redis, RedisFleet, Settings};
use vestibule_store::{Fleet, Keyring, ReplicaId, Sealer};
use vestibule_streamlog::{Limits, Mode, RedisLog};
use vestibule_terms::Clock;
use vestibule_terms::clock::SystemClock;
use vestibule_testkit::redis::RedisServer;

use super::{
    Arc, Bytes, Duration, Instant, PAYLOAD, Report, SessionKey, StreamLog, TenantId, Writer, next,
    payload, percentiles, replay, session, streams,
};

/// A client that comes back for a thousand events has them after this.
const REPLAY: Duration = Duration::from_millis(100);
/// How many come back.
const RETURNS: usize = 21;

struct Replica {
    log: Arc<RedisLog>,
    any: Arc<dyn StreamLog>,
}

fn replica(server: &RedisServer, sealer: &Sealer) -> Replica {
    let settings = Settings::new(server.url(), ReplicaId::random());
    let redis = Redis::open(settings, Arc::new(|_| {})).expect("a good address");
    let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
    let fleet = RedisFleet::open(redis.clone(), Arc::clone(&clock)) as Arc<dyn Fleet>;
    // as many as a client may miss here, and what the count of the default leaves
    let limits = Limits {
        stream_events: 2000,
        ..Limits::default()
    };
    let modes = Arc::new(|_: &TenantId| Mode::Required);
    let log = RedisLog::open(redis, fleet, sealer.clone(), limits, modes, clock);
    let any = Arc::clone(&log) as Arc<dyn StreamLog>;
    Replica { log, any }
}

pub(super) async fn measure(report: &mut Report, whole: bool) {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let sealer = Sealer::new(Keyring::generate());
    let (a, b) = (replica(&server, &sealer), replica(&server, &sealer));
    streams(&a.any, 8, 20).await; // connections, scripts
    if whole {
        throughput(report, &server, &a).await;
        burst(report, &server, &a).await;
    }
    come_back(report, 9_000, [&a, &a], "at its owner").await;
    come_back(report, 9_500, [&a, &b], "at another replica").await;
}

/// One event after the other, on so many streams at a time.
async fn throughput(report: &Report, server: &RedisServer, replica: &Replica) {
    for (count, events) in [(1, 3000), (64, 300), (512, 60)] {
        let spent = Spent::now(server);
        let (took, elapsed) = streams(&replica.any, count, events).await;
        let number = (count * events) as f64;
        report.say(&format!(
            "redis, {count} streams: {}, {:.0} events/s; {}",
            percentiles(took),
            number / elapsed.as_secs_f64(),
            Spent::now(server).since(&spent, number),
        ));
    }
}

/// Clients that missed a thousand events each come back, one after the other.
async fn come_back(report: &mut Report, from: usize, [owner, to]: [&Replica; 2], place: &str) {
    let mut took = vec![];
    for number in 0..RETURNS {
        let session = session(from + number);
        let writer = missed(owner, &session, 1000).await;
        let id = writer.opened().priming.clone().expect("the store is there");
        took.push(replay(&*to.any, &session, &id, 1000).await);
        writer.finish(None).await.expect("the first end");
        owner.any.forget_session(&session).await.expect("it ends");
    }
    took.sort_by_key(|[_, all]| *all);
    let ([first, all], [_, longest]) = (took[RETURNS / 2], took[RETURNS - 1]);
    report.say(&format!(
        "redis, 1,000 missed events {place}: the first after {first:.2?}, all after {all:.2?}"
    ));
    report.limit(
        &format!("redis, 1,000 missed events {place}, the longest of {RETURNS}"),
        longest,
        REPLAY,
    );
}

/// A burst on one stream, as fast as it goes.
async fn burst(report: &Report, server: &RedisServer, replica: &Replica) {
    const EVENTS: usize = 20_000;
    let session = session(8_888);
    let writer = Writer::open(&replica.any, &session, vec![Bytes::from_static(b"7")]).await;
    let writer = writer.expect("the store is there");
    let mut reader = replica
        .any
        .attach(writer.stream(), 0)
        .await
        .expect("a reader");
    let reading = tokio::spawn(async move {
        for _ in 0..EVENTS {
            next(&mut reader).await;
        }
    });
    let (spent, began) = (Spent::now(server), Instant::now());
    for _ in 0..EVENTS {
        writer.room(PAYLOAD).await.expect("room");
        writer.append(vec![payload()]).await.expect("room");
    }
    reading.await.expect("no panic");
    report.say(&format!(
        "redis, one stream written without waiting: {:.0} events/s; {}",
        EVENTS as f64 / began.elapsed().as_secs_f64(),
        Spent::now(server).since(&spent, EVENTS as f64),
    ));
    writer.finish(None).await.expect("the first end");
}

/// A stream with so many events that nobody has read.
async fn missed(replica: &Replica, session: &SessionKey, events: usize) -> Writer {
    let writer = Writer::open(&replica.any, session, vec![Bytes::from_static(b"7")]).await;
    let writer = writer.expect("the store is there");
    for _ in 0..events {
        writer.append(vec![payload()]).await.expect("room");
    }
    assert!(replica.log.shipped(Duration::from_secs(10)).await);
    writer
}

/// CPU time of this process and of the server, in seconds.
struct Spent {
    here: f64,
    server: f64,
}

impl Spent {
    fn now(server: &RedisServer) -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // after the name, which may hold anything: user and system time are the 12th and 13th
        let fields = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let ticks: f64 = fields
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        let info = server.ask(&["INFO", "cpu"]);
        let of_server = info.lines().filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            let counts = matches!(name, "used_cpu_sys" | "used_cpu_user");
            value.trim().parse::<f64>().ok().filter(|_| counts)
        });
        Self {
            here: ticks / 100.0,
            server: of_server.sum(),
        }
    }

    fn since(&self, before: &Self, events: f64) -> String {
        let (here, server) = (self.here - before.here, self.server - before.server);
        format!(
            "{:.0} events a CPU second here, {:.0} a CPU second of the server",
            events / here.max(0.01),
            events / server.max(0.01)
        )
    }
}
