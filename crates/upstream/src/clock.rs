//! The clocks of one call: an idle limit that every event of the call starts anew, and a total that
//! nothing moves (LIF-09). Each is the smaller of what the caller and the target allow.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
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
    /// One timer for the whole call: it is set once and only ever moved.
    alarm: Pin<Box<Sleep>>,
}

pin_project! {
    /// Work that the clocks of its call bound. A type of its own because an `async fn` would hold
    /// the work twice.
    pub(crate) struct Bound<'a, F> {
        #[pin]
        work: F,
        alarm: Pin<&'a mut Sleep>,
    }
}

impl<F: Future> Future for Bound<'_, F> {
    type Output = Result<F::Output, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(done) = this.work.poll(cx) {
            return Poll::Ready(Ok(done));
        }
        ready!(this.alarm.as_mut().poll(cx));
        Poll::Ready(Err(Fault::Timeout))
    }
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
                alarm: Box::pin(sleep_until(deadline.end)),
            };
        }
        let idle = deadline.idle.min(timeouts.idle);
        let end = deadline.end.min(Instant::now() + timeouts.total);
        let next = end.min(Instant::now() + idle);
        Self {
            idle,
            end,
            next,
            alarm: Box::pin(sleep_until(next)),
        }
    }

    /// Starts the idle clock anew.
    pub(crate) fn touch(&mut self) {
        self.next = self.end.min(Instant::now() + self.idle);
        self.alarm.as_mut().reset(self.next);
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
    pub(crate) fn bound<F: Future>(&mut self, work: F) -> Bound<'_, F> {
        Bound {
            work,
            alarm: self.alarm.as_mut(),
        }
    }
}
