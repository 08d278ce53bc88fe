//! The test peers against each other, over real sockets and pipes.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot go on fails its test"
)]

mod binaries;
mod conformance_http;
mod conformance_stdio;
mod recording;
mod scripted;
