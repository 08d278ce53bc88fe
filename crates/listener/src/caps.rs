//! How many connections there may be: in all, so that file descriptors remain for everything
//! else, and by client address.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Where the system tells no limit of open files.
const DEFAULT_OPEN_FILES: u64 = 1024;
/// More than this no single process serves.
const MOST: u64 = 1_000_000;

/// Bounds of one listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections in all. Beyond it peers wait in the kernel's queue.
    pub connections: usize,
    /// Connections of one client address (IPv6: of one /64); `None` is no limit. Beyond it a
    /// connection is closed as soon as it is accepted.
    pub per_address: Option<usize>,
}

impl Default for Limits {
    /// Half of the open files the process may have, after a tenth is set aside (a client's
    /// connection usually comes with one to an upstream), and no limit by address.
    fn default() -> Self {
        let files = open_files();
        let connections = (files - files / 10) / 2;
        Self {
            connections: usize::try_from(connections.max(16)).unwrap_or(usize::MAX),
            per_address: None,
        }
    }
}

fn open_files() -> u64 {
    getrlimit(Resource::Nofile)
        .current
        .unwrap_or(DEFAULT_OPEN_FILES)
        .min(MOST)
}

/// Raises the soft limit of open files to the hard one, and returns what it is then. Call it once
/// at start, before the limits are taken.
pub fn raise_open_files() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(error = %error, "the limit of open files stays as it is");
    }
    open_files()
}

/// The counters behind [`Limits`].
#[derive(Debug)]
pub(crate) struct Caps {
    all: Arc<Semaphore>,
    per_address: Option<usize>,
    by_address: Arc<DashMap<IpAddr, usize>>,
}

impl Caps {
    pub(crate) fn new(limits: Limits) -> Self {
        let connections = limits.connections.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(connections)),
            per_address: limits.per_address,
            by_address: Arc::default(),
        }
    }

    /// Waits until there is room for one more connection.
    pub(crate) async fn room(&self) -> OwnedSemaphorePermit {
        let all = Arc::clone(&self.all);
        all.acquire_owned()
            .await
            .expect("the semaphore is never closed")
    }

    /// Counts a connection of `peer`; `None` when the address has too many.
    pub(crate) fn admit(&self, peer: IpAddr) -> Option<AddressSlot> {
        let Some(limit) = self.per_address else {
            return Some(AddressSlot(None));
        };
        let key = key(peer);
        match self.by_address.entry(key) {
            Entry::Occupied(count) if *count.get() >= limit => return None,
            Entry::Occupied(mut count) => *count.get_mut() += 1,
            Entry::Vacant(_) if limit == 0 => return None,
            Entry::Vacant(vacant) => {
                vacant.insert(1);
            }
        }
        Some(AddressSlot(Some((Arc::clone(&self.by_address), key))))
    }
}

/// One counted connection of an address, until it is dropped.
#[derive(Debug)]
pub(crate) struct AddressSlot(Option<(Arc<DashMap<IpAddr, usize>>, IpAddr)>);

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let Some((counts, key)) = &self.0 else { return };
        if let Entry::Occupied(mut count) = counts.entry(*key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// An IPv6 client usually has a whole /64.
fn key(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(four) => IpAddr::V4(four),
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T24: connections are counted by address, IPv6 by /64, mapped IPv4 as IPv4.
    #[test]
    fn t24_connections_of_one_address_are_capped() {
        let caps = Caps::new(Limits {
            connections: 10,
            per_address: Some(2),
        });
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = caps.admit(address("2001:db8::1"));
        let second = caps.admit(address("2001:db8::2"));
        assert!(first.is_some() && second.is_some());
        assert!(caps.admit(address("2001:db8::3")).is_none());
        assert!(caps.admit(address("2001:db8:0:1::3")).is_some());
        drop(first);
        assert!(caps.admit(address("2001:db8::3")).is_some());
        let _four = caps.admit(address("10.0.0.1"));
        let _mapped = caps.admit(address("::ffff:10.0.0.1"));
        assert!(caps.admit(address("10.0.0.1")).is_none());
    }

    #[test]
    fn counters_of_addresses_without_connections_are_forgotten() {
        let caps = Caps::new(Limits {
            connections: 10,
            per_address: Some(1),
        });
        drop(caps.admit("10.0.0.1".parse().unwrap()));
        assert!(caps.by_address.is_empty());
    }
}
