//! The clocks of one call: an idle limit that every event of the call starts anew, and a total that
//! nothing moves (LIF-09). Each is the smaller of what the caller and the target allow.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use vestibule_exchange::Outbound;
use vestibule_terms::Method;

use crate::fault::Fault;
use crate::targets::Timeouts;

/// The clocks of one call.
#[derive(Debug)]
pub(crate) struct CallClock {
    idle: Duration,
    end: Instant,
    next: Instant,
}

impl CallClock {
    /// Starts both clocks now. A listen stream has no idle limit and no total of the target's:
    /// silence is its normal state.
    pub(crate) fn start(outbound: &Outbound, timeouts: &Timeouts) -> Self {
        let deadline = outbound.deadline;
        if outbound.method == Method::SubscriptionsListen {
            let idle = deadline.remaining();
            return Self {
                idle,
                end: deadline.end,
                next: deadline.end,
            };
        }
        let idle = deadline.idle.min(timeouts.idle);
        let end = deadline.end.min(Instant::now() + timeouts.total);
        Self {
            idle,
            end,
            next: end.min(Instant::now() + idle),
        }
    }

    /// Starts the idle clock anew.
    pub(crate) fn touch(&mut self) {
        self.next = self.end.min(Instant::now() + self.idle);
    }

    /// Whether the total is used up.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Whether a wait of `delay` would still leave time.
    pub(crate) fn allows(&self, delay: Duration) -> bool {
        Instant::now() + delay < self.end
    }

    /// Waits for `work` no longer than the clocks allow.
    pub(crate) async fn bound<T>(&self, work: impl Future<Output = T>) -> Result<T, Fault> {
        timeout_at(self.next, work)
            .await
            .map_err(|_elapsed| Fault::Timeout)
    }
}
