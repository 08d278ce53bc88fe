//! The one way out: every HTTP request the gateway sends leaves through [`Client`].
//!
//! What may be reached is decided by [`Policy`], in the connector: a name is resolved, its
//! addresses are filtered and one of exactly those is connected to, so that nothing can change
//! between check and use (T55). Redirects are never followed here; [`redirect_target`] is the
//! rule for callers that follow the one kind they may (HTR-10). Nothing is ever retried here
//! either (SSE-13): an error says whether the request can have been sent, and the caller decides.

mod address;
mod body;
mod client;
mod connect;
mod error;
mod filter;
mod pattern;
mod plain;
mod pool;
mod redirect;
mod resolve;
mod tls;

pub use body::EgressBody;
pub use client::{Client, Options};
pub use error::EgressError;
pub use filter::{Denied, Policy, Rule, Rules};
pub use pattern::InvalidPattern;
pub use redirect::{MAX_REDIRECTS, RedirectRefused, redirect_target};
pub use resolve::{Lookup, SystemLookup};
