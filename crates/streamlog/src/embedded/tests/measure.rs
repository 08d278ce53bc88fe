//! What the disk costs. Run by hand, on a disk and not in memory:
//!
//! ```text
//! TMPDIR=/var/tmp cargo test --release -p vestibule-streamlog --lib -- --ignored --nocapture measure
//! ```

use tokio::time::Instant;
use vestibule_store::{Caps, EmbeddedSessions, Lifetimes, Opening, Sessions};
use vestibule_terms::{Clock, Revision, ServerId};

use super::*;

const PAYLOAD: usize = 300;

fn payload() -> Bytes {
    Bytes::from(vec![b'x'; PAYLOAD])
}

fn percentiles(mut took: Vec<Duration>) -> String {
    took.sort();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    format!("p50 {:?} p99 {:?} max {:?}", at(50), at(99), at(100))
}

fn key(number: usize) -> SessionKey {
    session(
        "acme",
        &format!("p{}", number % 100),
        &format!("session-{number:035}"),
    )
}

/// From an append to the moment its reader has it: one stream alone, then many at once.
#[test]
#[ignore = "measures"]
fn append_to_delivery() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for fsync in [Fsync::Always, Fsync::Interval, Fsync::Never] {
        for streams in [1, 64, 512] {
            runtime.block_on(deliver(
                fsync,
                streams,
                if streams == 1 { 1000 } else { 100 },
            ));
        }
    }
}

async fn deliver(fsync: Fsync, streams: usize, events: usize) {
    let folder = Folder::new();
    let settings = Settings {
        fsync,
        ..Settings::new(folder.path())
    };
    let sessions: Vec<SessionKey> = (0..streams).map(key).collect();
    let (log, _disk) = open(settings, &sealer(), Limits::default(), &sessions);
    let began = Instant::now();
    let tasks: Vec<_> = sessions
        .into_iter()
        .map(|session| tokio::spawn(one_stream(Arc::clone(&log), session, events)))
        .collect();
    let mut took = vec![];
    for task in tasks {
        took.extend(task.await.unwrap());
    }
    let rate = (streams * events) as f64 / began.elapsed().as_secs_f64();
    let file = std::fs::metadata(folder.path().join(DATA)).unwrap().len() >> 20;
    println!(
        "{fsync:?} {streams} streams: {} {rate:.0} events/s, file {file} MiB",
        percentiles(took)
    );
}

async fn one_stream(log: Arc<EmbeddedLog>, session: SessionKey, events: usize) -> Vec<Duration> {
    let opened = log.open(&session, post()).await.unwrap();
    let mut reader = log.attach(&opened.stream, 0).await.unwrap();
    let mut took = Vec::with_capacity(events);
    for _ in 0..events {
        let began = Instant::now();
        log.append(&opened.stream, vec![payload()]).await.unwrap();
        event(&mut reader).await;
        took.push(began.elapsed());
    }
    took
}

/// How long the next process takes with many sessions, and how large the file is.
#[tokio::test]
#[ignore = "measures"]
async fn restart_with_10_000_sessions() {
    let folder = Folder::new();
    filled(&folder, 10_000, 1000).await;
    let left = folder.killed();
    let file = std::fs::metadata(left.path().join(DATA)).unwrap().len() >> 10;
    let began = Instant::now();
    let (log, _sessions, _disk) = both(&left);
    let took = began.elapsed();
    println!("{:?}: file {file} KiB, open in {took:?}", log.stats());
}

/// Sessions and their log over what is in the folder.
fn both(folder: &Folder) -> (Arc<EmbeddedLog>, Arc<EmbeddedSessions>, Arc<Disk>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let quiet = Arc::new(|_event| {});
    let (disk, mut contents) = Disk::open(Settings::new(folder.path()), quiet).unwrap();
    let lifetimes = Lifetimes::default();
    let sessions = EmbeddedSessions::open(&disk, &mut contents, lifetimes, Arc::clone(&clock));
    let all = sessions.all().into_iter().map(|stored| stored.key);
    let limits = Limits::default();
    let log = EmbeddedLog::open(&disk, &mut contents, all, &sealer(), limits, clock);
    disk.ready();
    (log, sessions, disk)
}

async fn filled(folder: &Folder, sessions: usize, streams: usize) {
    let (log, store, disk) = both(folder);
    for number in 0..sessions {
        let opening = Opening {
            server: ServerId::new("tools").unwrap(),
            revision: Revision::R2025_11_25,
            capabilities: Bytes::from_static(br#"{"roots":{"listChanged":true},"sampling":{}}"#),
            client_info: Bytes::from_static(br#"{"name":"a client","version":"1.2.3"}"#),
            created: 1,
        };
        let created = store.create(key(number), opening, Caps::default());
        created.await.unwrap();
        // as the log does, without waiting for the disk
        log.memory.begin_session(&key(number)).await.unwrap();
    }
    for number in 0..streams {
        let opened = log.memory.open(&key(number), post()).await.unwrap();
        let events = vec![payload(); 20];
        log.append(&opened.stream, events).await.unwrap();
    }
    settled(&disk).await;
}
