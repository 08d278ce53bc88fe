//! The blows of a run: a seed decides them before anything starts.

use std::time::Duration;

use crate::arguments::StoreKind;
use crate::history::Blow;
use crate::random::Random;

/// A blow comes at the latest so long after the one before.
const LATEST: u64 = 4_000;
const EARLIEST: u64 = 1_500;

/// One blow to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// After the one before.
    pub(crate) after: Duration,
    pub(crate) blow: Blow,
    /// How long a stopped replica stays so.
    pub(crate) lasts: Duration,
}

/// So many kills, with stops between them.
#[must_use]
pub(crate) fn schedule(store: StoreKind, kills: u32, seed: u64) -> Vec<Step> {
    let mut random = Random::of(seed, 0x5C4E);
    let mut steps = Vec::new();
    let mut left = kills;
    while left > 0 {
        let blow = draw(store, &mut random);
        let is_kill = blow != Blow::Stop;
        left -= u32::from(is_kill);
        steps.push(Step {
            after: Duration::from_millis(random.between(EARLIEST, LATEST)),
            blow,
            lasts: stop_time(store, &mut random),
        });
    }
    steps
}

fn draw(store: StoreKind, random: &mut Random) -> Blow {
    let number = random.between(0, 100);
    match store {
        StoreKind::Embedded if number < 90 => Blow::KillOwner,
        StoreKind::Embedded => Blow::Stop,
        _ if number < 55 => Blow::KillOwner,
        _ if number < 75 => Blow::KillReader,
        _ if number < 87 => Blow::Stop,
        StoreKind::Sentinel => Blow::Failover,
        StoreKind::Redis | StoreKind::Cluster => Blow::KillStore,
    }
}

/// Up to twelve seconds, so that a lease runs out or does not; where there is one replica only, it
/// would stop everything.
fn stop_time(store: StoreKind, random: &mut Random) -> Duration {
    let longest = match store {
        StoreKind::Embedded => 4_000,
        StoreKind::Redis | StoreKind::Sentinel | StoreKind::Cluster => 12_500,
    };
    Duration::from_millis(random.between(3_000, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_schedule() {
        let steps = schedule(StoreKind::Redis, 200, 5);
        assert_eq!(steps, schedule(StoreKind::Redis, 200, 5));
        assert_ne!(steps, schedule(StoreKind::Redis, 200, 6));
        let kills = steps.iter().filter(|step| step.blow != Blow::Stop);
        assert_eq!(kills.count(), 200);
        assert!(
            steps
                .iter()
                .all(|step| step.after <= Duration::from_secs(4))
        );
        let time: Duration = steps.iter().map(|step| step.after).sum();
        assert!(time < Duration::from_secs(15 * 60), "{time:?}");
        for blow in [
            Blow::KillOwner,
            Blow::KillReader,
            Blow::Stop,
            Blow::KillStore,
        ] {
            assert!(steps.iter().any(|step| step.blow == blow), "{blow:?}");
        }
        let tails = schedule(StoreKind::Sentinel, 50, 5);
        assert!(tails.iter().any(|step| step.blow == Blow::Failover));
    }
}
