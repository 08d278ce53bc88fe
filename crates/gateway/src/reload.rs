//! Applies a changed configuration file to a running gateway: when the file changes, and on SIGHUP.
//!
//! The parent folder is watched, not the file: editors replace files, and Kubernetes swaps a
//! symbolic link beside them. A poll backs the watch where the file system tells nothing. A file
//! that does not check is refused whole: the old configuration stays, the mistakes are logged and
//! `vestibule_config_last_reload_success` says 0.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use vestibule_registry as file;

use crate::app::App;

/// Changes within this time are one change: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(100);

/// How often the file is compared where no change was reported.
const POLL: Duration = Duration::from_secs(30);

/// The file, as it was when it was applied last.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    applied: Option<Vec<u8>>,
    hangup: Signal,
}

impl Watched {
    /// Takes over SIGHUP; to be called before the gateway says that it serves, so that the signal
    /// never ends it. `applied` is what the file held before it was read.
    pub fn new(path: &Path, applied: Option<Vec<u8>>) -> std::io::Result<Self> {
        Ok(Self {
            path: path.to_path_buf(),
            applied,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// Watches the file and applies it to `app` until `stop`.
pub async fn run(app: Arc<App>, watched: Watched, stop: CancellationToken) {
    let Watched {
        path,
        mut applied,
        mut hangup,
    } = watched;
    let (changed, mut changes) = mpsc::channel(1);
    let _watcher = watch(&path, changed).inspect_err(|error| {
        warn!(
            "cannot watch {}: {error}; it is compared every {POLL:?}",
            path.display()
        );
    });
    let mut asked = false;
    loop {
        // the first turn finds what changed since the start
        let found = std::fs::read(&path).ok();
        if asked || found != applied {
            apply(&app, &path);
            applied = found;
        }
        asked = tokio::select! {
            () = stop.cancelled() => return,
            _ = hangup.recv() => true,
            _ = changes.recv() => {
                tokio::time::sleep(SETTLE).await;
                false
            }
            () = tokio::time::sleep(POLL) => false,
        };
    }
}

/// Reads `path` once and applies it if it checks.
pub fn apply(app: &App, path: &Path) -> bool {
    match file::load(path) {
        Ok(checked) => {
            for warning in &checked.warnings {
                warn!("{warning}");
            }
            let applied = app.apply(&checked);
            app.metrics().config_reloaded(applied.is_ok());
            match applied {
                Ok(kept) => {
                    kept.iter().for_each(|kept| warn!("{kept}"));
                    info!("configuration reloaded from {}", path.display());
                    true
                }
                Err(failure) => {
                    error!("configuration not reloaded: {failure:#}; the old one stays");
                    false
                }
            }
        }
        Err(mistakes) => {
            app.metrics().config_reloaded(false);
            mistakes.iter().for_each(|mistake| error!("{mistake}"));
            error!(
                "configuration not reloaded: {} mistakes; the old one stays",
                mistakes.len()
            );
            false
        }
    }
}

fn watch(path: &Path, changed: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // a full queue already holds a change
            let _already_told = changed.try_send(());
        }
    })?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    watcher.watch(
        folder.unwrap_or(Path::new(".")),
        RecursiveMode::NonRecursive,
    )?;
    Ok(watcher)
}
