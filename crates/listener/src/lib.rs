//! The way in: bind, accept, TLS, HTTP/1.1 and HTTP/2, and a drain that ends.
//!
//! A [`Listener`] serves one cloneable tower service on one address and knows nothing of what it
//! serves. It guards what only it can see: how many connections there are, in all and by address,
//! how long a head may take, how long a peer may refuse to read, where requests end (T16, T23, T24,
//! T26). Bodies that come slowly are the affair of whoever reads them.

mod accept;
mod activity;
mod answer;
mod bind;
mod caps;
mod clock;
mod connection;
mod drain;
mod framing;
mod rare;
mod tls;
mod version;
mod workers;

pub use bind::{ListenError, Listener};
pub use caps::{Limits, raise_open_files};
pub use connection::Connection;
pub use drain::{Drained, Shutdown};
pub use tls::{TlsError, TlsFiles};
pub use workers::Workers;
