//! The event log of resumable streams: nothing that had an id is lost in silence.
//!
//! A *stream* is the SSE answer of one POST, or one standalone GET stream, of one legacy session.
//! Its *writer* holds the upstream leg, its *reader* the client's connection. What this room
//! promises:
//!
//! - *Durable before visible* (EL-8): an event gets its place and its id in the log before any
//!   reader can see it.
//! - *Exact resumption* (EL-13, EL-16): whoever comes back with the last id he has dispatched gets
//!   every later event of that stream once, in order, then its end; or is told what is lost.
//! - *Ids prove themselves* (EL-4): an id that was not minted for this tenant, principal and
//!   session is refused before anything is looked up.
//! - *One connection a stream* (EL-17): a second reader stops the first, and an event goes to one.
//! - *Standalone streams* (GET-04, GET-05): what belongs to no call waits in the session's backlog
//!   and gets its place on the newest open stream the moment that stream takes it, so closing one
//!   connection hands over to the one before, and nothing is sent twice.
//! - *Bounded* (EL-19, EL-20): by count, bytes and age, for a stream, a session, a tenant and the
//!   process; the newest event of a stream is kept until it is delivered or its age ends, whatever
//!   its size, as long as anything else can make room.
//!
//! Payloads are the bytes of one JSON-RPC message each; how they are framed as SSE, what a loss
//! says in JSON-RPC and who may open a session is the session room's. [`MemoryLog`] is the form
//! for one process, [`EmbeddedLog`] is that with the process's disk below it, [`RedisLog`] is one of
//! several replicas over the store that they share; callers hold `Arc<dyn StreamLog>`. Only the last
//! runs tasks of its own.

mod backlog;
mod deliver;
mod embedded;
mod error;
mod event_id;
mod held;
mod log;
mod memory;
mod redis;
mod resume;
mod retain;
mod ring;
mod session_log;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod suite;
mod tail;
mod times;
mod writer;

use std::pin::Pin;

pub use embedded::EmbeddedLog;
pub use error::LogError;
pub use event_id::{EventId, EventIds, ForeignEventId, Position, StreamId, Verified};
pub use log::{
    Appended, Class, Entry, Event, Lag, Lost, NOTE_BYTES, Opened, Orphan, Post, StreamKind,
    StreamLog, StreamRef, Swept,
};
pub use memory::{MemoryLog, Stats};
pub use redis::{Mode, Modes, RedisLog};
pub use resume::Resume;
pub use retain::Limits;
pub use tail::{Next, Reader, Stop, Tail};
pub use writer::Writer;

/// What an asynchronous log operation returns. Dropping it before it is done leaves the operation
/// either done or not done, never half done.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, LogError>> + Send + 'a>>;
