//! Failed authentications an address may have: 20 a second, 100 at once. Over that, a bad
//! credential is answered 429 instead of 401; a good one is still let in.

use std::net::IpAddr;
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::gcra::Gcra;
use crate::plans::Rate;
use crate::proxies;

const RATE: Rate = Rate {
    count: 20,
    per: Duration::from_secs(1),
};
const BURST: u32 = 100;
/// Most addresses remembered. When more fail at once, new ones are not counted: the guard's own rate
/// still holds them.
const MAX_ADDRESSES: usize = 100_000;

/// The counter, by address.
#[derive(Debug)]
pub struct Penalties {
    start: Instant,
    gcra: Option<Gcra>,
    arrivals: DashMap<IpAddr, u64>,
}

impl Default for Penalties {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            gcra: Gcra::new(RATE, BURST),
            arrivals: DashMap::new(),
        }
    }
}

impl Penalties {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Counts one failure of `address`.
    ///
    /// # Errors
    /// How long to wait, when there were too many.
    pub fn count(&self, address: IpAddr) -> Result<(), Duration> {
        let Some(gcra) = self.gcra else { return Ok(()) };
        let now = self.now();
        let key = proxies::limit_key(address);
        if self.arrivals.len() >= MAX_ADDRESSES && !self.arrivals.contains_key(&key) {
            return Ok(());
        }
        let mut arrival = self.arrivals.entry(key).or_insert(0);
        *arrival = gcra.take(*arrival, now)?;
        Ok(())
    }

    /// Forgets addresses whose failures have been worked off.
    pub(super) fn sweep(&self) {
        let now = self.now();
        self.arrivals.retain(|_, arrival| *arrival > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hundred_failures_at_once_then_twenty_a_second() {
        let penalties = Penalties::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for _ in 0..100 {
            assert!(penalties.count(address("192.0.2.1")).is_ok());
        }
        assert!(penalties.count(address("192.0.2.1")).is_err());
        assert!(penalties.count(address("192.0.2.2")).is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..20 {
            assert!(penalties.count(address("192.0.2.1")).is_ok());
        }
        assert!(penalties.count(address("192.0.2.1")).is_err());
        tokio::time::advance(Duration::from_secs(10)).await;
        penalties.sweep();
        assert!(penalties.arrivals.is_empty());
    }
}
