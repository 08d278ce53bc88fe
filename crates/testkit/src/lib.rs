//! Peers for tests: upstreams and clients that do exactly what a test tells
//! them, and one upstream that passes the official conformance suite.
//!
//! A dev-dependency only; nothing here is part of the product, and nothing
//! here uses its code: what checks the gateway's parsers must not be them.
//! Everything speaks over real sockets and pipes, so tests that use it run on
//! the real clock, and what waits gives up after [`PATIENCE`].

use std::time::Duration;

pub mod binaries;
pub mod conformance;
pub mod h2_client;
pub mod raw_client;
pub mod recording;
pub mod redis;
pub mod scripted_stdio;
pub mod sse;
pub mod wire;

pub use h2_client::H2Client;
pub use raw_client::{RawClient, RawRequest, RawResponse};
pub use recording::{Answer, Recorded, RecordingUpstream};

/// How long a peer waits for what a test says must come.
pub const PATIENCE: Duration = Duration::from_secs(10);
