use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use vestibule_store::{
    Disk, DiskEvent, Fsync, Keyring, Sealer, SessionKey, Settings, Space, Writing,
};
use vestibule_terms::Secret;
use vestibule_terms::clock::SystemClock;

use super::EmbeddedLog;
use crate::suite::{self, sealer, session};
use crate::{
    Class, Entry, Event, EventId, Limits, LogError, Next, Opened, Post, Reader, Resume, StreamKind,
    StreamLog, StreamRef,
};

/// A folder of a test's own, removed with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("vestibule-streamlog-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The folder as a process leaves it that is killed at this moment.
    pub(crate) fn killed(&self) -> Self {
        let left = Self::new();
        std::fs::copy(self.0.join(DATA), left.0.join(DATA)).unwrap();
        left
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

const DATA: &str = "vestibule.redb";
const NOTE: &[u8] = b"read up to 5";
const QUESTION: &str = r#"{"id":7}"#;

pub(crate) fn settings(folder: &Folder, writing: Writing) -> Settings {
    Settings {
        fsync: Fsync::Never,
        writing,
        ..Settings::new(folder.path())
    }
}

/// A log with these sessions over what is in the folder.
pub(crate) fn open(
    settings: Settings,
    sealer: &Sealer,
    limits: Limits,
    sessions: &[SessionKey],
) -> (Arc<EmbeddedLog>, Arc<Disk>) {
    let quiet = Arc::new(|event: DiskEvent| assert!(!matches!(event, DiskEvent::Down(_))));
    let (disk, mut contents) = Disk::open(settings, quiet).unwrap();
    let log = EmbeddedLog::open(
        &disk,
        &mut contents,
        sessions.iter().cloned(),
        sealer,
        limits,
        Arc::new(SystemClock),
    );
    disk.ready();
    (log, disk)
}

fn make(sealer: Sealer, limits: Limits) -> Arc<dyn StreamLog> {
    let folder = Folder::new();
    let (log, _disk) = open(settings(&folder, Writing::Caller), &sealer, limits, &[]);
    log // the folder is removed with the open file in it
}

suite::tests!(make);

fn mine() -> SessionKey {
    session("acme", "alice", "s1")
}

/// T49, EL-4: ten thousand that are not, among a thousand that are.
#[tokio::test(start_paused = true)]
async fn t49_forged_ids_among_valid_ones() {
    let folder = Folder::new();
    let all = (settings(&folder, Writing::Caller), Limits::default());
    let (log, _disk) = open(all.0, &sealer(), all.1, &[]);
    let any = Arc::clone(&log) as Arc<dyn StreamLog>;
    let ids = suite::Forgeries::of(&any).await;
    let reads = || log.stats().lookups;
    ids.are_refused(&*any, reads).await;
    ids.are_told_apart(&*any, reads).await;
}

fn reopened(folder: &Folder) -> Arc<EmbeddedLog> {
    open(
        settings(folder, Writing::Thread),
        &sealer(),
        Limits::default(),
        &[mine()],
    )
    .0
}

fn post() -> StreamKind {
    StreamKind::Post(vec![Bytes::from_static(b"7")].into())
}

fn payloads(range: std::ops::Range<u32>) -> Vec<Bytes> {
    range.map(|n| Bytes::from(format!("event {n}"))).collect()
}

/// Everything a client gets that comes back with this id, up to the end, the orphanage or silence.
async fn replayed(log: &Arc<EmbeddedLog>, last: &EventId) -> (Vec<(EventId, Bytes)>, Option<Next>) {
    let resumed = log.resume(&mine(), last.as_str()).await.unwrap();
    let (Resume::Replay { stream, after } | Resume::Ending { stream, after }) = resumed else {
        panic!("{resumed:?}");
    };
    let mut reader = log.attach(&stream, after).await.unwrap();
    let mut had = vec![];
    loop {
        match timeout(Duration::from_millis(300), reader.next()).await {
            Ok(Ok(Next::Event(entry))) => had.push((entry.id.unwrap(), entry.payload)),
            Ok(other) => return (had, Some(other.unwrap())),
            Err(_nothing) => return (had, None),
        }
    }
}

fn texts(had: &[(EventId, Bytes)]) -> Vec<Bytes> {
    had.iter().map(|(_, payload)| payload.clone()).collect()
}

/// Waits until everything submitted is on disk.
async fn settled(disk: &Disk) {
    disk.settle(disk.submitted()).await;
}

async fn written(folder: &Folder, end: bool) -> Opened {
    let (log, disk) = open(
        settings(folder, Writing::Thread),
        &sealer(),
        Limits::default(),
        &[mine()],
    );
    let opened = log.open(&mine(), post()).await.unwrap();
    let note = Bytes::from_static(NOTE);
    log.note(&opened.stream, note).await.unwrap();
    log.append(&opened.stream, payloads(0..5)).await.unwrap();
    log.append(&opened.stream, payloads(5..9)).await.unwrap();
    if end {
        let last = Some(Bytes::from("end"));
        log.finish(&opened.stream, last).await.unwrap();
    }
    settled(&disk).await;
    opened
}

/// EL-13, RES-03: a stream that ended in another life is replayed whole, from any of its ids.
#[tokio::test]
async fn res_03_a_finished_stream_is_replayed_by_the_next_process() {
    let folder = Folder::new();
    let opened = written(&folder, true).await;
    let log = reopened(&folder.killed());
    let (had, end) = replayed(&log, opened.priming.as_ref().unwrap()).await;
    let mut expected = payloads(0..9);
    expected.push(Bytes::from("end"));
    assert_eq!((texts(&had), end), (expected.clone(), Some(Next::Finished)));
    for (index, (id, _)) in had[..9].iter().enumerate() {
        let (rest, end) = replayed(&log, id).await;
        assert_eq!(texts(&rest), expected[index + 1..]);
        assert_eq!(end, Some(Next::Finished));
    }
    let last = &had.last().unwrap().0;
    let outcome = log.resume(&mine(), last.as_str()).await.unwrap();
    assert_eq!(outcome, Resume::Finished);
}

/// EL-14, EL-15: a stream whose writer died with its process is an orphan in the next one, for its
/// reader and for the sweep, and gets exactly one end; in the process after that it has it still.
#[tokio::test]
async fn el_15_a_stream_whose_process_died_gets_exactly_one_end() {
    let folder = Folder::new();
    let opened = written(&folder, false).await;
    let left = folder.killed();
    let (log, disk) = open(
        settings(&left, Writing::Thread),
        &sealer(),
        Limits::default(),
        &[mine()],
    );
    let requests = vec![Bytes::from_static(b"7")];
    let (had, end) = replayed(&log, opened.priming.as_ref().unwrap()).await;
    assert_eq!(texts(&had), payloads(0..9));
    assert_eq!(
        end,
        Some(Next::Orphaned {
            requests: requests.clone(),
            note: Some(Bytes::from_static(NOTE)),
        })
    );
    let orphans = log.sweep().await.unwrap().orphans;
    assert_eq!(orphans.len(), 1);
    assert_eq!(
        (&orphans[0].stream, &orphans[0].requests),
        (&opened.stream, &requests)
    );
    let unknown = Bytes::from("outcome unknown");
    log.finish(&opened.stream, Some(unknown.clone()))
        .await
        .unwrap();
    let again = log.finish(&opened.stream, Some(unknown.clone())).await;
    assert_eq!(again, Err(LogError::Ended));
    settled(&disk).await;
    let log = reopened(&left.killed());
    let (rest, end) = replayed(&log, &had[8].0).await;
    assert_eq!((texts(&rest), end), (vec![unknown], Some(Next::Finished)));
    assert!(log.sweep().await.unwrap().orphans.is_empty());
}

/// EL-15, SSE-04: whoever holds an id of a stream has behind it what the stream began with, and the
/// note that belongs to that, however early its process dies.
#[tokio::test]
async fn el_15_what_a_stream_begins_with_is_kept_with_its_beginning() {
    let folder = Folder::new();
    let log = reopened(&folder);
    let post = Post {
        requests: vec![Bytes::from_static(b"7")],
        note: Some(Bytes::from_static(NOTE)),
        events: payloads(0..2),
    };
    let opened = log.open(&mine(), StreamKind::Post(post)).await.unwrap();
    let log = reopened(&folder.killed());
    let (had, end) = replayed(&log, opened.priming.as_ref().unwrap()).await;
    assert_eq!(texts(&had), payloads(0..2));
    let orphaned = Next::Orphaned {
        requests: vec![Bytes::from_static(b"7")],
        note: Some(Bytes::from_static(NOTE)),
    };
    assert_eq!(end, Some(orphaned));
}

/// RES-07: whatever happens in whichever life, an id stands for one event for ever.
#[tokio::test]
async fn res_07_no_id_is_used_twice_over_many_lives() {
    let folder = Folder::new();
    let mut ids: Vec<EventId> = vec![];
    let mut left = folder;
    for life in 0..6_u32 {
        let (log, disk) = open(
            settings(&left, Writing::Thread),
            &sealer(),
            Limits::default(),
            &[mine()],
        );
        assert_eq!(disk.life(), u64::from(life) + 1);
        let opened = log.open(&mine(), post()).await.unwrap();
        ids.push(opened.priming.clone().unwrap());
        log.append(&opened.stream, payloads(0..4)).await.unwrap();
        for orphan in log.sweep().await.unwrap().orphans {
            log.finish(&orphan.stream, Some(Bytes::from("lost")))
                .await
                .unwrap();
            let all = log.read(&orphan.stream, 4, 9).await.unwrap();
            ids.extend(all.into_iter().map(|entry| entry.id.unwrap()));
        }
        let standalone = log.open(&mine(), StreamKind::Standalone).await.unwrap();
        ids.push(standalone.priming.clone().unwrap());
        publish(&log, &format!("note {life}")).await;
        let mut reader = log.attach(&standalone.stream, 0).await.unwrap();
        ids.push(event(&mut reader).await.id.unwrap());
        settled(&disk).await;
        ids.extend(
            log.read(&opened.stream, 0, 9)
                .await
                .unwrap()
                .into_iter()
                .map(|e| e.id.unwrap()),
        );
        left = left.killed();
    }
    let distinct: std::collections::HashSet<&EventId> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    assert!(ids.len() > 30, "{}", ids.len());
}

/// The next event; a standalone reader may be told of a gap before.
async fn event(reader: &mut Reader) -> Entry {
    loop {
        match reader.next().await.unwrap() {
            Next::Event(entry) => return entry,
            Next::Gap => {}
            other @ (Next::Caught(_)
            | Next::Finished
            | Next::Orphaned { .. }
            | Next::Stopped(_)) => {
                panic!("{other:?}")
            }
        }
    }
}

async fn publish(log: &Arc<EmbeddedLog>, text: &str) {
    let event = Event {
        class: Class::Message,
        payload: Bytes::from(text.to_owned()),
    };
    log.publish(&mine(), vec![event]).await.unwrap();
}

/// GET-05, EL-13: what was delivered on a standalone stream is replayed, what waits is delivered,
/// questions of askers that are gone are not, and the reader is told that it may lack something.
#[tokio::test]
async fn get_05_what_waits_for_a_standalone_stream_waits_in_the_next_process() {
    let folder = Folder::new();
    let (log, disk) = open(
        settings(&folder, Writing::Thread),
        &sealer(),
        Limits::default(),
        &[mine()],
    );
    let opened = log.open(&mine(), StreamKind::Standalone).await.unwrap();
    publish(&log, "delivered").await;
    let mut reader = log.attach(&opened.stream, 0).await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Next::Gap, "of the first life");
    let Next::Event(delivered) = reader.next().await.unwrap() else {
        panic!("an event");
    };
    assert_eq!(delivered.payload, "delivered");
    drop(reader);
    publish(&log, "waits").await;
    let question = Event {
        class: Class::Question(Arc::from("q")),
        payload: Bytes::from_static(QUESTION.as_bytes()),
    };
    log.publish(&mine(), vec![question]).await.unwrap();
    settled(&disk).await;

    let log = reopened(&folder.killed());
    let resumed = log
        .resume(&mine(), opened.priming.as_ref().unwrap().as_str())
        .await
        .unwrap();
    let Resume::Replay { stream, after } = resumed else {
        panic!("{resumed:?}");
    };
    let mut reader = log.attach(&stream, after).await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Next::Event(delivered));
    assert_eq!(reader.next().await.unwrap(), Next::Gap);
    let Next::Event(waited) = reader.next().await.unwrap() else {
        panic!("an event");
    };
    assert_eq!(waited.payload, "waits");
    let more = timeout(Duration::from_millis(200), reader.next()).await;
    assert!(more.is_err(), "{more:?}");
}

/// EL-19: what is trimmed, ended, forgotten or of nobody is gone from the disk too.
#[tokio::test]
async fn el_19_the_disk_has_what_memory_has() {
    let folder = Folder::new();
    let limits = Limits {
        stream_events: 3,
        ..Limits::default()
    };
    let other = session("acme", "bob", "s2");
    let sessions = [mine(), other.clone()];
    let (log, disk) = open(
        settings(&folder, Writing::Thread),
        &sealer(),
        limits,
        &sessions,
    );
    let opened = log.open(&mine(), post()).await.unwrap();
    log.append(&opened.stream, payloads(0..20)).await.unwrap();
    let gone = log.open(&other, post()).await.unwrap();
    log.append(&gone.stream, payloads(0..3)).await.unwrap();
    let foreign = log.open(&other, StreamKind::Standalone).await.unwrap();
    settled(&disk).await;
    assert_eq!(on_disk(&folder.killed()), (3, 6, 0));
    log.forget_session(&other).await.unwrap();
    assert_eq!(
        log.resume(&other, foreign.priming.as_ref().unwrap().as_str())
            .await,
        Ok(Resume::NoSession)
    );
    publish(&log, "waits").await;
    settled(&disk).await;
    let left = folder.killed();
    assert_eq!(on_disk(&left), (1, 3, 1));

    let log = reopened(&left);
    let lost = log
        .resume(&mine(), opened.priming.as_ref().unwrap().as_str())
        .await
        .unwrap();
    assert!(matches!(lost, Resume::LostPost { .. }), "{lost:?}");
    drop(log);
    let nobody = left.killed();
    let (log, disk) = open(settings(&nobody, Writing::Thread), &sealer(), limits, &[]);
    assert_eq!(log.stats().streams, 0);
    settled(&disk).await;
    assert_eq!(on_disk(&nobody.killed()), (0, 0, 0));
}

/// Streams, events and waiting events in the folder.
fn on_disk(folder: &Folder) -> (usize, usize, usize) {
    let quiet = Arc::new(|_: DiskEvent| {});
    let (_disk, mut contents) = Disk::open(Settings::new(folder.path()), quiet).unwrap();
    let mut count = |space| contents.take(space).len();
    (
        count(Space::Streams),
        count(Space::Events),
        count(Space::Waiting),
    )
}

/// Case 52 of the failure matrix: a stream goes on under the key it began with, as long as that is
/// configured; without it, its ids are a gap.
#[tokio::test]
async fn a_stream_lives_as_long_as_its_key_is_configured() {
    let ring = |keys: &[(&str, u8)]| {
        let keys = keys.iter();
        let keys = keys.map(|(id, byte)| ((*id).to_owned(), Secret::new(vec![*byte; 32])));
        Sealer::new(Keyring::new(keys.collect()).unwrap())
    };
    let folder = Folder::new();
    let opened = written(&folder, true).await;
    let rotated = ring(&[("k2", 2), ("k1", 1)]);
    let left = folder.killed();
    let (log, _disk) = open(
        settings(&left, Writing::Thread),
        &rotated,
        Limits::default(),
        &[mine()],
    );
    assert_eq!(
        replayed(&log, opened.priming.as_ref().unwrap())
            .await
            .0
            .len(),
        10
    );
    drop((log, _disk));
    let gone = ring(&[("k2", 2)]);
    let (log, _disk) = open(
        settings(&left, Writing::Thread),
        &gone,
        Limits::default(),
        &[mine()],
    );
    let outcome = log
        .resume(&mine(), opened.priming.as_ref().unwrap().as_str())
        .await
        .unwrap();
    assert!(
        matches!(outcome, Resume::StandaloneGap { .. }),
        "{outcome:?}"
    );
    assert_eq!(log.stats().events, 0);
}

/// What a reader has had, and a copy of the file each time something is done to it.
struct Watched {
    had: Mutex<Vec<(EventId, Bytes)>>,
    images: Mutex<Vec<(Vec<u8>, usize)>>,
}

/// Failure matrix 4, EL-8: a process that is killed between any two operations on its file has
/// shown nothing that the next process does not have, and that goes on from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_08_a_kill_between_any_two_operations_loses_nothing_that_was_seen() {
    for fsync in [Fsync::Always, Fsync::Never] {
        let folder = Folder::new();
        let watched = Arc::new(Watched {
            had: Mutex::default(),
            images: Mutex::default(),
        });
        let (file, seen) = (folder.path().join(DATA), Arc::clone(&watched));
        let mut settings = Settings {
            fsync,
            ..Settings::new(folder.path())
        };
        settings.probe = Some(Arc::new(move |_step| {
            // the number first: what is seen afterwards was on disk before
            let had = seen.had.lock().unwrap().len();
            seen.images
                .lock()
                .unwrap()
                .push((std::fs::read(&file)?, had));
            Ok(())
        }));
        let (log, disk) = open(settings, &sealer(), Limits::default(), &[mine()]);
        let written: Vec<Bytes> = payloads(0..40);
        let opened = log.open(&mine(), post()).await.unwrap();
        let begun = watched.images.lock().unwrap().len();
        let reader = log.attach(&opened.stream, 0).await.unwrap();
        let reading = tokio::spawn(read_all(reader, Arc::clone(&watched)));
        for pair in written.chunks(2) {
            log.append(&opened.stream, pair.to_vec()).await.unwrap();
            tokio::task::yield_now().await;
        }
        log.finish(&opened.stream, None).await.unwrap();
        reading.await.unwrap();
        settled(&disk).await;
        drop((log, disk));

        let had = watched.had.lock().unwrap().clone();
        assert_eq!(texts(&had), written);
        let images = watched.images.lock().unwrap().clone();
        assert!(images.len() > 20, "{} moments", images.len());
        for (moment, (image, seen)) in images.into_iter().enumerate().skip(begun) {
            after_a_kill(&image, &opened, &had[..seen], &written, moment).await;
        }
    }
}

async fn read_all(mut reader: Reader, watched: Arc<Watched>) {
    while let Next::Event(entry) = reader.next().await.unwrap() {
        let mut had = watched.had.lock().unwrap();
        had.push((entry.id.unwrap(), entry.payload));
    }
}

/// The next process on that image has all that was seen and a beginning of what was written.
async fn after_a_kill(
    image: &[u8],
    opened: &Opened,
    seen: &[(EventId, Bytes)],
    written: &[Bytes],
    moment: usize,
) {
    let folder = Folder::new();
    std::fs::write(folder.path().join(DATA), image).unwrap();
    let log = reopened(&folder);
    let (all, end) = replayed(&log, opened.priming.as_ref().unwrap()).await;
    assert!(
        all.len() >= seen.len(),
        "{moment}: {} of {}",
        all.len(),
        seen.len()
    );
    assert_eq!(all[..seen.len()], *seen, "{moment}: the same ids");
    assert_eq!(texts(&all), written[..all.len()], "{moment}");
    let over = matches!(end, Some(Next::Orphaned { .. } | Next::Finished));
    assert!(over, "{moment}: {end:?}");
    if let Some((last, _)) = seen.last() {
        let resumed = log.resume(&mine(), last.as_str()).await.unwrap();
        let goes_on = matches!(
            resumed,
            Resume::Replay { .. } | Resume::Ending { .. } | Resume::Finished
        );
        assert!(goes_on, "{moment}: {resumed:?}");
    }
}

/// Case 65: a stream whose opener is cancelled while the disk has not answered has no writer.
#[tokio::test]
async fn a_stream_that_nobody_was_told_of_is_an_orphan() {
    let folder = Folder::new();
    let (log, _disk) = open(
        settings(&folder, Writing::Thread),
        &sealer(),
        Limits::default(),
        &[mine()],
    );
    let mine = mine();
    let mut opening = log.open(&mine, post());
    let first = std::future::poll_fn(|context| {
        std::task::Poll::Ready(opening.as_mut().poll(context).is_pending())
    });
    if first.await {
        drop(opening);
        assert_eq!(log.sweep().await.unwrap().orphans.len(), 1);
    }
}

/// A reader's stream stays the same object: a guard against tests of nothing.
#[tokio::test]
async fn an_unfinished_stream_is_the_same_stream_afterwards() {
    let folder = Folder::new();
    let opened = written(&folder, false).await;
    let log = reopened(&folder.killed());
    let outcome = log
        .resume(&mine(), opened.priming.as_ref().unwrap().as_str())
        .await
        .unwrap();
    let stream: StreamRef = opened.stream.clone();
    assert_eq!(outcome, Resume::Replay { stream, after: 0 });
}
