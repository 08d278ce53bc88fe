//! The clients: they speak 2025-11-25, keep the last id they dispatched, resume with it through the
//! balancer and honour `retry`. They never repeat a request.

mod answer;
mod call;
mod forger;
mod http;
mod message;
mod news;
mod session;
mod sse;
mod world;

pub(crate) use call::worker;
pub(crate) use forger::forge;
pub(crate) use news::watcher;
pub(crate) use session::Session;
pub(crate) use world::{Tenant, World};
