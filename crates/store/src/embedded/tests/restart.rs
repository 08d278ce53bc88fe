//! What the next process finds.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::advance;
use vestibule_terms::{Revision, ServerId, SessionId, TenantId};

use super::*;
use crate::{Caps, EndReason, Kind, OpenStream, Opening, SessionKey, State, modify};

const HOUR: u64 = 60 * 60 * 1000;

fn key(principal: &str, id: &str) -> SessionKey {
    SessionKey::new(
        &TenantId::new("acme").unwrap(),
        principal,
        &SessionId::new(id),
    )
}

fn opening(created: u64) -> Opening {
    Opening {
        server: ServerId::new("tools").unwrap(),
        revision: Revision::R2025_06_18,
        capabilities: Bytes::from_static(br#"{"roots":{}}"#),
        client_info: Bytes::from_static(br#"{"name":"c","version":"1"}"#),
        created,
    }
}

fn sessions(folder: &Folder, clock: &Arc<dyn Clock>) -> (Arc<EmbeddedSessions>, Arc<Disk>) {
    let (disk, mut contents) = open(folder.settings(Writing::Caller));
    let lifetimes = Lifetimes::default();
    let sessions = EmbeddedSessions::open(&disk, &mut contents, lifetimes, Arc::clone(clock));
    disk.ready();
    (sessions, disk)
}

/// SES-01, EL-27: a session is what it was, for its owner alone, and no question's number is given
/// again.
#[tokio::test(start_paused = true)]
async fn a_session_is_what_it_was() {
    let folder = Folder::new();
    let (_, clock) = clock(5 * HOUR);
    let (first, _disk) = sessions(&folder, &clock);
    let mine = key("alice", "s");
    let created = first.create(mine.clone(), opening(5 * HOUR), Caps::default());
    created.await.unwrap();
    let state = State {
        initialized: true,
        log_level: Some(Arc::from("debug")),
        subscriptions: [Arc::from("file:///a"), Arc::from("file:///ü")].into(),
        next_question: 3,
    };
    modify(&*first, &mine, |now| *now = state.clone())
        .await
        .unwrap();
    let before = first.get(&mine).await.unwrap().unwrap();

    let (second, _disk) = sessions(&folder.killed(), &clock);
    let after = second.get(&mine).await.unwrap().unwrap();
    assert_eq!(
        (&after.opening, after.version),
        (&before.opening, before.version)
    );
    assert_eq!((after.last_seen, after.streams_open), (before.last_seen, 0));
    let expected = State {
        next_question: after.state.next_question,
        ..state
    };
    assert_eq!(*after.state, expected);
    assert!(after.state.next_question > 1000, "no number is used twice");
    assert!(second.get(&key("bob", "s")).await.unwrap().is_none());
    let taken = second.create(mine.clone(), opening(0), Caps::default());
    assert!(taken.await.is_err());
}

/// EL-27: what belongs to a session is there as long as the session, and no longer.
#[tokio::test(start_paused = true)]
async fn el_27_belongings_survive_with_their_session() {
    let folder = Folder::new();
    let (_, clock) = clock(5 * HOUR);
    let (first, _disk) = sessions(&folder, &clock);
    for id in ["s", "s2", "ended"] {
        let created = first.create(key("alice", id), opening(5 * HOUR), Caps::default());
        created.await.unwrap();
        for name in ["kept", "gone", "changed"] {
            let key = key("alice", id);
            let keep = first.keep(&key, Kind::Upstream, name, Bytes::from(id));
            assert!(keep.await.unwrap().unwrap().mine);
        }
    }
    let mine = key("alice", "s");
    let swap = |name, record| first.swap_kept(&mine, Kind::Upstream, name, b"s", record);
    assert!(swap("gone", None).await.unwrap());
    let new = Some(Bytes::from_static(b"new"));
    assert!(swap("changed", new).await.unwrap());
    first.end(&key("alice", "ended")).await.unwrap().unwrap();

    let killed = folder.killed();
    let (second, _disk) = sessions(&killed, &clock);
    let all = second.all_kept(&mine, Kind::Upstream).await.unwrap();
    let expected = [("changed", "new"), ("kept", "s")];
    let expected = expected.map(|(name, record)| (name.to_owned(), Bytes::from(record)));
    assert_eq!(all, expected);
    let other = key("alice", "s2");
    let all = second.all_kept(&other, Kind::Upstream).await.unwrap();
    assert_eq!(all.len(), 3);
    let ended = key("alice", "ended");
    let created = second.create(ended.clone(), opening(5 * HOUR), Caps::default());
    created.await.unwrap();
    let all = second.all_kept(&ended, Kind::Upstream).await.unwrap();
    assert!(all.is_empty());
}

/// EL-27: a file that is begun anew has them too.
#[tokio::test(start_paused = true)]
async fn el_27_belongings_are_in_a_file_that_is_begun_anew() {
    let folder = Folder::new();
    let (_, clock) = clock(5 * HOUR);
    let (first, disk) = sessions(&folder, &clock);
    let mine = key("alice", "s");
    let created = first.create(mine.clone(), opening(5 * HOUR), Caps::default());
    created.await.unwrap();
    let keep = first.keep(&mine, Kind::Question, "q", Bytes::from_static(b"open"));
    assert!(keep.await.unwrap().unwrap().mine);
    let mut dumped = Vec::new();
    let source: &dyn Source = &*first;
    source.dump(&mut |changes| dumped.extend(changes));
    drop((first, disk));
    let anew = Folder::new();
    let (disk, _) = open(anew.settings(Writing::Caller));
    disk.ready();
    disk.submit(dumped);
    drop(disk);
    let (second, _disk) = sessions(&anew, &clock);
    let found = second.kept(&mine, Kind::Question, "q").await.unwrap();
    assert_eq!(found, Some(Bytes::from_static(b"open")));
}

/// SES-03: what was ended, evicted or swept is gone for good.
#[tokio::test(start_paused = true)]
async fn ses_03_sessions_that_are_over_stay_over() {
    let folder = Folder::new();
    let (_, clock) = clock(HOUR);
    let (first, _disk) = sessions(&folder, &clock);
    let caps = Caps {
        per_principal: 2,
        ..Caps::default()
    };
    for id in ["evicted", "ended", "kept"] {
        first
            .create(key("alice", id), opening(HOUR), caps)
            .await
            .unwrap();
    }
    first.end(&key("alice", "ended")).await.unwrap().unwrap();
    let (second, _disk) = sessions(&folder.killed(), &clock);
    let ids: Vec<String> = second
        .all()
        .iter()
        .map(|stored| stored.key.id().expose().to_owned())
        .collect();
    assert_eq!(ids, ["kept"]);
}

/// SES-03: time goes on while no process runs; the idle limit counts from the last use that was
/// written down, at most a minute before the last one, and an open stream is use.
#[tokio::test(start_paused = true)]
async fn ses_03_the_idle_limit_counts_over_a_restart() {
    let folder = Folder::new();
    let (time, clock) = clock(1000 * HOUR);
    let (first, _disk) = sessions(&folder, &clock);
    for id in ["old", "used", "streams"] {
        let created = first.create(key("alice", id), opening(1000 * HOUR), Caps::default());
        created.await.unwrap();
    }
    let dynamic: Arc<dyn Sessions> = Arc::clone(&first) as Arc<dyn Sessions>;
    let streaming = OpenStream::begin(&dynamic, &key("alice", "streams"))
        .await
        .unwrap();
    advance(Duration::from_millis(10 * HOUR)).await;
    time.advance(10 * HOUR);
    first.touch(&key("alice", "used")).await.unwrap();
    first.sweep().await.unwrap(); // about once a second, as the process does
    let left = folder.killed();
    drop(streaming);

    time.advance(15 * HOUR);
    let (second, disk) = sessions(&left, &clock);
    let over = second.sweep().await.unwrap();
    let over: Vec<_> = over
        .iter()
        .map(|over| (over.session.key.id().expose(), over.reason))
        .collect();
    assert_eq!(over, [("old", EndReason::Idle)], "25 hours idle");
    assert!(second.get(&key("alice", "used")).await.unwrap().is_some());
    advance(Duration::from_millis(9 * HOUR)).await;
    assert!(
        second
            .touch(&key("alice", "streams"))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(second.sweep().await.unwrap().len(), 2);
    drop((second, disk));
}

/// Case 63: the order of use survives: the least recently used goes first.
#[tokio::test(start_paused = true)]
async fn case_63_the_least_recently_used_goes_first_in_the_next_process_too() {
    let folder = Folder::new();
    let (time, clock) = clock(HOUR);
    let (first, _disk) = sessions(&folder, &clock);
    for id in ["z", "m", "a"] {
        time.advance(1000);
        first
            .create(
                key("alice", id),
                opening(clock.unix_millis()),
                Caps::default(),
            )
            .await
            .unwrap();
    }
    time.advance(1000);
    first.touch(&key("alice", "z")).await.unwrap();
    advance(Duration::from_secs(61)).await;
    first.sweep().await.unwrap();
    let (second, _disk) = sessions(&folder.killed(), &clock);
    let caps = Caps {
        per_principal: 2,
        ..Caps::default()
    };
    let created = second
        .create(key("alice", "new"), opening(HOUR), caps)
        .await
        .unwrap();
    let evicted: Vec<_> = created
        .evicted
        .iter()
        .map(|over| over.session.key.id().expose())
        .collect();
    assert_eq!(evicted, ["m", "a"]);
}

/// EL-09: all that is submitted while one group is committed goes with the next, in order.
#[tokio::test]
async fn el_09_submissions_are_committed_in_groups_and_in_order() {
    let folder = Folder::new();
    let (disk, _) = open(Settings::new(folder.path()));
    let mut mark = 0;
    for number in 0..500 {
        mark = disk.submit(vec![put(number, b"r")]);
    }
    assert_eq!(disk.submitted(), mark);
    disk.settle(mark).await;
    assert!(disk.settled() >= mark);
    let mut contents = open(folder.killed().settings(Writing::Caller)).1;
    assert_eq!(numbers(&mut contents), (0..500).collect::<Vec<_>>());
}

/// The file at many moments, and what was settled before each.
type Images = Vec<(Vec<u8>, u64)>;

/// EL-08: whenever the process is killed, what is on disk is a beginning of what was submitted,
/// and holds all that was settled.
#[tokio::test]
async fn el_08_the_disk_has_a_beginning_of_what_was_submitted() {
    let folder = Folder::new();
    let images: Arc<Mutex<Images>> = Arc::default();
    let disk: Arc<Mutex<Option<Arc<Disk>>>> = Arc::default();
    let mut settings = Settings::new(folder.path());
    let (file, seen, writer) = (folder.data(), Arc::clone(&images), Arc::clone(&disk));
    settings.probe = Some(Arc::new(move |_step| {
        if let Some(disk) = &*writer.lock().unwrap() {
            let settled = disk.settled();
            seen.lock().unwrap().push((std::fs::read(&file)?, settled));
        }
        Ok(())
    }));
    let (opened, _) = open(settings);
    *disk.lock().unwrap() = Some(Arc::clone(&opened));
    let mut mark = 0;
    for number in 1..=60 {
        mark = opened.submit(vec![
            put(number, b"first half"),
            put(number + 1000, b"second half"),
        ]);
        if number % 3 == 0 {
            opened.settle(mark).await;
        }
    }
    opened.settle(mark).await;
    disk.lock().unwrap().take();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 60, "{} moments", images.len());
    for (image, settled) in images {
        let left = Folder::new();
        std::fs::write(left.data(), image).unwrap();
        let told = Arc::new(Told::default());
        let settings = left.settings(Writing::Caller);
        let (_disk, mut contents) = Disk::open(settings, told.alarm()).unwrap();
        assert_eq!(told.take(), [DiskEvent::Up], "in order at every moment");
        let (first, second): (Vec<u64>, Vec<u64>) = numbers(&mut contents)
            .into_iter()
            .partition(|number| *number < 1000);
        let there = first.len() as u64;
        assert_eq!(first, (1..=there).collect::<Vec<_>>());
        assert_eq!(
            second,
            (1001..=1000 + there).collect::<Vec<_>>(),
            "whole or not at all"
        );
        assert!(there >= settled, "{there} of {settled}");
    }
}

/// Two processes cannot have one folder; the lock goes with the one that has it.
#[test]
fn a_folder_is_one_process_s() {
    let folder = Folder::new();
    let (disk, _) = open(folder.settings(Writing::Thread));
    let second = Disk::open(folder.settings(Writing::Thread), Arc::new(|_| {}));
    let said = second.unwrap_err().to_string();
    assert!(said.contains(folder.path().to_str().unwrap()), "{said}");
    assert!(said.contains(&std::process::id().to_string()), "{said}");
    let life = disk.life();
    drop(disk);
    let (disk, _) = open(folder.settings(Writing::Thread));
    assert_eq!(disk.life(), life + 1);
}

/// XT-046: the key of the folder is made once, for its owner alone, and never replaced.
#[test]
fn xt_046_handles_outlive_the_process() {
    use std::os::unix::fs::PermissionsExt;
    let tenant = TenantId::new("acme").unwrap();
    let server = ServerId::new("tools").unwrap();
    let folder = Folder::new();
    let path = folder.path().join("sealing.key");
    let (disk, _) = open(folder.settings(Writing::Caller));
    let sealer = crate::Sealer::new(disk.keyring().unwrap());
    let id = sealer.mint_session_id(&tenant, &server, "alice", Revision::R2025_11_25);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(disk);
    let (disk, _) = open(folder.settings(Writing::Caller));
    let sealer = crate::Sealer::new(disk.keyring().unwrap());
    let checked = sealer.check_session_id(id.expose(), &tenant, &server, "alice");
    assert_eq!(checked, Some(Revision::R2025_11_25));

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let said = disk.keyring().unwrap_err().to_string();
    assert!(said.contains("chmod 600"), "{said}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    for bad in ["", "c2hvcnQ=", "not base64 at all !"] {
        std::fs::write(&path, bad).unwrap();
        let said = disk.keyring().unwrap_err().to_string();
        assert!(said.contains("sealing.key"), "{said}");
        assert!(bad.is_empty() || !said.contains(bad), "{said}");
    }
    std::fs::write(&path, good).unwrap();
    assert!(disk.keyring().is_ok());
}
