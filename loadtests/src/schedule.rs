//! Intended start times of an open model, and the thread that keeps them.
//!
//! The n-th request is due at `start + n / rate`, whatever happened to those before it: a slow
//! answer delays nobody's due time. Times are computed from n, never added up, so no rounding
//! accumulates.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// When each of `count` requests is due.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    start: Instant,
    rate: NonZeroU32,
    count: u64,
}

impl Schedule {
    /// `count` requests at `rate` a second from `start` on.
    pub fn new(start: Instant, rate: NonZeroU32, count: u64) -> Self {
        Self { start, rate, count }
    }

    /// How many requests there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// When request `index` is due.
    pub fn intended(&self, index: u64) -> Instant {
        let nanos = u128::from(index) * NANOS_PER_SECOND / u128::from(self.rate.get());
        self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many requests are due at `now`.
    pub fn due(&self, now: Instant) -> u64 {
        let Some(elapsed) = now.checked_duration_since(self.start) else {
            return 0;
        };
        // the k-th is due when floor(k * 10^9 / rate) <= elapsed, which is k * 10^9 < (elapsed + 1) * rate
        let reached = (elapsed.as_nanos() + 1) * u128::from(self.rate.get());
        let due = reached.div_ceil(NANOS_PER_SECOND);
        u64::try_from(due).unwrap_or(u64::MAX).min(self.count)
    }
}

/// Releases one permit for each request as it falls due, then `workers` more, which tell the
/// workers that there is nothing left.
///
/// Runs on a thread of its own: the runtime's timers have a resolution of a millisecond, which is
/// more than a whole call takes.
pub fn pace(schedule: &Schedule, arrivals: &Arc<Semaphore>, workers: usize) {
    sharpen_timer();
    let mut released = 0;
    while released < schedule.count() {
        let now = Instant::now();
        let due = schedule.due(now);
        if due > released {
            arrivals.add_permits(usize::try_from(due - released).unwrap_or(usize::MAX));
            released = due;
        } else {
            std::thread::sleep(schedule.intended(released).saturating_duration_since(now));
        }
    }
    arrivals.add_permits(workers);
}

/// The kernel may wake a thread 50 µs late to save power; a pacer asks for 1 µs. Without the
/// permission the schedule is kept a little worse, and the report's lateness shows it.
fn sharpen_timer() {
    const SLACK_NANOS: NonZeroU64 = NonZeroU64::new(1_000).expect("a thousand is not zero");
    let _refused = rustix::thread::set_current_timer_slack(Some(SLACK_NANOS));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rate: u32, count: u64) -> (Instant, Schedule) {
        let start = Instant::now();
        (
            start,
            Schedule::new(start, NonZeroU32::new(rate).unwrap(), count),
        )
    }

    #[test]
    fn due_times_do_not_drift() {
        let (start, thirds) = schedule(3, 10_000_000);
        assert_eq!(thirds.intended(0), start);
        assert_eq!(
            thirds.intended(1),
            start + Duration::from_nanos(333_333_333)
        );
        assert_eq!(thirds.intended(3), start + Duration::from_secs(1));
        assert_eq!(
            thirds.intended(9_000_000),
            start + Duration::from_secs(3_000_000)
        );
    }

    #[test]
    fn a_request_is_due_exactly_from_its_intended_time_on() {
        for rate in [1, 3, 7, 1_999, 2_000, 99_991] {
            let (_, schedule) = schedule(rate, 1_000);
            for index in 0..1_000 {
                let intended = schedule.intended(index);
                assert_eq!(schedule.due(intended), index + 1, "{rate}/s, {index}");
                let just_before = intended - Duration::from_nanos(1);
                assert_eq!(schedule.due(just_before), index, "{rate}/s, before {index}");
            }
        }
    }

    #[test]
    fn nothing_is_due_before_the_start_nor_after_the_last() {
        let (start, schedule) = schedule(2_000, 10);
        assert_eq!(schedule.due(start - Duration::from_secs(1)), 0);
        assert_eq!(schedule.due(start + Duration::from_secs(3_600)), 10);
    }

    /// The pacer releases every request once and one end mark a worker, also when all are overdue.
    #[test]
    fn the_pacer_releases_every_request_and_an_end_for_each_worker() {
        let start = Instant::now();
        let overdue = start.checked_sub(Duration::from_secs(1)).unwrap();
        for begin in [start, overdue] {
            let arrivals = Arc::new(Semaphore::new(0));
            let schedule = Schedule::new(begin, NonZeroU32::new(10_000).unwrap(), 50);
            pace(&schedule, &arrivals, 4);
            assert_eq!(arrivals.available_permits(), 54);
            assert!(Instant::now() >= schedule.intended(49));
        }
    }
}
