//! The ledger upstream: an MCP server of 2025-11-25 that writes down what it sends before it sends
//! it, on disk, so that nothing of it can be disputed afterwards.
//!
//! `/{tenant}/{kind}` is one server each. Their one tool of substance, `run`, sends numbered events
//! and then a result; `watch` has numbered notifications sent on the session's GET stream. It is no
//! example of a server: it trusts its caller.

mod answer;
mod body;
mod call;
mod ledger;
mod message;
mod serve;
mod session;
mod stream;
mod watch;

pub use ledger::Ledger;
pub(crate) use ledger::read as read_ledger;
pub use serve::{House, serve};
