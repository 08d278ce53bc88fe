//! What the event log costs: from an append to its delivery, on disk and over Redis, and what a client
//! waits for that comes back for a thousand events.
//!
//! ```sh
//! cargo bench -p vestibule-streamlog                       # both
//! cargo bench -p vestibule-streamlog -- redis --assert     # one; fails when a limit is exceeded
//! cargo bench -p vestibule-streamlog -- replay --assert    # over Redis, only what is limited
//! TMPDIR=/var/tmp cargo bench -p vestibule-streamlog -- disk
//! ```
//!
//! Log, readers and server share the machine. A Redis of its own is started on a free port; without
//! one there is nothing to say about it.

mod disk;
mod redis;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use vestibule_store::SessionKey;
use vestibule_streamlog::{EventId, Next, Reader, Resume, StreamLog, Writer};
use vestibule_terms::{SessionId, TenantId};

const PAYLOAD: usize = 300;

/// What was measured, line by line, and whether it kept the limits.
#[derive(Debug, Default)]
struct Report {
    exceeded: bool,
}

impl Report {
    fn say(&self, line: &str) {
        let _closed = writeln!(std::io::stdout(), "{line}");
    }

    fn limit(&mut self, what: &str, took: Duration, limit: Duration) {
        let verdict = if took <= limit { "ok" } else { "too slow" };
        self.exceeded |= took > limit;
        self.say(&format!(
            "{what}: {took:.2?} (at most {limit:?}): {verdict}"
        ));
    }
}

fn payload() -> Bytes {
    Bytes::from(vec![b'x'; PAYLOAD])
}

fn session(number: usize) -> SessionKey {
    let id = SessionId::new(&format!("session-{number:035}"));
    let tenant = TenantId::new("acme").expect("a good name");
    SessionKey::new(&tenant, &format!("p{}", number % 100), &id)
}

/// One event after the other, each when the one before was delivered: from append to delivery.
async fn one_stream(log: Arc<dyn StreamLog>, session: SessionKey, events: usize) -> Vec<Duration> {
    let writer = Writer::open(&log, &session, vec![Bytes::from_static(b"7")]).await;
    let writer = writer.expect("the store is there");
    let mut reader = log.attach(writer.stream(), 0).await.expect("a reader");
    let mut took = Vec::with_capacity(events);
    for _ in 0..events {
        let began = Instant::now();
        writer.append(vec![payload()]).await.expect("room");
        next(&mut reader).await;
        took.push(began.elapsed());
    }
    writer.finish(None).await.expect("the first end");
    took
}

/// Many streams at once; what each event took, and all of it.
async fn streams(
    log: &Arc<dyn StreamLog>,
    count: usize,
    events: usize,
) -> (Vec<Duration>, Duration) {
    for number in 0..count {
        log.begin_session(&session(number))
            .await
            .expect("it begins");
    }
    let began = Instant::now();
    let tasks: Vec<_> = (0..count)
        .map(|number| tokio::spawn(one_stream(Arc::clone(log), session(number), events)))
        .collect();
    let mut took = vec![];
    for task in tasks {
        took.extend(task.await.expect("no panic"));
    }
    (took, began.elapsed())
}

fn percentiles(mut took: Vec<Duration>) -> String {
    took.sort();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    format!("p50 {:.2?}, p99 {:.2?}", at(50), at(99))
}

async fn next(reader: &mut Reader) -> Option<EventId> {
    let next = reader.next().await.expect("the store is there");
    let Next::Event(entry) = next else {
        panic!("an event, not {next:?}");
    };
    entry.id
}

/// Comes back with that id, and reads so many events; when the first and the last were there.
async fn replay(
    log: &dyn StreamLog,
    session: &SessionKey,
    id: &EventId,
    count: usize,
) -> [Duration; 2] {
    let began = Instant::now();
    let resumed = log
        .resume(session, id.as_str())
        .await
        .expect("the store is there");
    let Resume::Replay { stream, after } = resumed else {
        panic!("a replay, not {resumed:?}");
    };
    let mut reader = log.attach(&stream, after).await.expect("a reader");
    assert!(next(&mut reader).await.is_some());
    let first = began.elapsed();
    for _ in 1..count {
        assert!(next(&mut reader).await.is_some());
    }
    [first, began.elapsed()]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    let all = !["disk", "redis", "replay"].into_iter().any(named);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    let mut report = Report::default();
    if all || named("redis") || named("replay") {
        let whole = all || named("redis");
        runtime.block_on(redis::measure(&mut report, whole));
    }
    if all || named("disk") {
        runtime.block_on(disk::measure(&report));
    }
    if report.exceeded && named("--assert") {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
