//! The clock of the process and the one that outlives it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use vestibule_terms::Clock;

/// Both clocks.
pub(crate) struct Times(pub(crate) Arc<dyn Clock>);

/// One reading of both.
#[derive(Debug)]
pub(crate) struct Both {
    instant: Instant,
    pub(crate) unix_millis: u64,
}

impl Times {
    pub(crate) fn now(&self) -> Both {
        Both {
            instant: Instant::now(),
            unix_millis: self.0.unix_millis(),
        }
    }
}

impl Both {
    /// That moment, for who comes after this process or is beside it.
    pub(crate) fn millis_of(&self, moment: Instant) -> u64 {
        let ago = self.instant.saturating_duration_since(moment).as_millis();
        self.unix_millis
            .saturating_sub(u64::try_from(ago).unwrap_or(u64::MAX))
    }

    /// That moment, from another process.
    pub(crate) fn moment_of(&self, unix_millis: u64) -> Instant {
        let ago = Duration::from_millis(self.unix_millis.saturating_sub(unix_millis));
        self.instant.checked_sub(ago).unwrap_or(self.instant)
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Times")
    }
}
