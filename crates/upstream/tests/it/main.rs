//! The connector against upstreams that are written here, over real sockets and processes.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "a test that meets the unexpected fails, and the child's part is to print"
)]

mod child;
mod faults;
mod handover;
mod legacy;
mod modern;
mod opening;
mod questions;
mod stdio;
mod streams;
mod world;
