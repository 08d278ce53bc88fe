//! `store: { kind: embedded, path: … }`: one folder, one database file, one process.
//!
//! Everything is kept in memory as without a disk and written to the disk besides, so that the
//! next process goes on where this one was killed.
//!
//! - *Order.* What one session submits is on disk in its order, and each submission is there whole
//!   or not at all. A process that is killed leaves a beginning of what was submitted.
//! - *Durable before visible* (EL-8). Whoever tells a client something that the client may come
//!   back with waits for [`Disk::settle`] before. What is settled survives the end of the process;
//!   what it takes to survive a power failure too is said by [`Fsync`].
//! - *A disk that fails* makes the store one in memory, with an alarm; the disk is tried again, and
//!   the file is begun anew from memory when it works.
//! - *A damaged file* is set aside as it is; what is good in it goes on.
//! - *One process* (a lock on the folder), and ids made from [`Disk::life`] are never made again.
//! - *Bounded.* There is nothing on disk that is not in memory as well; space that becomes free in
//!   the file is used again, and a file that is mostly empty is begun anew.
//!
//! The event log's records are the streamlog room's, in the same file.

mod backend;
mod change;
mod code;
mod database;
mod disk;
mod folder;
mod keeper;
mod key;
mod names;
mod record;
mod sessions;
#[cfg(test)]
mod tests;

pub use backend::{Fsync, Probe, Step};
pub use change::{Change, Contents, Space};
pub use code::{Decoder, Encoder};
pub use disk::{Alarm, Disk, DiskEvent, Settings, Source, Writing};
pub use folder::DiskError;
pub use sessions::EmbeddedSessions;
