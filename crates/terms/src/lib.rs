//! The words every room of Vestibule shares: identifiers, revisions, methods, the facts of one
//! request and the one way to refuse it.
//!
//! Nothing here does I/O, and nothing here knows another room. A type belongs here only when two
//! rooms that may not import each other have to agree on it.

pub mod accept;
pub mod clock;
pub mod deadline;
mod hash;
pub mod id;
pub mod in_flight;
pub mod method;
pub mod mutation;
pub mod plan;
pub mod principal;
pub mod record;
pub mod reject;
pub mod revision;
pub mod secret;

pub use accept::Accepts;
pub use clock::Clock;
pub use deadline::Deadline;
pub use hash::FastHash;
pub use id::{ServerId, SessionId, TenantId, UpstreamId};
pub use in_flight::InFlight;
pub use method::{Direction, Method};
pub use plan::{ServerKind, ServerPlan};
pub use principal::Principal;
pub use record::{Outcome, Record};
pub use reject::Reject;
pub use revision::{Era, Revision};
pub use secret::Secret;
