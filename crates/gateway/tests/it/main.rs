//! The gateway as a whole, over real sockets on loopback: one file a behaviour.
//!
//! Upstreams are scripted peers of the testkit, which share no code with the product.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]
#![allow(
    clippy::too_many_lines,
    clippy::excessive_nesting,
    reason = "a scenario or a table of inputs reads in one piece"
)]

mod auth;
mod bad_input;
mod batch;
mod cancel;
mod cross_era;
mod drain;
mod federation;
mod fidelity;
mod harness;
mod health;
mod isolation;
mod legacy_session;
mod limits;
mod listen;
mod modern;
mod origin;
mod peers;
mod process;
mod program;
mod questions;
mod records;
mod reload;
mod resume;
mod stages;
mod stdio;
mod talk;
mod transport;
mod upstream_down;
mod upstream_streams;
