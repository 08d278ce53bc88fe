//! Whoever has the file in hand: writes it while that works, and begins it anew when it did not.
//!
//! There is one of these for a [`Disk`](super::Disk), used by one thread at a time.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::Instant;

use super::change::{Change, Contents, Space};
use super::database::{Fault, Store};
use super::folder::{DiskError, Folder};
use super::{Alarm, DiskEvent, Settings, Source};

const INCARNATION: &[u8] = b"incarnation";
/// The first and the longest pause between attempts to have the disk back.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(30);
/// How long [`Fsync::Interval`](super::Fsync::Interval) leaves what was written to the system.
const INTERVAL: Duration = Duration::from_millis(100);
/// A file is not made smaller below this, nor when it is less than so many times what is in it.
const SMALL: u64 = 64 << 20;
const SPARSE: u64 = 4;
/// What is written in one commit when the file is begun anew.
const PORTION: usize = 1 << 20;

/// Everything that can say what ought to be on disk.
pub(super) type Sources = [Weak<dyn Source>];

pub(super) struct Keeper {
    folder: Folder,
    settings: Settings,
    alarm: Alarm,
    /// The database; none while the disk is not used.
    store: Option<Store>,
    incarnation: u64,
    next_try: Instant,
    pause: Duration,
    /// Whether the operator knows that the disk is not used.
    announced: bool,
    /// Since when something written waits to be forced to the disk.
    unsynced: Option<Instant>,
    /// A file of this length is looked at again.
    grown: u64,
    bloated: bool,
}

impl Keeper {
    /// Opens what is there. A file that is damaged is set aside and what was good in it is what is
    /// returned; a disk that does not work is tried again later.
    pub(super) fn open(settings: Settings, alarm: Alarm) -> Result<(Self, Contents), DiskError> {
        let folder = Folder::open(&settings.path)?;
        folder.remove_fresh();
        let mut keeper = Self {
            folder,
            settings,
            alarm,
            store: None,
            incarnation: 1,
            next_try: Instant::now(),
            pause: SOON,
            announced: false,
            unsynced: None,
            grown: SMALL,
            bloated: false,
        };
        let mut contents = match keeper.read() {
            Ok(contents) => contents,
            Err(fault) => keeper.salvage(fault)?,
        };
        let before = contents.take(Space::Meta).into_iter();
        let before = before.filter(|(key, _)| key == INCARNATION);
        let before = before.filter_map(|(_, record)| record.first_chunk().copied());
        keeper.incarnation = before.map(u64::from_be_bytes).max().unwrap_or(0) + 1;
        keeper.begin(&contents);
        Ok((keeper, contents))
    }

    /// Reads the file and keeps it, if all of it is in order.
    fn read(&mut self) -> Result<Contents, Fault> {
        let store = self.open_store()?;
        let contents = store.contents();
        if contents.bad > 0 {
            let what = format!("{} records are not what was written", contents.bad);
            return Err(Fault::Damaged(what));
        }
        self.store = Some(store);
        Ok(contents)
    }

    fn open_store(&self) -> Result<Store, Fault> {
        let file = self.folder.open_data().map_err(Fault::Io)?;
        Store::open(file, self.settings.fsync, self.settings.probe.clone())
    }

    /// What is good in a file that cannot be used. The file is left as it is, under another name.
    fn salvage(&mut self, fault: Fault) -> Result<Contents, DiskError> {
        if let Fault::Io(error) = &fault
            && is_refusal(error)
        {
            return Err(DiskError::Refused {
                path: self.folder.data(),
                source: std::io::Error::new(error.kind(), error.to_string()),
            });
        }
        // a disk that is full at the first start has left an empty file, or none
        let has_data = self.folder.data_length() > 0;
        let aside = has_data.then(|| self.folder.set_aside().ok()).flatten();
        let Some(aside) = aside else {
            self.announce(&fault);
            return Ok(Contents::default());
        };
        let copied = self.folder.copy_of(&aside).map_err(Fault::Io);
        let salvaged = copied.and_then(Store::open_damaged);
        let contents = salvaged.map_or_else(|_| Contents::default(), |store| store.contents());
        self.folder.remove_fresh();
        (self.alarm)(DiskEvent::SetAside {
            file: aside,
            why: fault.to_string(),
            kept: contents.records(),
        });
        Ok(contents)
    }

    /// Writes down that this is another life of the process; a disk that takes it works.
    fn begin(&mut self, contents: &Contents) {
        if self.store.is_some() && self.write(&[self.incarnation()]) {
            let length = self.folder.data_length();
            self.bloated = length > SMALL && length > SPARSE * contents.bytes();
            self.announce_up();
        }
    }

    fn incarnation(&self) -> Change {
        Change::Put {
            space: Space::Meta,
            key: INCARNATION.to_vec(),
            record: self.incarnation.to_be_bytes().to_vec(),
        }
    }

    /// Which life of the process on this folder it is; grows with each.
    pub(super) fn life(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn is_up(&self) -> bool {
        self.store.is_some()
    }

    /// Makes the changes; false when they are in memory alone.
    pub(super) fn write(&mut self, changes: &[Change]) -> bool {
        let Some(store) = &self.store else {
            return false;
        };
        match store.commit(changes) {
            Ok(()) => {
                if store.is_unsynced() {
                    self.unsynced.get_or_insert_with(Instant::now);
                }
                true
            }
            Err(fault) => {
                self.fail(&fault);
                false
            }
        }
    }

    fn fail(&mut self, fault: &Fault) {
        self.store = None;
        self.unsynced = None;
        self.put_off();
        self.announce(fault);
    }

    /// The disk took too long, and everybody knows.
    pub(super) fn overrun(&mut self) {
        self.store = None;
        self.unsynced = None;
        self.announced = true;
        self.put_off();
    }

    fn put_off(&mut self) {
        self.next_try = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LATER);
    }

    /// Says once that the disk is not used.
    fn announce(&mut self, fault: &Fault) {
        if !std::mem::replace(&mut self.announced, true) {
            (self.alarm)(DiskEvent::Down(fault.to_string()));
        }
    }

    fn announce_up(&mut self) {
        self.announced = false;
        self.pause = SOON;
        (self.alarm)(DiskEvent::Up);
    }

    /// When something is to be done though nothing is to be written. Without `sources`, nothing
    /// can be begun anew.
    pub(super) fn due(&self, has_sources: bool) -> Option<Instant> {
        if self.store.is_none() {
            return has_sources.then_some(self.next_try);
        }
        self.unsynced.map(|since| since + INTERVAL)
    }

    /// The next try is now.
    pub(super) fn hurry(&mut self) {
        self.next_try = Instant::now();
    }

    /// Forces to the disk what was left for later, if its time has come or `now`.
    pub(super) fn sync(&mut self, now: bool) {
        let is_due = |since: &Instant| now || since.elapsed() >= INTERVAL;
        if self.unsynced.as_ref().is_some_and(is_due) {
            self.unsynced = None;
            if let Some(Err(fault)) = self.store.as_ref().map(Store::sync) {
                self.fail(&fault);
            }
        }
    }

    /// Whether the file is to be begun anew: it could not be written, or is mostly empty.
    pub(super) fn wants_rewrite(&mut self) -> bool {
        if self.store.is_none() {
            return Instant::now() >= self.next_try;
        }
        self.bloated || self.folder.data_length() > self.grown
    }

    /// Begins the file anew from what its owners hold, beside the old one, and replaces that when
    /// all is written. What is submitted meanwhile comes after it.
    pub(super) fn rewrite(&mut self, sources: &Sources) {
        let was_up = self.is_up();
        self.bloated = false;
        match self.written_anew(sources) {
            Ok(store) => {
                self.store = Some(store);
                self.unsynced = None;
                self.grown = SMALL.max(self.folder.data_length() * SPARSE);
                if !was_up {
                    self.announce_up();
                }
            }
            Err(fault) => {
                self.folder.remove_fresh();
                self.put_off();
                self.grown = SMALL.max(self.folder.data_length() * SPARSE);
                if !was_up {
                    self.announce(&fault);
                }
            }
        }
    }

    fn written_anew(&self, sources: &Sources) -> Result<Store, Fault> {
        let file = self.folder.open_fresh().map_err(Fault::Io)?;
        let store = Store::open(file, self.settings.fsync, self.settings.probe.clone())?;
        store.commit(&[self.incarnation()])?;
        let (mut portion, mut bytes, mut result) = (Vec::new(), 0, Ok(()));
        for source in sources.iter().filter_map(Weak::upgrade) {
            source.dump(&mut |changes| {
                bytes += changes.iter().map(Change::size).sum::<usize>();
                portion.extend(changes);
                if bytes >= PORTION && result.is_ok() {
                    result = store.commit(&portion);
                    (portion, bytes) = (Vec::new(), 0);
                }
            });
        }
        result?;
        store.commit(&portion)?;
        store.sync()?;
        let probe = self.settings.probe.as_ref();
        self.folder.replace(probe).map_err(Fault::Io)?;
        Ok(store)
    }
}

/// Whether whoever runs the process has to do something, and waiting will not help.
fn is_refusal(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::PermissionDenied
            | std::io::ErrorKind::ReadOnlyFilesystem
            | std::io::ErrorKind::IsADirectory
    )
}
