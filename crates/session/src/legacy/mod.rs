//! Clients with sessions (2024-11-05 … 2025-11-25), over Streamable HTTP and over HTTP+SSE.
//!
//! A session's record is the store's and its events are the stream log's; [`Live`] is what this
//! process holds of it. Every call runs in a task of its own that outlives the connection, because
//! a broken connection is not a cancellation (SSE-09); what it says goes into the log first and
//! from there to whoever reads the stream.

mod access;
mod adopt;
mod attended;
mod batch;
mod call;
mod claim;
mod continuing;
mod effect;
mod end;
mod get;
mod hold;
pub(crate) mod http_sse;
mod inlet;
mod listen;
mod live;
mod message;
mod note;
mod notify;
mod open;
mod patience;
mod question;
mod reader;
mod response;
mod rounds;
mod sink;
mod solo;
mod unmet;

pub(crate) use adopt::adopt;
pub(crate) use batch::batch;
pub(crate) use end::{delete, ended, expelled, leftovers, take_down};
pub(crate) use get::get;
pub(crate) use listen::look_again;
pub(crate) use live::Live;
pub(crate) use message::message;
pub(crate) use notify::cancel_or_remember;
pub(crate) use open::open;
pub(crate) use question::lost;
pub(crate) use response::{handed_over, told};
pub(crate) use unmet::Unmet;

#[cfg(test)]
mod tests;
