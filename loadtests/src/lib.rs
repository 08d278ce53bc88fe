//! Load for MCP over Streamable HTTP, and the two programs it is measured against.
//!
//! The generator speaks both eras, keeps an open model honest (latency counts from the moment a
//! request was due, not from the moment it could be sent) and says how late it was itself. It is a
//! measuring instrument for one machine: it talks to loopback addresses only, and every run is
//! bounded in time and count. It does not check the protocol; that is what the tests of the
//! gateway are for.
//!
//! | module | holds |
//! |---|---|
//! | [`arguments`], [`plan`], [`target`] | what was asked for, checked |
//! | [`mcp`], [`answer`], [`events`] | the messages of both eras, and reading what comes back |
//! | [`user`] | one connection with its session |
//! | [`schedule`], [`measure`] | intended start times, histograms, lateness: the arithmetic |
//! | [`load`] | the models: closed, open, held streams, resume |
//! | [`report`] | the JSON result and the thresholds |
//! | [`stub`], [`bare`] | the upstream under every comparison, and the least a proxy can do |

pub mod answer;
pub mod arguments;
pub mod bare;
pub mod events;
pub mod load;
pub mod mcp;
pub mod measure;
pub mod plan;
pub mod report;
pub mod schedule;
pub mod stub;
pub mod target;
pub mod user;
