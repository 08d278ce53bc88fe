//! Upstreams with a handshake (2024-11-05 to 2025-11-25), over HTTP or as processes.
//!
//! | module | holds |
//! |---|---|
//! | `handshake` | `initialize` and what it answers |
//! | `live` | one open upstream session and how messages get to it |
//! | `session` | a session's place in the pool: opened when needed, reopened when lost |
//! | `pool` | who may share which session |
//! | `peer`, `desk` | what an upstream says outside of its answers; questions |
//! | `in_call` | the way back of one call |
//! | `record` | what is written down for another process to go on with |
//! | `http`, `resume`, `standalone` | calls, broken streams and the GET stream over HTTP |
//! | `pipe` | calls over a process |

mod call;
pub(crate) mod desk;
pub(crate) mod handshake;
mod http;
mod in_call;
pub(crate) mod live;
pub(crate) mod peer;
mod pipe;
pub(crate) mod pool;
pub(crate) mod record;
mod resume;
pub(crate) mod session;
mod standalone;

pub(crate) use call::{call, go_on};

/// What a turn of a call came to, when it was no failure.
pub(crate) enum Turn {
    /// The call has ended.
    End(Box<vestibule_exchange::Final>),
    /// The upstream session is gone, and the request was not executed.
    SessionGone,
    /// The request was refused for a header that is now left out.
    Again,
    /// The upstream does not speak this era (any more).
    OtherEra,
}
