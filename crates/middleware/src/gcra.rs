//! The generic cell rate algorithm, as arithmetic on a theoretical arrival time: a rate with a
//! burst in one number a key. No clock and no table in here.

use std::time::Duration;

use crate::plans::Rate;

/// A rate and a burst, ready for use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gcra {
    /// Nanoseconds one request costs.
    cost: u64,
    /// How far the theoretical arrival may run ahead, in nanoseconds.
    tolerance: u64,
}

impl Gcra {
    /// `rate` with `burst` at once; absent when none is ever allowed.
    pub fn new(rate: Rate, burst: u32) -> Option<Self> {
        if rate.count == 0 || burst == 0 {
            return None;
        }
        let per = u64::try_from(rate.per.as_nanos()).unwrap_or(u64::MAX);
        let cost = (per / u64::from(rate.count)).max(1);
        Some(Self {
            cost,
            tolerance: cost.saturating_mul(u64::from(burst)),
        })
    }

    /// One request at `now`, given the theoretical arrival `arrival` of the key: the new arrival, or
    /// how long to wait.
    pub fn take(self, arrival: u64, now: u64) -> Result<u64, Duration> {
        let next = arrival.max(now).saturating_add(self.cost);
        let ahead = next - now.min(next);
        if ahead > self.tolerance {
            return Err(Duration::from_nanos(ahead - self.tolerance));
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn gcra(count: u32, burst: u32) -> Gcra {
        let per = Duration::from_secs(1);
        Gcra::new(Rate { count, per }, burst).unwrap()
    }

    #[test]
    fn a_burst_passes_and_the_rate_refills_it() {
        let gcra = gcra(10, 3);
        let mut arrival = 0;
        for _ in 0..3 {
            arrival = gcra.take(arrival, SECOND).unwrap();
        }
        let wait = gcra.take(arrival, SECOND).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        let arrival = gcra.take(arrival, SECOND + SECOND / 10).unwrap();
        assert!(gcra.take(arrival, SECOND + SECOND / 10).is_err());
        assert!(gcra.take(arrival, SECOND + SECOND / 5).is_ok());
    }

    #[test]
    fn over_any_second_no_more_than_burst_and_rate_pass() {
        let gcra = gcra(50, 100);
        let mut arrival = 0;
        let mut passed = 0;
        for step in 0..1000 {
            if let Ok(next) = gcra.take(arrival, SECOND + step * SECOND / 1000) {
                arrival = next;
                passed += 1;
            }
        }
        assert!((149..=150).contains(&passed), "{passed}");
    }

    #[test]
    fn none_allowed_is_no_limiter_at_all() {
        let per = Duration::from_secs(1);
        assert_eq!(Gcra::new(Rate { count: 0, per }, 1), None);
        assert_eq!(Gcra::new(Rate { count: 1, per }, 0), None);
    }
}
