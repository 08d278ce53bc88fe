//! `store.path`: a folder of this process's own, locked while it is used.

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::backend::{Probe, Step};

const DATA: &str = "vestibule.redb";
const FRESH: &str = "vestibule.redb.new";
const LOCK: &str = "lock";

/// Why the store cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process has it.
    #[error("store.path {path}: another process uses it{}", holder(.process))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// What it says of itself.
        process: Option<String>,
    },
    /// It cannot be read or written.
    #[error("store.path {path}: {source}")]
    Refused {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The sealing key is not one.
    #[error("{path}: {what}")]
    Key {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

fn holder(process: &Option<String>) -> String {
    process
        .as_ref()
        .map_or(String::new(), |process| format!(" (process {process})"))
}

/// The folder, locked as long as this lives.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

pub(super) fn refused(path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    move |source| DiskError::Refused {
        path: path.to_owned(),
        source,
    }
}

impl Folder {
    /// Makes the folder where there is none, and locks it. The system lets go of the lock however
    /// this process ends.
    pub(super) fn open(path: &Path) -> Result<Self, DiskError> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(refused(path))?;
        let name = path.join(LOCK);
        let mut lock = private().create(true).open(&name).map_err(refused(&name))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut process = String::new();
                let said = lock
                    .read_to_string(&mut process)
                    .is_ok_and(|_| !process.is_empty());
                return Err(DiskError::InUse {
                    path: path.to_owned(),
                    process: said.then(|| process.trim().to_owned()),
                });
            }
            Err(TryLockError::Error(error)) => return Err(refused(&name)(error)),
        }
        // who has it is a courtesy to whoever finds it locked: a full disk may refuse that
        let _told = lock
            .set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }

    pub(super) fn open_data(&self) -> io::Result<File> {
        private().create(true).open(self.data())
    }

    /// An empty file to be put in the place of the data file.
    pub(super) fn open_fresh(&self) -> io::Result<File> {
        private()
            .create(true)
            .truncate(true)
            .open(self.path.join(FRESH))
    }

    /// Puts the fresh file in the place of the data file, at once and for good.
    pub(super) fn replace(&self, probe: Option<&Probe>) -> io::Result<()> {
        let fresh = self.path.join(FRESH);
        if let Some(probe) = probe {
            probe(Step::Rename(&fresh))?;
        }
        std::fs::rename(&fresh, self.data())?;
        File::open(&self.path)?.sync_all()
    }

    /// A copy of a file that was set aside, to be read and removed.
    pub(super) fn copy_of(&self, aside: &Path) -> io::Result<File> {
        let mut fresh = self.open_fresh()?;
        io::copy(&mut File::open(aside)?, &mut fresh)?;
        Ok(fresh)
    }

    /// The length of the data file; 0 where there is none.
    pub(super) fn data_length(&self) -> u64 {
        std::fs::metadata(self.data()).map_or(0, |data| data.len())
    }

    /// Removes a fresh file that was not finished.
    pub(super) fn remove_fresh(&self) {
        // it may not be there; if it stays, the next one is written over it
        let _removed = std::fs::remove_file(self.path.join(FRESH));
    }

    /// Moves the data file out of the way, under a name that no other has.
    pub(super) fn set_aside(&self) -> io::Result<PathBuf> {
        let free = (1_u32..).map(|number| self.path.join(format!("{DATA}.damaged-{number}")));
        for aside in free {
            if !aside.exists() {
                std::fs::rename(self.data(), &aside)?;
                return Ok(aside);
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// A file for nobody but the owner.
pub(super) fn private() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    options
}
