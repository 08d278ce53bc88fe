//! HTTP towards one target: a message goes out as a POST of its own, an answer comes back as one
//! JSON body or as an event stream.
//!
//! Nothing here knows an era. The headers are the upstream's own and what the caller of this
//! module writes; nothing of a client's request can get here (HDR-24).

mod answer;
mod body;
mod request;

pub(crate) use answer::{Answer, Item};
pub(crate) use request::{Refusal, Refused, Reply, Wire, json_headers};
