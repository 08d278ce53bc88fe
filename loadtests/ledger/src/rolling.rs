//! Restarts in good order: SIGTERM, and the next replica when the new process is ready. Under load,
//! and nothing may fail.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::sleep;

use crate::arguments::Arguments;
use crate::history::{Blow, Fault, now};
use crate::house::Places;
use crate::stage::Stage;
use crate::verdict::{Terms, Verdict, judge};

/// Longer than the grace of the configuration.
const STOPS_WITHIN: Duration = Duration::from_secs(45);
/// A new process gets its share of the calls before the next one goes.
const SETTLES: Duration = Duration::from_secs(2);

/// Runs the restarts.
///
/// # Errors
/// The harness itself failed, or a replica did not end well.
pub(crate) async fn run(
    arguments: &Arguments,
    rounds: u32,
    places: &Places,
) -> anyhow::Result<Verdict> {
    let stage = Stage::set(arguments, places).await?;
    ensure!(
        stage.gateways.len() > 1,
        "restarts in good order need several replicas, and so a shared store"
    );
    for _ in 0..rounds {
        for gateway in &stage.gateways {
            let mut gateway = gateway.lock().await;
            let (at, seat) = (now(), gateway.seat());
            let open_calls = stage.world.open_at(seat);
            let well = gateway.terminate(STOPS_WITHIN).await;
            ensure!(well, "replica {} did not end well", seat.replica);
            gateway.start().await?;
            stage.note(Fault {
                at,
                until: now(),
                blow: Blow::Roll,
                seat: Some(seat),
                open_calls,
            });
            drop(gateway);
            sleep(SETTLES).await;
        }
    }
    let history = stage.end().await?;
    Ok(judge(
        &history,
        Terms {
            rolling: true,
            loses_tails: false,
            open_calls: 0,
            open_share: 0,
            events: arguments.least_events(),
        },
    ))
}
