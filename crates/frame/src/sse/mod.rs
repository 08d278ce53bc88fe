//! Server-sent events by the WHATWG rules: an incremental parser and the few events that we write.

mod encode;
mod parse;

pub use encode::{comment, endpoint, message, priming, retry};
pub use parse::{Event, Parser, SseError};
