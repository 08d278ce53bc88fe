//! The conformance upstream: an MCP server of both eras that has every fixture
//! the official conformance suite asks for.
//!
//! It exists to be put behind the gateway, so that the suite can be run twice,
//! directly and through, and the two runs be compared. Protocol and transports
//! are those of `rmcp`; the parts it has no switch for (a stream that ends
//! before its answer, a server that knows one era only) are in `polling` and
//! `era`. It is no model for a real server: its tools do nothing useful.

mod announce;
mod catalog;
mod content;
mod era;
mod http;
mod polling;
mod questions;
mod rounds;
mod server;
mod stdio;
mod tools;

pub use era::Eras;
pub use http::HttpFixture;
pub use server::FixtureServer;
pub use stdio::serve_stdio;
