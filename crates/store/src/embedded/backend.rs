//! The database's file: when it is synced, and where tests can get between.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;

/// When what was written is forced to the disk itself. The operating system has it in any case
/// before a reader does: the end of this process, however sudden, loses none of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Before any of it is visible: a power failure loses nothing that a client has seen.
    #[default]
    Always,
    /// Every 100 ms: a power failure loses that much, or, if it leaves the file unusable, all.
    Interval,
    /// When the operating system does it.
    Never,
}

/// One operation on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// Bytes are about to be written.
    Write,
    /// The length is about to change.
    SetLength,
    /// Everything is about to be forced to the disk.
    Sync,
    /// The file is about to be put in the place of the one in use.
    Rename(&'a Path),
}

/// Asked before each [`Step`]; an error fails it. For tests: it stands in for a full or broken
/// disk, and sees every state in which a killed process can leave the file.
pub type Probe = Arc<dyn Fn(Step<'_>) -> io::Result<()> + Send + Sync>;

/// The file, shared with whoever syncs it later.
#[derive(Clone)]
pub(super) struct Backend {
    file: Arc<File>,
    fsync: Fsync,
    unsynced: Arc<AtomicBool>,
    probe: Option<Probe>,
}

impl Backend {
    pub(super) fn new(file: File, fsync: Fsync, probe: Option<Probe>) -> Self {
        Self {
            file: Arc::new(file),
            fsync,
            unsynced: Arc::default(),
            probe,
        }
    }

    fn before(&self, step: Step<'_>) -> io::Result<()> {
        self.probe.as_ref().map_or(Ok(()), |probe| probe(step))
    }

    /// Whether something waits for [`Backend::sync_now`].
    pub(super) fn is_unsynced(&self) -> bool {
        self.fsync == Fsync::Interval && self.unsynced.load(Ordering::Relaxed)
    }

    pub(super) fn sync_now(&self) -> io::Result<()> {
        self.unsynced.store(false, Ordering::Relaxed);
        self.before(Step::Sync)?;
        self.file.sync_data()
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.before(Step::SetLength)?;
        self.file.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.fsync {
            Fsync::Always => self.sync_now(),
            Fsync::Interval | Fsync::Never => {
                self.unsynced.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.before(Step::Write)?;
        self.file.write_all_at(data, offset)
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("fsync", &self.fsync)
            .finish_non_exhaustive()
    }
}
