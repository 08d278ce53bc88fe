//! How long one request may take: an idle limit that progress resets, and a total that nothing does.

use std::time::Duration;

use tokio::time::Instant;

/// The clocks of one call (LIF-09).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// Longest silence of the upstream; progress and other events start it anew.
    pub idle: Duration,
    /// The instant at which the call ends whatever happens.
    pub end: Instant,
}

impl Deadline {
    /// Starts both clocks now.
    pub fn starting_now(idle: Duration, total: Duration) -> Self {
        Self {
            idle,
            end: Instant::now() + total,
        }
    }

    /// The instant at which a wait that begins now must give up.
    pub fn next(&self) -> Instant {
        (Instant::now() + self.idle).min(self.end)
    }

    /// Time left until the total limit; zero when it has passed.
    pub fn remaining(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}
