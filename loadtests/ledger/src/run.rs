//! A storm: blow after blow while clients go on, then the verdict.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::arguments::{Arguments, StoreKind};
use crate::history::{Blow, Fault, Seat, now};
use crate::house::{Gateway, Places};
use crate::random::Random;
use crate::schedule::{Step, schedule};
use crate::stage::{Stage, note};
use crate::verdict::{Terms, Verdict, judge};

/// A kill below this many open calls proves little.
const OPEN_CALLS: usize = 5;
/// Between two looks for a replica that stands.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs a storm.
///
/// # Errors
/// The harness itself failed: that says nothing about the gateway.
pub(crate) async fn run(arguments: &Arguments, places: &Places) -> anyhow::Result<Verdict> {
    let stage = Stage::set(arguments, places).await?;
    let steps = schedule(
        arguments.store,
        arguments.kills(),
        arguments.seed,
        arguments.mutation.as_deref(),
        arguments.store_only,
    );
    let mut random = Random::of(arguments.seed, 0xB10);
    let mut recoveries = JoinSet::new();
    for step in steps {
        sleep(step.after).await;
        if arguments.store_only {
            strike_store(&stage, step, &mut random, &mut recoveries).await;
        } else {
            strike(&stage, step, &mut random, &mut recoveries).await;
        }
        while let Some(recovered) = recoveries.try_join_next() {
            recovered.context("a recovery panicked")??;
        }
    }
    while let Some(recovered) = recoveries.join_next().await {
        recovered.context("a recovery panicked")??;
    }
    let history = stage.end().await?;
    // for whoever looks for the cause; a good run leaves nothing
    std::fs::write(places.folder.join("history.txt"), format!("{history:#?}"))?;
    Ok(judge(
        &history,
        Terms {
            rolling: false,
            // an owner that lives repairs what the store has lost
            loses_tails: arguments.store == StoreKind::Sentinel && !arguments.store_only,
            open_calls: OPEN_CALLS,
            open_share: arguments.least_share(),
            events: arguments.least_events(),
        },
    ))
}

type Recoveries = JoinSet<anyhow::Result<()>>;

/// One blow; the recovery from it goes on beside the next.
async fn strike(stage: &Stage, step: Step, random: &mut Random, recoveries: &mut Recoveries) {
    let random = Random::new(random.next());
    let blow = match step.blow {
        Blow::KillStore | Blow::Failover | Blow::MoveSlots => {
            if hit_store(stage, step.blow, random, recoveries).await {
                return;
            }
            // it still recovers from the blow before
            Blow::KillOwner
        }
        blow @ (Blow::KillOwner | Blow::KillReader | Blow::Stop | Blow::Roll) => blow,
    };
    hit(stage, Step { blow, ..step }, recoveries).await;
}

/// A blow at the store, as soon as it has recovered from the one before.
async fn strike_store(stage: &Stage, step: Step, random: &mut Random, recoveries: &mut Recoveries) {
    let seed = random.next();
    while !hit_store(stage, step.blow, Random::new(seed), recoveries).await {
        sleep(PAUSE).await;
    }
}

/// Hits the store; false when it cannot be hit now.
async fn hit_store(
    stage: &Stage,
    blow: Blow,
    mut random: Random,
    recoveries: &mut Recoveries,
) -> bool {
    let Ok(mut store) = Arc::clone(&stage.store).try_lock_owned() else {
        return false;
    };
    if blow == Blow::Failover && !store.can_fail_over().await {
        return false;
    }
    let faults = Arc::clone(&stage.faults);
    recoveries.spawn(async move {
        let at = now();
        match blow {
            Blow::Failover => store.fail_over(&mut random).await?,
            Blow::MoveSlots => store.move_slots(&mut random).await?,
            Blow::KillOwner | Blow::KillReader | Blow::Stop | Blow::KillStore | Blow::Roll => {
                store.kill(&mut random).await?;
            }
        }
        note(&faults, fault(blow, at, None, 0));
        Ok(())
    });
    true
}

/// Hits the replica with the most open calls of those that stand; waits for one that does.
async fn hit(stage: &Stage, step: Step, recoveries: &mut Recoveries) {
    let gateway = loop {
        let standing = stage.standing(step.blow != Blow::KillReader);
        let most = standing.iter().max_by_key(|(_, open)| *open);
        let gateway = most.and_then(|(number, _)| stage.gateways.get(*number));
        match gateway.map(|gateway| Arc::clone(gateway).try_lock_owned()) {
            Some(Ok(gateway)) => break gateway,
            Some(Err(_)) | None => sleep(PAUSE).await,
        }
    };
    let seat = gateway.seat();
    let open = stage.world.open_at(seat);
    let faults = Arc::clone(&stage.faults);
    recoveries.spawn(async move {
        let at = now();
        bring_back(gateway, step).await?;
        note(&faults, fault(step.blow, at, Some(seat), open));
        Ok(())
    });
}

async fn bring_back(mut gateway: OwnedMutexGuard<Gateway>, step: Step) -> anyhow::Result<()> {
    if step.blow == Blow::Stop {
        gateway.pause(true);
        sleep(step.lasts).await;
        gateway.pause(false);
        return Ok(());
    }
    gateway.kill().await;
    gateway.start().await
}

fn fault(blow: Blow, at: u64, seat: Option<Seat>, open_calls: usize) -> Fault {
    Fault {
        at,
        until: now(),
        blow,
        seat,
        open_calls,
    }
}
