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

mod at_scale;
mod auth;
mod bad_input;
mod batch;
mod cancel;
mod cross_era;
mod drain;
mod endings;
mod federation;
mod fidelity;
#[allow(
    dead_code,
    reason = "written for the tests of the frame room, which use all of it"
)]
#[path = "../../../frame/tests/it/generate.rs"]
mod generate;
mod harness;
mod health;
mod http2;
mod http_sse;
mod isolation;
mod json_suite;
mod legacy_session;
mod limits;
mod listen;
mod modern;
mod origin;
mod paths;
mod peers;
mod process;
mod program;
mod questions;
mod records;
mod reload;
mod replicas;
mod restart;
mod resume;
mod rounds;
mod smuggling;
mod stages;
mod stdio;
#[path = "../../../frame/tests/it/suite.rs"]
mod suite;
mod talk;
mod transport;
mod upstream_down;
mod upstream_streams;
