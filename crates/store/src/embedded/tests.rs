//! One folder over many processes, failing and damaged disks; the trait suite on top of it.

mod damage;
mod failure;
mod restart;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use vestibule_terms::Clock;
use vestibule_terms::clock::ManualClock;

use super::{
    Alarm, Change, Contents, Disk, DiskEvent, EmbeddedSessions, Fsync, Settings, Source, Space,
    Writing,
};
use crate::{Lifetimes, Sessions, suite};

const DATA: &str = "vestibule.redb";

/// A folder of a test's own, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("vestibule-store-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn data(&self) -> PathBuf {
        self.0.join(DATA)
    }

    /// The folder as a process leaves it that is killed at this moment.
    fn killed(&self) -> Self {
        let left = Self::new();
        std::fs::copy(self.data(), left.data()).unwrap();
        left
    }

    fn settings(&self, writing: Writing) -> Settings {
        Settings {
            fsync: Fsync::Never,
            writing,
            ..Settings::new(self.path())
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// What the operator was told.
#[derive(Default)]
struct Told(Mutex<Vec<DiskEvent>>);

impl Told {
    fn alarm(self: &Arc<Self>) -> Alarm {
        let told = Arc::clone(self);
        Arc::new(move |event| {
            if !matches!(event, DiskEvent::Committed { .. }) {
                told.0.lock().unwrap().push(event);
            }
        })
    }

    fn take(&self) -> Vec<DiskEvent> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A disk that is told of to nobody.
fn open(settings: Settings) -> (Arc<Disk>, Contents) {
    Disk::open(settings, Arc::new(|_event| {})).unwrap()
}

fn put(key: u64, record: &[u8]) -> Change {
    Change::Put {
        space: Space::Events,
        key: key.to_be_bytes().to_vec(),
        record: record.to_vec(),
    }
}

/// The numbers of the records that are there.
fn numbers(contents: &mut Contents) -> Vec<u64> {
    let records = contents.take(Space::Events);
    records
        .iter()
        .map(|(key, _)| u64::from_be_bytes(key[..].try_into().unwrap()))
        .collect()
}

/// What a room would hold: records by number.
#[derive(Default)]
struct Held(Mutex<Vec<u64>>);

impl Held {
    fn add(&self, disk: &Disk, number: u64) {
        let mut held = self.0.lock().unwrap();
        held.push(number);
        disk.submit(vec![put(number, b"record")]);
    }
}

impl Source for Held {
    fn dump(&self, put_all: &mut dyn FnMut(Vec<Change>)) {
        let held = self.0.lock().unwrap();
        put_all(held.iter().map(|number| put(*number, b"record")).collect());
    }
}

fn make(lifetimes: Lifetimes, clock: Arc<dyn Clock>) -> Arc<dyn Sessions> {
    let folder = Folder::new();
    let (disk, mut contents) = open(folder.settings(Writing::Caller));
    EmbeddedSessions::open(&disk, &mut contents, lifetimes, clock)
}

mod the_suite {
    use super::*;

    suite::tests!(make);
}

fn clock(millis: u64) -> (Arc<ManualClock>, Arc<dyn Clock>) {
    let clock = Arc::new(ManualClock::at(millis));
    (Arc::clone(&clock), clock)
}
