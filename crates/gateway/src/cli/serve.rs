//! `vestibule serve`: the gateway with a configuration file, until it is told to stop.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use tracing::info;
use vestibule_listener::Workers;
use vestibule_registry::Checked;

use crate::app::{Addresses, App};
use crate::shutdown::{Stop, StopSignals, Timing};
use crate::{logs, reload};

/// Serves until a signal; true when the drain ended by itself.
pub(super) fn run(path: &Path) -> anyhow::Result<bool> {
    let applied = std::fs::read(path).ok();
    let checked = match vestibule_registry::load(path) {
        Ok(checked) => checked,
        Err(mistakes) => {
            for mistake in &mistakes {
                super::say_on_stderr(&mistake.to_string());
            }
            bail!(
                "{}: {} mistakes in the configuration",
                path.display(),
                mistakes.len()
            );
        }
    };
    let _logs = logs::start(checked.telemetry.log, "info");
    super::runtime()?.block_on(serve(path, applied, &checked))
}

async fn serve(path: &Path, applied: Option<Vec<u8>>, checked: &Checked) -> anyhow::Result<bool> {
    let mut signals = StopSignals::listen()?;
    let watched = reload::Watched::new(path, applied)?;
    vestibule_listener::raise_open_files();
    let stop = Stop::default();
    let app = Arc::new(App::build(checked)?);
    let running = app.start(Addresses::of(checked), Workers::start_all()?, &stop)?;
    for warning in &checked.warnings {
        tracing::warn!("{warning}");
    }
    let stopping = stop.announced.clone();
    tokio::spawn(reload::run(Arc::clone(&app), watched, stopping));
    signals.next().await;
    let timing = Timing {
        delay: checked.shutdown.delay,
        grace: checked.shutdown.grace,
    };
    info!(
        "stopping: readiness fails now, draining in {:?}",
        timing.delay
    );
    tokio::spawn({
        let stop = stop.clone();
        async move {
            // the cut comes after the grace, or with a second signal
            tokio::select! {
                () = stop.run(timing) => {}
                () = signals.next() => stop.now(),
            }
        }
    });
    let clean = running.finished().await;
    info!("stopped");
    Ok(clean)
}
