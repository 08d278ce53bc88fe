//! Wall-clock time behind a trait, so that expiry can be tested without waiting.
//!
//! Durations inside one process use `tokio::time`, which tests pause; this clock is for instants
//! that outlive the process or cross it (expiry of sealed handles, of keys, of sessions).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds and milliseconds since the Unix epoch.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch.
    fn unix_millis(&self) -> u64;

    /// Seconds since the Unix epoch.
    fn unix_seconds(&self) -> u64 {
        self.unix_millis() / 1000
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn unix_millis(&self) -> u64 {
        let elapsed = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Starts at `millis` since the epoch.
    pub fn at(millis: u64) -> Self {
        Self(AtomicU64::new(millis))
    }

    /// Moves forward by `millis`.
    pub fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn unix_millis(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
