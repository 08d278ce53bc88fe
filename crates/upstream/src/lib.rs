//! Upstream servers of either era, over HTTP or as child processes, behind one
//! [`Connector`](vestibule_exchange::Connector).
//!
//! A call comes in neutral form and leaves as a request of a hop of its own: own id, own progress
//! token, own metadata and headers (FRM-25). What the upstream says on the way back becomes the
//! call's events; what it says outside of every call goes up through the inlet. Error responses
//! pass untouched: how they read to a client is not decided here.
//!
//! | module | holds |
//! |---|---|
//! | [`Targets`] | which upstreams there are; a snapshot that is swapped as a whole |
//! | [`Upstreams`] | the connector |
//! | `link` | one upstream and the way of a call through it |
//! | `probe`, `era` | which era it speaks, and for how long that is believed |
//! | `modern` | stateless upstreams over HTTP |
//! | `legacy` | upstreams with a handshake: sessions, their pool, questions, resumption |
//! | `stdio` | child processes |
//! | `wire` | HTTP as such: bodies, redirects, event streams |
//! | `compose`, `ear` | what this hop writes into a request, and hears on its way back |
//! | `fault`, `retry`, `breaker`, `clock` | what can go wrong, what may be repeated and when, how long it may take |
//!
//! Not here: names and URIs (router), what a client sees of an error (router), questions across
//! eras (interact).

mod background;
mod breaker;
mod calls;
mod carrier;
mod clock;
mod compose;
mod ear;
mod era;
mod fault;
mod flight;
mod ids;
mod legacy;
mod link;
mod modern;
mod observe;
mod probe;
mod retry;
mod running;
mod stdio;
mod targets;
#[cfg(test)]
mod testing;
mod upstreams;
mod wire;

pub use compose::GatewayIdentity;
pub use targets::{EraChoice, Reach, Target, TargetError, Targets, Timeouts};
pub use upstreams::Upstreams;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The guarded value. A panic elsewhere leaves every value here whole: each is changed in one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
