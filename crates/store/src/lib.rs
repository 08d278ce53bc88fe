//! What outlives one request: sealed handles, authenticated session ids and session records.
//!
//! What this room promises:
//!
//! - *Sealing.* A [`Sealer`] gives every (tenant, purpose) its own keys. What it seals opens only
//!   with the same tenant, purpose and associated data; every failure is one error. The first key
//!   of the [`Keyring`] seals, all of them open.
//! - *Session ids prove themselves* (EL-29): an id that was not minted for this tenant, server,
//!   principal and revision is refused before anything is looked up.
//! - *Sessions.* The [`Sessions`] trait keeps one record a session, changed by compare and swap,
//!   ended by a sliding idle limit, an age limit, caps with eviction of the least recently used
//!   streamless session, or on request. Whatever a session owns hangs on its one record, and every
//!   way of ending hands that record back, with the small records of other rooms that were kept
//!   beside it, so that nothing outlives it (cases 63 and 65).
//! - *No key without a tenant.* No call of this room takes a bare session id.
//!
//! [`MemorySessions`] is the bounded form for one process, [`EmbeddedSessions`] keeps them on the
//! process's own [`Disk`] too, which is also the event log's, and
//! [`RedisSessions`](redis::RedisSessions) are those of several processes. Every implementation passes
//! the same suite (`suite.rs`), and callers hold `Arc<dyn Sessions>`, so none of them can tell which it
//! is. The processes themselves are a [`Fleet`], which may be one [`Alone`]. Event logs are the streamlog
//! room's. This room runs no tasks of its own but the disk's one writing thread, and those that keep
//! Redis and the fleet's lease: expiry is a call the owner of the process makes.

mod belongings;
mod embedded;
mod error;
mod fleet;
mod key;
mod memory;
mod record;
pub mod redis;
mod seal;
mod session_id;
mod sessions;
#[cfg(test)]
mod suite;
mod table;
mod tables;

use std::pin::Pin;

pub use belongings::{Belonging, Kept, Kind};
pub use embedded::{
    Alarm, Change, Contents, Decoder, Disk, DiskError, DiskEvent, EmbeddedSessions, Encoder, Fsync,
    Probe, Settings, Source, Space, Step, Writing,
};
pub use error::StoreError;
pub use fleet::{Alone, Command, Fleet, Liveness, ReplicaId, Token};
pub use key::SessionKey;
pub use memory::MemorySessions;
pub use seal::{
    AtRest, Keyring, KeyringError, MacKey, Purpose, SealError, Sealer, Verdict, is_key_id, random,
    random_digits,
};
pub use sessions::{
    Caps, Census, Created, EndReason, Ended, Lifetimes, OpenStream, Opening, Sessions, State,
    Stored, Update, modify,
};

/// What an asynchronous store operation returns. Dropping it before it is done leaves the
/// operation either done or not done, never half done.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;
