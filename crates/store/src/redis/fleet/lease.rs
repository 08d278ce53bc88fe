//! What a replica knows of its own lease and of the store: pure, but for the clock.
//!
//! A replica that is silent is dead only if the store was there for it to speak (streams, section 1).
//! Whether it was is known from this replica's own beats: the store was there from some moment on if
//! since then no two beats in a row were so far apart that another replica's lease may have run out
//! meanwhile, and each found the number of the one before. A store that was restarted empty, or lost
//! its newest writes in a failover, shows an older number or none.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long a lease is, and how often it is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Whoever is silent for so long is dead.
    pub ttl: Duration,
    /// Everybody speaks as often.
    pub renew: Duration,
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            renew: Duration::from_secs(3),
        }
    }
}

impl Lease {
    /// How soon a beat that failed is tried again.
    pub(super) fn retry(self) -> Duration {
        self.renew / 6
    }

    /// How much sooner this replica stops to act than others may take it for dead: clocks run
    /// differently, and what it is about to do takes a moment.
    fn margin(self) -> Duration {
        self.ttl / 10
    }

    /// Two beats may be so far apart that the others, who spoke at most one pause before the first
    /// of them, still had their leases when the store was back, and time to speak again.
    pub(super) fn gap(self) -> Duration {
        self.ttl.saturating_sub(self.renew) * 3 / 4
    }
}

/// Time that counts while the machine sleeps.
pub(super) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// What the beats have told.
#[derive(Debug, Default)]
pub(super) struct Beats {
    sent: u64,
    acknowledged: u64,
    last: Option<Duration>,
    /// Since when the store has been there.
    since: Option<Duration>,
    /// When it was last found to have lost something.
    lost: Option<Duration>,
    until: Duration,
}

/// One beat that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beat {
    pub(super) number: u64,
    /// What the store has said to have kept, before.
    acknowledged: u64,
    sent: Duration,
}

impl Beats {
    pub(super) fn begin(&mut self, now: Duration) -> Beat {
        self.sent += 1;
        Beat {
            number: self.sent,
            acknowledged: self.acknowledged,
            sent: now,
        }
    }

    /// The store has answered, with the number that it had kept.
    pub(super) fn end(&mut self, beat: Beat, kept: Option<u64>, now: Duration, lease: Lease) {
        let whole = beat.acknowledged == 0 || kept.is_some_and(|kept| kept >= beat.acknowledged);
        let near = self
            .last
            .is_some_and(|last| now.saturating_sub(last) <= lease.gap());
        if !(whole && near) {
            self.since = Some(now);
        }
        if !whole {
            self.lost = Some(now);
        }
        self.last = Some(now);
        self.acknowledged = self.acknowledged.max(beat.number);
        // From when it was sent: the store counts from when it came, which was later.
        self.until = self.until.max(beat.sent + lease.ttl - lease.margin());
    }

    /// Whether this replica's own lease has time left.
    pub(super) fn may_act(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Whether the store has been there for a whole lease, so that who is silent is dead: as this
    /// replica's own beats tell, or those of the fleet, which may be older than this replica.
    pub(super) fn may_judge(&self, now: Duration, lease: Lease, fleet: bool) -> bool {
        let long = |at: Duration| now.saturating_sub(at) >= lease.ttl;
        let whole = self.lost.is_none_or(long);
        self.may_act(now) && (self.since.is_some_and(long) || (fleet && whole))
    }

    /// This replica acts no more.
    pub(super) fn stop(&mut self) {
        self.until = Duration::ZERO;
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Lease = Lease {
        ttl: Duration::from_secs(10),
        renew: Duration::from_secs(3),
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// One beat a moment, answered at once with what was kept.
    fn beat(beats: &mut Beats, seconds: u64, kept: Option<u64>) {
        let beat = beats.begin(at(seconds));
        beats.end(beat, kept, at(seconds), LEASE);
    }

    #[test]
    fn an_owner_acts_only_while_its_lease_has_time_left() {
        let mut beats = Beats::default();
        assert!(!beats.may_act(at(0)), "not before the first beat");
        beat(&mut beats, 100, None);
        assert!(beats.may_act(at(108)));
        assert!(!beats.may_act(at(109)), "before others may think it dead");
        let late = beats.begin(at(101));
        beats.end(late, Some(1), at(105), LEASE);
        assert!(beats.may_act(at(109)));
        assert!(!beats.may_act(at(110)), "counted from when it was sent");
        beats.stop();
        assert!(!beats.may_act(at(105)));
    }

    #[test]
    fn nobody_is_dead_before_the_store_was_there_for_a_whole_lease() {
        let mut beats = Beats::default();
        for (number, seconds) in (100..=112).step_by(3).enumerate() {
            assert!(!beats.may_judge(at(seconds), LEASE, false) || seconds > 110);
            beat(&mut beats, seconds, (number > 0).then_some(number as u64));
        }
        assert!(beats.may_judge(at(112), LEASE, false));
    }

    /// The beats from 100 on, until the store has been there long enough.
    fn settled() -> Beats {
        let mut beats = Beats::default();
        for number in 0..5 {
            beat(&mut beats, 100 + 3 * number, (number > 0).then_some(number));
        }
        assert!(beats.may_judge(at(112), LEASE, false));
        beats
    }

    #[test]
    fn an_outage_in_which_leases_may_have_run_out_starts_the_count_again() {
        let mut beats = settled();
        beat(&mut beats, 117, Some(5));
        assert!(
            beats.may_judge(at(117), LEASE, false),
            "5 s: all others have their leases"
        );
        beat(&mut beats, 123, Some(6));
        assert!(
            !beats.may_judge(at(123), LEASE, false),
            "6 s: some may have lost theirs"
        );
    }

    #[test]
    fn a_store_that_lost_something_starts_the_count_again() {
        for kept in [None, Some(4)] {
            let mut beats = settled();
            beat(&mut beats, 114, kept);
            assert!(!beats.may_judge(at(114), LEASE, false), "{kept:?}");
            assert!(beats.may_act(at(114)));
        }
        let mut beats = settled();
        let _unanswered = beats.begin(at(113));
        beat(&mut beats, 114, Some(6));
        assert!(
            beats.may_judge(at(114), LEASE, false),
            "a beat whose answer was lost had run"
        );
    }

    #[test]
    fn a_young_replica_may_judge_by_what_the_fleet_knows() {
        let mut beats = Beats::default();
        assert!(
            !beats.may_judge(at(100), LEASE, true),
            "not without a lease"
        );
        beat(&mut beats, 100, None);
        assert!(beats.may_judge(at(100), LEASE, true));
        assert!(!beats.may_judge(at(100), LEASE, false));
        beat(&mut beats, 103, None);
        assert!(
            !beats.may_judge(at(103), LEASE, true),
            "the store lost something"
        );
    }

    #[test]
    fn who_was_stopped_judges_nobody() {
        let beats = settled();
        assert!(!beats.may_judge(at(200), LEASE, false));
    }

    #[test]
    fn the_clock_goes_forward() {
        let before = now();
        assert!(now() >= before && before > Duration::ZERO);
    }
}
