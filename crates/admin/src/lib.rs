//! What operators and their machines see of a running gateway, on a listener of its own.
//!
//! Today that is health and metrics ([`health`]). Nothing here answers callers of MCP, and nothing
//! here changes a running room by itself.

pub mod health;

pub use health::{Health, Readiness, Watchdog, router};
