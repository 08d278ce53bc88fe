//! The outermost layer: names the request and every log line written for it, and when the response body closes
//! writes one access record (target `access`) and observes the metrics.
//!
//! It knows nothing of the protocol: what the record says is what the layers below wrote into
//! [`vestibule_terms::Record`], a request extension from here on. The record closes exactly once,
//! whichever comes first: the body's end, the body dropped before it (`cancelled`, unless a layer
//! had already said how the request ended), or the request dropped before it had an answer.
//!
//! `X-Request-Id` is ours: what a caller sends under that name is removed.

mod access;
mod body;
mod current;
mod future;
mod layer;
mod message;
mod request_id;
mod service;

pub use current::with_current_request_id;
pub use layer::RecordLayer;
pub use message::MessageRecord;
pub use service::RecordService;

#[cfg(test)]
mod tests;
