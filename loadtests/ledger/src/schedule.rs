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

/// How often each kind of blow falls, in percent.
#[derive(Debug, Clone, Copy)]
struct Mix {
    owner: u64,
    reader: u64,
    stop: u64,
    /// How long a stop lasts, in milliseconds. A lease of ten seconds runs out in it or does not.
    stop_ms: (u64, u64),
}

impl Mix {
    const STORE_ONLY: Self = Self {
        owner: 0,
        reader: 0,
        stop: 0,
        stop_ms: (0, 0),
    };
}

/// So many kills, with stops between them. A seeded fault gets more of the blows that show it.
#[must_use]
pub(crate) fn schedule(
    store: StoreKind,
    kills: u32,
    seed: u64,
    mutation: Option<&str>,
    store_only: bool,
) -> Vec<Step> {
    let mix = if store_only {
        Mix::STORE_ONLY
    } else {
        mix(store, mutation)
    };
    let mut random = Random::of(seed, 0x5C4E);
    let mut steps = Vec::new();
    let mut left = kills;
    while left > 0 {
        let blow = draw(store, mix, &mut random);
        left -= u32::from(blow != Blow::Stop);
        steps.push(Step {
            after: Duration::from_millis(random.between(EARLIEST, LATEST)),
            blow,
            lasts: Duration::from_millis(random.between(mix.stop_ms.0, mix.stop_ms.1)),
        });
    }
    steps
}

fn mix(store: StoreKind, mutation: Option<&str>) -> Mix {
    let (owner, reader, stop, stop_ms) = match (store, mutation) {
        // one replica: a stop stops everything
        (StoreKind::Embedded, _) => (90, 0, 10, (3_000, 4_000)),
        // half of the blows are failovers
        (_, Some("skip-chain")) => (35, 10, 5, (3_000, 12_500)),
        // who wakes up has lost what it owned
        (_, Some("drop-fence")) => (30, 20, 50, (11_500, 14_000)),
        (StoreKind::Redis | StoreKind::Sentinel | StoreKind::Cluster, _) => {
            (55, 20, 12, (3_000, 12_500))
        }
    };
    Mix {
        owner,
        reader,
        stop,
        stop_ms,
    }
}

fn draw(store: StoreKind, mix: Mix, random: &mut Random) -> Blow {
    let number = random.between(0, 100);
    let Mix {
        owner,
        reader,
        stop,
        ..
    } = mix;
    match store {
        _ if number < owner => Blow::KillOwner,
        _ if number < owner + reader => Blow::KillReader,
        _ if number < owner + reader + stop => Blow::Stop,
        StoreKind::Sentinel => Blow::Failover,
        StoreKind::Cluster if random.percent(50) => Blow::MoveSlots,
        StoreKind::Embedded | StoreKind::Redis | StoreKind::Cluster => Blow::KillStore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_schedule() {
        let steps = schedule(StoreKind::Redis, 200, 5, None, false);
        assert_eq!(steps, schedule(StoreKind::Redis, 200, 5, None, false));
        assert_ne!(steps, schedule(StoreKind::Redis, 200, 6, None, false));
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
        let moves = schedule(StoreKind::Cluster, 50, 5, None, false);
        assert!(moves.iter().any(|step| step.blow == Blow::MoveSlots));
        let only = schedule(StoreKind::Sentinel, 50, 5, None, true);
        assert_eq!(only.len(), 50);
        assert!(only.iter().all(|step| step.blow == Blow::Failover));
        let tails = schedule(StoreKind::Sentinel, 50, 5, None, false);
        assert!(tails.iter().any(|step| step.blow == Blow::Failover));
        let stops = schedule(StoreKind::Redis, 10, 5, Some("drop-fence"), false);
        let long = |step: &Step| step.blow == Blow::Stop && step.lasts > Duration::from_secs(11);
        assert!(stops.iter().any(long));
        let alone = schedule(StoreKind::Embedded, 50, 5, None, false);
        let fits = |step: &Step| matches!(step.blow, Blow::KillOwner | Blow::Stop);
        assert!(alone.iter().all(fits));
    }
}
