//! The client of Redis and Valkey, the only one in the workspace.
//!
//! What it promises (EL-23):
//!
//! - *One way in.* [`Redis::run`] runs a [`Script`] on the keys of one [`Slot`], nothing else: what a
//!   script does is done whole or not at all, and works the same on one server, behind Sentinel and on
//!   a cluster (EL-24). Every key is made by a slot, and no slot of a session is made without its
//!   tenant (T48).
//! - *An answer or an error soon.* A command takes at most its time-out, at most so many are in flight,
//!   and while nothing answers the breaker is open: commands fail at once.
//! - *An error says little.* A command that failed may have run or may not. Callers repeat it, so
//!   scripts are written to be repeated.
//! - *One reconnect at a time.* A time-out, a reset and `READONLY` are one thing: find the primary
//!   again, by one task, with growing pauses. Nobody else connects.
//! - *No time of the server's.* Scripts never ask for the time; callers pass milliseconds of their
//!   [`Clock`](vestibule_terms::Clock).
//! - *Hints may be lost.* What is published to this replica's own channel is passed on if somebody
//!   listens and the connection holds; whoever needs it finds it by polling as well (EL-10).
//!
//! # URLs
//!
//! ```text
//! redis://[user:password@]host[:6379][/db]
//! redis-sentinel://[user:password@]sentinel[:26379],…/master-name[/db][?sentinel_user=…&sentinel_password=…]
//! redis-cluster://[user:password@]node[:6379],…
//! ```
//!
//! `rediss` in place of `redis` means TLS, to sentinels too, with the certificates of [`Settings::ca`]
//! or else the machine's. User and passwords are percent-encoded. The user needs `+@all` on keys and
//! channels `vestibule:*`, or at least the commands that the scripts name, `eval`, `evalsha`, `ping`,
//! `hello` and `subscribe`.

mod client;
mod connect;
mod endpoint;
mod fleet;
mod hints;
mod keeper;
mod names;
mod reply;
mod script;
mod sessions;
mod settings;

pub use crate::ReplicaId;
pub use client::Redis;
pub use fleet::{Lease, RedisFleet};
pub use names::{Key, Slot, channel_of};
pub use reply::Reply;
pub use script::Script;
pub use sessions::RedisSessions;
pub use settings::{RedisAlarm, RedisEvent, Settings};

/// What is wrong with a URL, for whoever checks a configuration; it repeats nothing of it.
pub fn flaw(url: &str) -> Option<String> {
    let what = endpoint::Endpoint::parse(url).err()?;
    Some(format!(
        "{what}: it must be redis://host:6379, redis-sentinel://host:26379,…/master-name or \
         redis-cluster://host:6379,… (rediss for TLS)"
    ))
}

#[cfg(test)]
mod tests;
