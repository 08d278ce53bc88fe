//! Vestibule: the front door of an organisation to its MCP servers.
//!
//! This crate puts the rooms together and is the only one that knows two stages:
//!
//! - [`pipeline`]: the one file that shows every stage a request passes, in order;
//! - [`app`]: builds every room once and hands each the handles it needs;
//! - [`config`]: turns the checked configuration into the snapshots that rooms read;
//! - [`reload`]: applies a changed file to a running gateway;
//! - [`shutdown`]: signals, delay, drain, deadline;
//! - [`logs`]: where log lines go;
//! - [`cli`]: the commands.

mod admission;
pub mod app;
pub mod cli;
pub mod config;
pub mod logs;
pub mod pipeline;
pub mod reload;
pub mod shutdown;
mod state;
mod toll;
