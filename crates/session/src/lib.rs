//! The room that speaks with clients, of every revision, on one URL.
//!
//! - `classify` decides which era a request belongs to: a pure function.
//! - `modern` serves stateless clients: the whole ladder of errors, `server/discover`, calls,
//!   `subscriptions/listen`. It remembers nothing between two requests.
//! - `legacy` serves sessions: they open with `initialize`, their calls outlive connections, their
//!   streams can be resumed.
//! - `machine` is the state machine of one session, without I/O.
//! - `encode` writes what the stages below say in the client's revision, one file a revision.
//!
//! The stages below are an [`Exchange`](vestibule_exchange::Exchange) and a
//! [`Backchannel`](vestibule_exchange::Backchannel): this room knows neither upstreams nor names.
//! Sessions are kept by the store, events of streams by the stream log; what this room holds itself
//! is what cannot leave the process: running calls and open questions.

mod answer;
mod classify;
mod drain;
mod encode;
mod ending;
mod facts;
mod identity;
mod legacy;
mod machine;
mod modern;
mod observe;
mod others;
mod relay;
mod replicas;
mod room;
mod running;
mod service;
mod stream;
#[cfg(test)]
mod testing;
mod toll;

pub use drain::Supervisor;
pub use ending::Admission;
pub use identity::Identity;
pub use room::{Plans, SessionCaps, SessionRooms};
pub use service::SessionService;
pub use toll::{Permit, Toll};
