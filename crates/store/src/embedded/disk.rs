//! The handle of rooms on the disk: changes go in in order and are written in groups.
//!
//! While one group is committed, everything that is submitted becomes the next (group commit,
//! EL-9): the disk's latency is paid once a group, and nobody but who needs it waits.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::backend::{Fsync, Probe};
use super::change::{Change, Contents};
use super::folder::DiskError;
use super::keeper::Keeper;
use super::key;
use crate::seal::Keyring;

/// As long as a client's stream is held while a store does not answer (EL-22).
const PATIENCE: Duration = Duration::from_secs(10);

/// What may wait for the disk; more, and it has failed. As much as the event log may keep.
const WAITING_MAX: usize = 64 << 20;

/// Who writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Writing {
    /// One thread for all.
    #[default]
    Thread,
    /// Whoever submits, at once: for tests under a paused clock, which a thread cannot see.
    Caller,
}

/// Where and how.
#[derive(Clone)]
pub struct Settings {
    /// `store.path`.
    pub path: PathBuf,
    /// `store.fsync`.
    pub fsync: Fsync,
    /// Who writes.
    pub writing: Writing,
    /// How long the disk may take; one that takes longer has failed.
    pub patience: Duration,
    /// Sees every step, in tests.
    pub probe: Option<Probe>,
}

impl Settings {
    /// The usual ones, in that folder.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            fsync: Fsync::default(),
            writing: Writing::default(),
            patience: PATIENCE,
            probe: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("path", &self.path)
            .field("fsync", &self.fsync)
            .finish_non_exhaustive()
    }
}

/// What the operator is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskEvent {
    /// The disk is written to.
    Up,
    /// It cannot be written to: everything goes on in memory, and would not survive a restart.
    Down(String),
    /// The file was damaged and is kept under this name.
    SetAside {
        /// Where it is now.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
        /// Records in it that are good and go on.
        kept: usize,
    },
    /// A group of changes was committed.
    Committed {
        /// How long it took.
        took: Duration,
    },
}

/// Is told. Called by whoever writes: it must not wait.
pub type Alarm = Arc<dyn Fn(DiskEvent) + Send + Sync>;

/// Says what ought to be on disk when the file is begun anew.
pub trait Source: Send + Sync {
    /// Hands over everything, in portions, each as it was at some moment since this was called:
    /// what is submitted after that is made after it. No lock may be held while `put` runs, which
    /// waits for the disk.
    fn dump(&self, put: &mut dyn FnMut(Vec<Change>));
}

#[derive(Default)]
struct Queue {
    changes: Vec<Change>,
    bytes: usize,
    /// Why the writer, who is stuck, is not waited for any more. Nothing is queued until he is
    /// back; then the file is begun anew.
    overrun: Option<&'static str>,
    /// The number of the newest submission.
    mark: u64,
    ready: bool,
    closing: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    /// Submissions up to this one are on disk, or will never be.
    settled: watch::Sender<u64>,
    sources: Mutex<Vec<Weak<dyn Source>>>,
    alarm: Alarm,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The disk. Dropping it writes what is submitted and lets go of the folder.
pub struct Disk {
    shared: Arc<Shared>,
    /// With [`Writing::Caller`].
    keeper: Option<Mutex<Keeper>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    path: PathBuf,
    patience: Duration,
    life: u64,
}

impl Disk {
    /// Opens the folder, which no other process may use, and reads what is in it.
    ///
    /// # Errors
    /// A folder that is in use or may not be written. A damaged file or a full disk is none: the
    /// alarm says so, and [`Disk::ready`] begins a new file as soon as that works.
    pub fn open(settings: Settings, alarm: Alarm) -> Result<(Arc<Self>, Contents), DiskError> {
        let (writing, path) = (settings.writing, settings.path.clone());
        let patience = settings.patience;
        let (keeper, contents) = Keeper::open(settings, Arc::clone(&alarm))?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            filled: Condvar::new(),
            settled: watch::Sender::new(0),
            sources: Mutex::default(),
            alarm,
        });
        let life = keeper.life();
        let (keeper, thread) = match writing {
            Writing::Caller => (Some(Mutex::new(keeper)), None),
            Writing::Thread => {
                let shared = Arc::clone(&shared);
                let named = std::thread::Builder::new().name("vestibule-store".to_owned());
                let started = named.spawn(move || shared.write_all(keeper));
                let path = PathBuf::from("the writer's thread");
                (
                    None,
                    Some(started.map_err(|source| DiskError::Refused { path, source })?),
                )
            }
        };
        let disk = Self {
            shared,
            keeper,
            thread: Mutex::new(thread),
            path,
            patience,
            life,
        };
        Ok((Arc::new(disk), contents))
    }

    /// The key of the folder, made when it is first asked for.
    ///
    /// # Errors
    /// A key file that is unreadable, no key, or open to others.
    pub fn keyring(&self) -> Result<Keyring, DiskError> {
        key::keyring(&self.path)
    }

    /// Which life of a process on this folder it is: numbers made from it are never made again.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// A room that can say what ought to be on disk.
    pub fn register(&self, source: Weak<dyn Source>) {
        lock(&self.shared.sources).push(source);
    }

    /// Every room has registered and holds again what was on disk: where there is no good file,
    /// one may be begun from what they hold.
    pub fn ready(&self) {
        lock(&self.shared.queue).ready = true;
        self.shared.filled.notify_all();
        if let Some(keeper) = &self.keeper {
            let keeper = &mut lock(keeper);
            keeper.hurry();
            if keeper.wants_rewrite() {
                keeper.rewrite(&self.shared.sources());
            }
        }
    }

    /// Submits changes and returns at once. They are made after all that was submitted before,
    /// with it or not at all.
    pub fn submit(&self, changes: Vec<Change>) -> u64 {
        let mut queue = lock(&self.shared.queue);
        queue.mark += 1;
        let mark = queue.mark;
        if let Some(keeper) = &self.keeper {
            lock(keeper).write(&changes);
            self.shared.settle(mark);
            return mark;
        }
        if queue.overrun.is_some() || queue.closing {
            self.shared.settle(mark);
            return mark;
        }
        queue.bytes += changes.iter().map(Change::size).sum::<usize>();
        queue.changes.extend(changes);
        let too_much = queue.bytes > WAITING_MAX;
        drop(queue);
        if too_much {
            self.shared.overrun("more waits for the disk than may");
        }
        self.shared.filled.notify_one();
        mark
    }

    /// Up to which submission everything is on disk; while the disk cannot be written to, up to
    /// which it has been tried.
    pub fn settled(&self) -> u64 {
        *self.shared.settled.borrow()
    }

    /// The newest submission.
    pub fn submitted(&self) -> u64 {
        lock(&self.shared.queue).mark
    }

    /// Waits until that submission is on disk. Dropping the future changes nothing.
    pub async fn settle(&self, mark: u64) {
        if self.settled() >= mark {
            return;
        }
        let mut settled = self.shared.settled.subscribe();
        let settled = settled.wait_for(|settled| *settled >= mark);
        if timeout(self.patience, settled).await.is_err() {
            self.shared.overrun("the disk does not answer");
        }
    }

    fn close(&self) {
        let mut queue = lock(&self.shared.queue);
        queue.closing = true;
        let is_stuck = queue.overrun.is_some();
        drop(queue);
        self.shared.filled.notify_all();
        let thread = lock(&self.thread).take();
        // a writer whom the disk does not let go would not let the process end either
        if let Some(thread) = thread.filter(|_| !is_stuck) {
            // a writer that panicked has been reported by the panic itself
            let _ended = thread.join();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("life", &self.life)
            .field("settled", &self.settled())
            .finish_non_exhaustive()
    }
}

/// What the writer does next.
struct Work {
    changes: Vec<Change>,
    mark: u64,
    ready: bool,
    closing: bool,
    overrun: bool,
}

/// Lets everybody go on without the disk if the writer ends as it should not.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.queue).closing = true;
            self.0.settle(u64::MAX);
            (self.0.alarm)(DiskEvent::Down("the writer has failed".to_owned()));
        }
    }
}

impl Shared {
    fn sources(&self) -> Vec<Weak<dyn Source>> {
        lock(&self.sources).clone()
    }

    /// Nobody waits for submissions up to that one any more.
    fn settle(&self, mark: u64) {
        self.settled.send_if_modified(|settled| {
            let later = mark > *settled;
            *settled = mark.max(*settled);
            later
        });
    }

    /// The disk has failed, though the writer does not know it yet.
    fn overrun(&self, why: &'static str) {
        let mut queue = lock(&self.queue);
        if queue.overrun.is_some() || queue.closing {
            return;
        }
        queue.overrun = Some(why);
        queue.changes = Vec::new();
        queue.bytes = 0;
        self.settle(queue.mark);
        drop(queue);
        (self.alarm)(DiskEvent::Down(why.to_owned()));
    }

    /// The writer's life.
    fn write_all(&self, mut keeper: Keeper) {
        let _ending = Ending(self);
        let mut was_ready = false;
        loop {
            let work = self.next(keeper.due(was_ready), was_ready);
            if work.overrun {
                keeper.overrun();
            }
            if work.ready && !was_ready {
                was_ready = true;
                keeper.hurry();
            }
            if !work.changes.is_empty() {
                let began = Instant::now();
                if keeper.write(&work.changes) {
                    let took = began.elapsed();
                    (self.alarm)(DiskEvent::Committed { took });
                }
            }
            self.settle(work.mark);
            if work.closing {
                keeper.sync(true);
                return;
            }
            keeper.sync(false);
            if was_ready && keeper.wants_rewrite() {
                keeper.rewrite(&self.sources());
            }
        }
    }

    /// Waits for work, until `due` at the longest.
    fn next(&self, due: Option<Instant>, was_ready: bool) -> Work {
        let mut queue = lock(&self.queue);
        let idle = |queue: &Queue| {
            let nothing = queue.changes.is_empty() && queue.overrun.is_none();
            nothing && !queue.closing && queue.ready == was_ready
        };
        while idle(&queue) {
            let Some(due) = due else {
                queue = self
                    .filled
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.filled.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.bytes = 0;
        Work {
            overrun: queue.overrun.take().is_some(),
            changes: std::mem::take(&mut queue.changes),
            mark: queue.mark,
            ready: queue.ready,
            closing: queue.closing,
        }
    }
}
