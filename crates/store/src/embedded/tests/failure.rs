//! A disk that fails, and works again.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::*;
use crate::embedded::Step;

/// A disk with a switch.
fn switched(folder: &Folder, writing: Writing) -> (Settings, Arc<AtomicBool>) {
    let full = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&full);
    let mut settings = folder.settings(writing);
    settings.probe = Some(Arc::new(move |_step| {
        if switch.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }));
    (settings, full)
}

fn is_down(event: &DiskEvent) -> bool {
    matches!(event, DiskEvent::Down(why) if why.contains("no storage space"))
}

/// Failure matrix 41: a full disk degrades to memory, says so once, and has everything again when
/// there is room.
#[test]
fn a_full_disk_degrades_to_memory_and_recovers() {
    let folder = Folder::new();
    let told = Arc::new(Told::default());
    let (settings, full) = switched(&folder, Writing::Caller);
    let (disk, _) = Disk::open(settings, told.alarm()).unwrap();
    let held = Arc::new(Held::default());
    let source: Arc<dyn Source> = Arc::clone(&held) as Arc<dyn Source>;
    disk.register(Arc::downgrade(&source));
    disk.ready();
    held.add(&disk, 1);
    full.store(true, Ordering::SeqCst);
    for number in 2..20 {
        held.add(&disk, number);
        assert_eq!(disk.settled(), disk.submitted(), "nobody waits for it");
    }
    disk.ready(); // tries again, in vain
    let said = told.take();
    assert!(
        said[0] == DiskEvent::Up && is_down(&said[1]) && said.len() == 2,
        "{said:?}"
    );
    let mut stale = open(folder.killed().settings(Writing::Caller)).1;
    assert_eq!(
        numbers(&mut stale),
        [1],
        "the old file is as good as it was"
    );

    full.store(false, Ordering::SeqCst);
    disk.ready();
    assert_eq!(told.take(), [DiskEvent::Up]);
    held.add(&disk, 20);
    drop(disk);
    let mut contents = open(folder.settings(Writing::Caller)).1;
    assert_eq!(numbers(&mut contents), (1..=20).collect::<Vec<_>>());
}

/// A disk that is full from the start: nothing is set aside, and it is used as soon as it works.
#[test]
fn a_disk_that_is_full_at_the_start_is_used_later() {
    let folder = Folder::new();
    let told = Arc::new(Told::default());
    let (settings, full) = switched(&folder, Writing::Caller);
    full.store(true, Ordering::SeqCst);
    let (disk, _) = Disk::open(settings, told.alarm()).unwrap();
    let said = told.take();
    assert!(matches!(said.as_slice(), [one] if is_down(one)), "{said:?}");
    let held = Arc::new(Held::default());
    let source: Arc<dyn Source> = Arc::clone(&held) as Arc<dyn Source>;
    disk.register(Arc::downgrade(&source));
    held.add(&disk, 1);
    full.store(false, Ordering::SeqCst);
    disk.ready();
    assert_eq!(told.take(), [DiskEvent::Up]);
    drop(disk);
    assert_eq!(numbers(&mut open(folder.settings(Writing::Caller)).1), [1]);
}

/// The same with the writer's thread, which comes back by itself, whatever is submitted meanwhile.
#[tokio::test]
async fn the_writer_tries_again_by_itself() {
    let folder = Folder::new();
    let told = Arc::new(Told::default());
    let (settings, full) = switched(&folder, Writing::Thread);
    let (disk, _) = Disk::open(settings, told.alarm()).unwrap();
    let held = Arc::new(Held::default());
    let source: Arc<dyn Source> = Arc::clone(&held) as Arc<dyn Source>;
    disk.register(Arc::downgrade(&source));
    disk.ready();
    full.store(true, Ordering::SeqCst);
    held.add(&disk, 1);
    disk.settle(disk.submitted()).await;
    full.store(false, Ordering::SeqCst);
    let mut number = 1;
    while told.0.lock().unwrap().last() != Some(&DiskEvent::Up) || number < 10 {
        number += 1;
        held.add(&disk, number);
        disk.settle(disk.submitted()).await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    disk.settle(disk.submitted()).await;
    let mut contents = open(folder.killed().settings(Writing::Caller)).1;
    assert_eq!(numbers(&mut contents), (1..=number).collect::<Vec<_>>());
}

/// A disk that fails at its n-th operation, whichever that is, harms nothing that was there.
#[test]
fn a_failure_at_any_operation_harms_nothing() {
    let mut failed_at = vec![];
    for failing in 0..200 {
        let folder = Folder::new();
        let told = Arc::new(Told::default());
        let count = Arc::new(AtomicUsize::new(0));
        let mut settings = folder.settings(Writing::Caller);
        let counter = Arc::clone(&count);
        settings.probe = Some(Arc::new(move |_step: Step<'_>| {
            if counter.fetch_add(1, Ordering::SeqCst) == failing {
                return Err(io::Error::other("the disk is broken"));
            }
            Ok(())
        }));
        let (disk, _) = Disk::open(settings, told.alarm()).unwrap();
        let held = Arc::new(Held::default());
        let source: Arc<dyn Source> = Arc::clone(&held) as Arc<dyn Source>;
        disk.register(Arc::downgrade(&source));
        disk.ready();
        for number in 0..8 {
            held.add(&disk, number);
        }
        let failed = told
            .take()
            .iter()
            .any(|event| matches!(event, DiskEvent::Down(_)));
        if failed {
            failed_at.push(failing);
            disk.ready();
        }
        let mut contents = open(folder.killed().settings(Writing::Caller)).1;
        assert_eq!(
            numbers(&mut contents),
            (0..8).collect::<Vec<_>>(),
            "{failing}"
        );
        if count.load(Ordering::SeqCst) < failing {
            assert!(failed_at.len() > 10, "{failed_at:?}");
            return;
        }
    }
    assert!(failed_at.len() > 10, "{failed_at:?}");
}

/// A disk that does not answer is one that has failed: nobody waits for longer than the patience,
/// and when it answers again the file has everything.
#[tokio::test]
async fn nobody_waits_for_a_disk_that_does_not_answer() {
    let folder = Folder::new();
    let told = Arc::new(Told::default());
    let stuck = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let mut settings = folder.settings(Writing::Thread);
    settings.patience = std::time::Duration::from_millis(50);
    let gate = Arc::clone(&stuck);
    settings.probe = Some(Arc::new(move |_step| {
        let (closed, opened) = &*gate;
        drop(opened.wait_while(closed.lock().unwrap(), |closed| *closed));
        Ok(())
    }));
    let (disk, _) = Disk::open(settings, told.alarm()).unwrap();
    let held = Arc::new(Held::default());
    let source: Arc<dyn Source> = Arc::clone(&held) as Arc<dyn Source>;
    disk.register(Arc::downgrade(&source));
    disk.ready();
    *stuck.0.lock().unwrap() = true;
    for number in 0..5 {
        held.add(&disk, number);
        disk.settle(disk.submitted()).await;
    }
    let said = told.take();
    *stuck.0.lock().unwrap() = false;
    stuck.1.notify_all();
    let down = DiskEvent::Down("the disk does not answer".to_owned());
    assert_eq!(said, [DiskEvent::Up, down]);
    while told.0.lock().unwrap().last() != Some(&DiskEvent::Up) {
        tokio::task::yield_now().await;
    }
    held.add(&disk, 5);
    disk.settle(disk.submitted()).await;
    let mut contents = open(folder.killed().settings(Writing::Caller)).1;
    assert_eq!(numbers(&mut contents), (0..6).collect::<Vec<_>>());
}

/// What waits for the disk is bounded.
#[tokio::test]
async fn what_waits_for_the_disk_is_bounded() {
    let folder = Folder::new();
    let told = Arc::new(Told::default());
    let (closed, stuck) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut settings = folder.settings(Writing::Thread);
    let (gate, at_gate) = (Arc::clone(&closed), Arc::clone(&stuck));
    settings.probe = Some(Arc::new(move |_step| {
        while gate.load(Ordering::SeqCst) {
            at_gate.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
        Ok(())
    }));
    let (disk, _) = Disk::open(settings, told.alarm()).unwrap();
    closed.store(true, Ordering::SeqCst);
    disk.submit(vec![put(0, b"holds the writer")]);
    while !stuck.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    let record = vec![7; 1 << 20];
    for number in 0..70 {
        disk.submit(vec![put(number, &record)]);
    }
    let settled = disk.settled() == disk.submitted();
    closed.store(false, Ordering::SeqCst); // before anything can fail: the disk waits for its writer
    assert!(settled, "nobody waits");
    let said = told.take();
    assert!(
        matches!(&said[1], DiskEvent::Down(why) if why.contains("more waits")),
        "{said:?}"
    );
}

/// A folder that may not be written is an error at the start, and named.
#[test]
fn a_path_that_is_no_folder_is_refused() {
    let folder = Folder::new();
    let path = folder.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let refused = Disk::open(Settings::new(&path), Arc::new(|_| {}));
    let said = refused.unwrap_err().to_string();
    assert!(said.contains(path.to_str().unwrap()), "{said}");
}

/// EL-19: what is removed makes room; the file does not grow with what passes through it.
#[test]
fn el_19_the_file_does_not_grow_with_what_passes_through_it() {
    let folder = Folder::new();
    let (disk, _) = open(folder.settings(Writing::Caller));
    disk.ready();
    let record = vec![7; 4096];
    let length = || std::fs::metadata(folder.data()).unwrap().len();
    let mut after_first = 0;
    for round in 0..40_u64 {
        let changes = (0..256).map(|n| put(round * 256 + n, &record)).collect();
        disk.submit(changes);
        if round > 0 {
            let number = |n: u64| n.to_be_bytes().to_vec();
            disk.submit(vec![Change::DeleteRange {
                space: Space::Events,
                from: number((round - 1) * 256),
                to: number(round * 256),
            }]);
        }
        if round == 3 {
            after_first = length();
        }
    }
    assert!(after_first > 1 << 20, "{after_first}");
    assert!(
        length() <= after_first * 2,
        "{} after {after_first}",
        length()
    );
}

/// EL-19: a file that is mostly empty is begun anew, with all that is in it.
#[test]
fn el_19_a_file_that_is_mostly_empty_is_begun_anew() {
    let folder = Folder::new();
    let held = Arc::new(Held::default());
    let (disk, _) = open(folder.settings(Writing::Caller));
    let record = vec![7; 1 << 20];
    disk.submit((0..100).map(|number| put(number, &record)).collect());
    disk.submit(vec![Change::DeleteRange {
        space: Space::Events,
        from: 1_u64.to_be_bytes().to_vec(),
        to: 100_u64.to_be_bytes().to_vec(),
    }]);
    let folder = folder.killed(); // a process that ends in order leaves a small file
    let before = std::fs::metadata(folder.data()).unwrap().len();
    assert!(before > 64 << 20, "{before}");
    let (disk, mut contents) = open(folder.settings(Writing::Caller));
    assert_eq!(numbers(&mut contents), [0]);
    held.0.lock().unwrap().push(0);
    let source: Arc<dyn Source> = Arc::clone(&held) as Arc<dyn Source>;
    disk.register(Arc::downgrade(&source));
    disk.ready();
    let after = std::fs::metadata(folder.data()).unwrap().len();
    assert!(after < before / 8, "{after}");
    drop(disk);
    assert_eq!(numbers(&mut open(folder.settings(Writing::Caller)).1), [0]);
}
