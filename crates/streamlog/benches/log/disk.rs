//! The embedded form: on a disk, not in memory.

use std::path::{Path, PathBuf};

use vestibule_store::{
    Caps, Disk, EmbeddedSessions, Fsync, Keyring, Lifetimes, Opening, Sealer, Sessions, Settings,
};
use vestibule_streamlog::{EmbeddedLog, Limits};
use vestibule_terms::clock::SystemClock;
use vestibule_terms::{Clock, Revision, ServerId};

use super::{
    Arc, Bytes, Instant, Report, StreamLog, Writer, payload, percentiles, session, streams,
};

/// A folder of this run, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("vestibule-bench-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn size(&self) -> u64 {
        let file = std::fs::metadata(self.0.join("vestibule.redb"));
        file.expect("the file").len()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

struct House {
    log: Arc<EmbeddedLog>,
    sessions: Arc<EmbeddedSessions>,
    _disk: Arc<Disk>,
}

/// Sessions and their log over what is in the folder.
fn open(folder: &Path, fsync: Fsync, sealer: &Sealer) -> House {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let settings = Settings {
        fsync,
        ..Settings::new(folder)
    };
    let (disk, mut contents) = Disk::open(settings, Arc::new(|_| {})).expect("a good folder");
    let lifetimes = Lifetimes::default();
    let sessions = EmbeddedSessions::open(&disk, &mut contents, lifetimes, Arc::clone(&clock));
    let all = sessions.all().into_iter().map(|stored| stored.key);
    let log = EmbeddedLog::open(&disk, &mut contents, all, sealer, Limits::default(), clock);
    disk.ready();
    House {
        log,
        sessions,
        _disk: disk,
    }
}

pub(super) async fn measure(report: &Report) {
    let sealer = Sealer::new(Keyring::generate());
    for (name, fsync) in [
        ("always", Fsync::Always),
        ("100ms", Fsync::Interval),
        ("never", Fsync::Never),
    ] {
        for (count, events) in [(1, 1000), (64, 100), (512, 100)] {
            let folder = Folder::new(&format!("{name}-{count}"));
            let house = open(&folder.0, fsync, &sealer);
            let log = Arc::clone(&house.log) as Arc<dyn StreamLog>;
            let (took, elapsed) = streams(&log, count, events).await;
            report.say(&format!(
                "disk, fsync {name}, {count} streams: {}, {:.0} events/s, file {} MiB",
                percentiles(took),
                (count * events) as f64 / elapsed.as_secs_f64(),
                folder.size() >> 20,
            ));
        }
    }
    restart(report, &sealer).await;
}

/// How long the next process takes with many sessions.
async fn restart(report: &Report, sealer: &Sealer) {
    const SESSIONS: usize = 10_000;
    let folder = Folder::new("restart");
    let house = open(&folder.0, Fsync::Never, sealer);
    for number in 0..SESSIONS {
        let opening = Opening {
            server: ServerId::new("tools").expect("a good name"),
            revision: Revision::R2025_11_25,
            capabilities: Bytes::from_static(br#"{"roots":{"listChanged":true},"sampling":{}}"#),
            client_info: Bytes::from_static(br#"{"name":"a client","version":"1.2.3"}"#),
            created: SystemClock.unix_millis(),
        };
        let key = session(number);
        let created = house.sessions.create(key.clone(), opening, Caps::default());
        created.await.expect("room");
        house.log.begin_session(&key).await.expect("it begins");
    }
    let log = Arc::clone(&house.log) as Arc<dyn StreamLog>;
    for number in 0..SESSIONS / 10 {
        let request = vec![Bytes::from_static(b"7")];
        let writer = Writer::open(&log, &session(number), request).await;
        let writer = writer.expect("room");
        writer.append(vec![payload(); 20]).await.expect("room");
    }
    drop((log, house));
    let file = folder.size() >> 20;
    let began = Instant::now();
    let house = open(&folder.0, Fsync::Never, sealer);
    let took = began.elapsed();
    let stats = house.log.stats();
    report.say(&format!(
        "disk, the next process with {} sessions and {} events, {file} MiB: open after {took:.2?}",
        stats.sessions, stats.events,
    ));
}
