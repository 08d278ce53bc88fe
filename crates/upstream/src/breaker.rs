//! When an upstream cannot be reached, calls stop waiting for it one after the other.
//!
//! Pure: instants come in, a decision goes out. Only failures to connect count (case 73): a call
//! that takes too long, an error status or a broken answer says that somebody is there.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row after which attempts are held back.
const TOLERANCE: u32 = 5;
/// How long they are held back, first and at most.
const HOLD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The state of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    closed_until: Option<Instant>,
}

impl Breaker {
    /// Whether an attempt may be made now. While connections fail there is one in each interval;
    /// whatever becomes of it, the next interval has its own.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        match self.closed_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                self.closed_until = Some(now + self.hold());
                true
            }
        }
    }

    /// An attempt came to no connection.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= TOLERANCE {
            self.closed_until = Some(now + self.hold());
        }
    }

    /// There was a connection.
    pub(crate) fn connected(&mut self) {
        *self = Self::default();
    }

    fn hold(&self) -> Duration {
        let doublings = self.failures.saturating_sub(TOLERANCE).min(8);
        (HOLD.0 * 2_u32.pow(doublings)).min(HOLD.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Just, Strategy, prop_oneof, proptest};

    #[derive(Debug, Clone)]
    enum Step {
        Wait(u64),
        Connects,
        Fails,
        Vanishes,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_u64..4000).prop_map(Step::Wait),
            Just(Step::Connects),
            Just(Step::Fails),
            Just(Step::Fails),
            Just(Step::Vanishes),
        ];
        proptest::collection::vec(step, 1..200)
    }

    proptest! {
        /// Whatever happens, an upstream is tried again within the longest interval, attempts are
        /// held back only after enough failures in a row, and one connection ends it.
        #[test]
        fn an_upstream_is_never_given_up(steps in steps()) {
            let (mut breaker, mut now) = (Breaker::default(), Instant::now());
            let (mut failures, mut refused_since) = (0, None);
            for step in steps {
                if let Step::Wait(millis) = step {
                    now += Duration::from_millis(millis);
                    continue;
                }
                if !breaker.admits(now) {
                    assert!(failures >= TOLERANCE);
                    let since = *refused_since.get_or_insert(now);
                    assert!(now - since <= HOLD.1);
                    continue;
                }
                refused_since = None;
                match step {
                    Step::Connects => {
                        breaker.connected();
                        failures = 0;
                        assert!(breaker.admits(now));
                    }
                    Step::Fails => {
                        breaker.failed(now);
                        failures += 1;
                    }
                    Step::Vanishes | Step::Wait(_) => {}
                }
            }
        }
    }

    /// Case 73: five failures to connect hold attempts back, one a second at first.
    #[tokio::test(start_paused = true)]
    async fn case_73_only_failures_to_connect_hold_attempts_back() {
        let mut breaker = Breaker::default();
        for _ in 0..TOLERANCE {
            assert!(breaker.admits(Instant::now()));
            breaker.failed(Instant::now());
        }
        assert!(!breaker.admits(Instant::now()));
        tokio::time::advance(HOLD.0).await;
        assert!(breaker.admits(Instant::now()), "one attempt");
        assert!(
            !breaker.admits(Instant::now()),
            "and no other until it is decided or forgotten"
        );
        tokio::time::advance(HOLD.0).await;
        assert!(breaker.admits(Instant::now()));
        breaker.connected();
        assert!(breaker.admits(Instant::now()) && breaker.admits(Instant::now()));
    }
}
