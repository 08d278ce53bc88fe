//! The database file: read whole when it is opened, then only written.
//!
//! redb keeps the file consistent whenever the process or the machine stops: a commit is there or
//! not, and its page checksums are verified each time the file is opened. What it does not promise
//! about a file that something else has changed is dealt with here: nothing that happens inside it
//! gets out as a panic, and every record carries a checksum of its own.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::{
    Builder, CommitError, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition, TableError, TransactionError, WriteTransaction,
};

use super::backend::{Backend, Fsync, Probe};
use super::change::{Change, Contents, Space, with_sum, without_sum};

/// Pages kept in memory by the database; what is read often is in our own tables.
const CACHE: usize = 8 << 20;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

const fn table(space: Space) -> Definition {
    TableDefinition::new(space.name())
}

/// Why the file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The system says so.
    #[error("{0}")]
    Io(io::Error),
    /// It is not what was written.
    #[error("{0}")]
    Damaged(String),
}

impl From<StorageError> for Fault {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "whatever else redb may come to say, the file is not to be used as it is"
    )]
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Io(error) if is_of_contents(&error) => Fault::Damaged(error.to_string()),
            StorageError::Io(error) => Fault::Io(error),
            other => Fault::Damaged(other.to_string()),
        }
    }
}

/// Errors that a file of other contents would not give.
fn is_of_contents(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput
    )
}

macro_rules! fault_from {
    ($($error:ident),*) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                match error {
                    $error::Storage(error) => error.into(),
                    other => Fault::Damaged(other.to_string()),
                }
            }
        })*
    };
}
fault_from!(DatabaseError, TransactionError, TableError, CommitError);

/// Runs something that has the database do its work.
fn guarded<T>(act: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Fault::Damaged(
            said.unwrap_or("the database gave up").to_owned(),
        ))
    })
}

/// An open database.
#[derive(Debug)]
pub(super) struct Store {
    database: Option<Database>,
    backend: Backend,
}

impl Store {
    /// Opens the file, or begins one in an empty file.
    pub(super) fn open(file: File, fsync: Fsync, probe: Option<Probe>) -> Result<Self, Fault> {
        Self::open_with(file, fsync, probe, true)
    }

    /// Opens a damaged file for what can still be read of it.
    pub(super) fn open_damaged(file: File) -> Result<Self, Fault> {
        Self::open_with(file, Fsync::Never, None, false)
    }

    fn open_with(
        file: File,
        fsync: Fsync,
        probe: Option<Probe>,
        check: bool,
    ) -> Result<Self, Fault> {
        let backend = Backend::new(file, fsync, probe);
        let database = guarded(|| {
            let mut builder = Builder::new();
            builder.set_cache_size(CACHE);
            builder.set_check_integrity_on_open(check);
            Ok(builder.create_with_backend(backend.clone())?)
        })?;
        Ok(Self {
            database: Some(database),
            backend,
        })
    }

    /// Everything in it. What cannot be read is counted as bad, and the rest goes on.
    pub(super) fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        for space in Space::ALL {
            let mut records = Vec::new();
            let read = guarded(|| self.read(space, &mut records, &mut contents.bad));
            contents.bad += usize::from(read.is_err());
            contents.spaces.insert(space, records);
        }
        contents
    }

    fn read(
        &self,
        space: Space,
        records: &mut Vec<(Vec<u8>, bytes::Bytes)>,
        bad: &mut usize,
    ) -> Result<(), Fault> {
        let Some(database) = &self.database else {
            return Ok(());
        };
        let transaction = database.begin_read()?;
        let table = match transaction.open_table(table(space)) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for entry in table.iter()? {
            let (key, stored) = entry?;
            match without_sum(space, key.value(), stored.value()) {
                Some(record) => records.push((key.value().to_vec(), record)),
                None => *bad += 1,
            }
        }
        Ok(())
    }

    /// Makes all changes or none; they survive this process when it returns, and the machine as
    /// [`Fsync`] says.
    pub(super) fn commit(&self, changes: &[Change]) -> Result<(), Fault> {
        let Some(database) = &self.database else {
            return Err(Fault::Damaged("the database is closed".to_owned()));
        };
        guarded(|| {
            let transaction = database.begin_write()?;
            for space in Space::ALL {
                apply(&transaction, space, changes)?;
            }
            Ok(transaction.commit()?)
        })
    }

    /// Forces to the disk what [`Fsync::Interval`] has left for later.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        self.backend.sync_now().map_err(Fault::Io)
    }

    pub(super) fn is_unsynced(&self) -> bool {
        self.backend.is_unsynced()
    }
}

/// The changes of one space, in their order; those of different spaces do not touch each other.
fn apply(transaction: &WriteTransaction, space: Space, changes: &[Change]) -> Result<(), Fault> {
    let of_space = |change: &&Change| match change {
        Change::Put { space: of, .. }
        | Change::Delete { space: of, .. }
        | Change::DeleteRange { space: of, .. } => *of == space,
    };
    let mut changes = changes.iter().filter(of_space).peekable();
    if changes.peek().is_none() {
        return Ok(());
    }
    let mut table = transaction.open_table(table(space))?;
    for change in changes {
        match change {
            Change::Put { key, record, .. } => {
                table.insert(&key[..], &with_sum(space, key, record)[..])?;
            }
            Change::Delete { key, .. } => {
                table.remove(&key[..])?;
            }
            Change::DeleteRange { from, to, .. } => {
                table.retain_in(&from[..]..&to[..], |_key, _record| false)?;
            }
        }
    }
    Ok(())
}

impl Drop for Store {
    fn drop(&mut self) {
        let database = self.database.take();
        // closing writes, and may fail on a broken disk: nothing is lost that was committed
        let _closed = guarded(|| {
            drop(database);
            Ok(())
        });
    }
}
