//! How the process stops.
//!
//! The first SIGTERM or SIGINT starts the stop: readiness fails at once, requests are served for
//! `shutdown.delay` while load balancers look away, then the listeners stop accepting and what is
//! open drains for at most `shutdown.grace`. Calls that have not ended by then end with an error of
//! ours, and what is still open a moment later is cut. A second signal exits at once.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// From the end of the grace to the cut: so long the last errors may take to go out.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The moments of a stop, in order. Every clone sees the same ones.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Readiness fails from here on; requests are still served.
    pub announced: CancellationToken,
    /// Listeners stop accepting; streams are asked to end.
    pub draining: CancellationToken,
    /// Calls that still run end with an error.
    pub ending: CancellationToken,
    /// Whatever is left is cut.
    pub cut: CancellationToken,
}

/// How long the steps of a stop take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// From announcement to drain.
    pub delay: Duration,
    /// From drain to cut.
    pub grace: Duration,
}

impl Stop {
    /// Runs the steps after an announcement; ends at the cut. Dropping it leaves the stop where
    /// it is.
    pub async fn run(&self, timing: Timing) {
        self.announced.cancel();
        tokio::time::sleep(timing.delay).await;
        self.draining.cancel();
        tokio::time::sleep(timing.grace).await;
        self.ending.cancel();
        tokio::time::sleep(LAST_WORDS).await;
        self.cut.cancel();
    }

    /// All at once: what a second signal does.
    pub fn now(&self) {
        self.announced.cancel();
        self.draining.cancel();
        self.ending.cancel();
        self.cut.cancel();
    }
}

/// The signals that ask the process to stop.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Takes over SIGTERM and SIGINT.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one; cancel-safe.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn a_stop_is_announced_then_drains_then_cuts() {
        let stop = Stop::default();
        let timing = Timing {
            delay: Duration::from_secs(5),
            grace: Duration::from_secs(45),
        };
        let begin = Instant::now();
        let running = tokio::spawn({
            let stop = stop.clone();
            async move { stop.run(timing).await }
        });
        stop.announced.cancelled().await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        stop.draining.cancelled().await;
        assert_eq!(begin.elapsed(), Duration::from_secs(5));
        assert!(!stop.ending.is_cancelled());
        stop.ending.cancelled().await;
        assert_eq!(begin.elapsed(), Duration::from_secs(50));
        assert!(!stop.cut.is_cancelled());
        running.await.unwrap();
        assert!(stop.cut.is_cancelled());
        assert_eq!(begin.elapsed(), Duration::from_millis(50_500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_cuts_at_once() {
        let stop = Stop::default();
        tokio::spawn({
            let stop = stop.clone();
            let timing = Timing {
                delay: Duration::from_secs(5),
                grace: Duration::from_secs(45),
            };
            async move { stop.run(timing).await }
        });
        sleep(Duration::from_secs(1)).await;
        stop.now();
        assert!(stop.draining.is_cancelled() && stop.cut.is_cancelled());
    }
}
