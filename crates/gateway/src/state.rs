//! Where sessions and streams are kept: in memory, or on this process's disk too.

use std::path::Path;
use std::sync::Arc;

use tracing::{error, info};
use vestibule_admin::health::Readiness;
use vestibule_metrics::Metrics;
use vestibule_registry::{Checked, checked};
use vestibule_store::{
    Alarm, Disk, DiskEvent, EmbeddedSessions, Keyring, Lifetimes, MemorySessions, Sealer, Sessions,
    Settings,
};
use vestibule_streamlog::{EmbeddedLog, Limits, MemoryLog, StreamLog};
use vestibule_terms::Clock;

use crate::config;

/// What outlives a request, and the keys that seal it.
pub(crate) struct State {
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) log: Arc<dyn StreamLog>,
    pub(crate) sealer: Sealer,
}

impl State {
    /// Opens the store, and says when it can be reached: at once in memory; on disk when that was
    /// written to, which may be later.
    pub(crate) fn open(
        checked: &Checked,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
        readiness: &Readiness,
    ) -> anyhow::Result<Self> {
        let configured = config::keyring(&checked.sealing)?;
        match &checked.store {
            checked::Store::Memory => {
                metrics.store_up(true);
                readiness.store_reached();
                Ok(Self::in_memory(configured, clock))
            }
            checked::Store::Embedded { path, fsync } => {
                let settings = Settings {
                    fsync: config::fsync(*fsync),
                    ..Settings::new(path)
                };
                let alarm = alarm(path, metrics, readiness);
                Self::on_disk(configured, settings, alarm, clock, metrics)
            }
        }
    }

    fn in_memory(configured: Option<Keyring>, clock: &Arc<dyn Clock>) -> Self {
        let sealer = Sealer::new(configured.unwrap_or_else(Keyring::generate));
        Self {
            sessions: Arc::new(MemorySessions::new(Lifetimes::default(), Arc::clone(clock))),
            log: Arc::new(MemoryLog::new(sealer.clone(), Limits::default())),
            sealer,
        }
    }

    fn on_disk(
        configured: Option<Keyring>,
        settings: Settings,
        alarm: Alarm,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> anyhow::Result<Self> {
        let (disk, mut contents) = Disk::open(settings, alarm)?;
        let keyring = configured.map_or_else(|| disk.keyring(), Ok)?;
        let sealer = Sealer::new(keyring);
        let lifetimes = Lifetimes::default();
        let sessions = EmbeddedSessions::open(&disk, &mut contents, lifetimes, Arc::clone(clock));
        let restored = sessions.all();
        for session in &restored {
            metrics.session_opened(session.key.tenant(), session.opening.revision);
        }
        let log = EmbeddedLog::open(
            &disk,
            &mut contents,
            restored.iter().map(|session| session.key.clone()),
            &sealer,
            Limits::default(),
            Arc::clone(clock),
        );
        disk.ready();
        info!(
            store.sessions = restored.len(),
            store.streams = log.stats().streams,
            store.life = disk.life(),
            "the store is open"
        );
        Ok(Self {
            sessions,
            log,
            sealer,
        })
    }
}

/// Tells the operator what becomes of the disk.
fn alarm(path: &Path, metrics: &Metrics, readiness: &Readiness) -> Alarm {
    let (metrics, readiness) = (metrics.clone(), readiness.clone());
    let path = path.display().to_string();
    Arc::new(move |event| match event {
        DiskEvent::Up => {
            metrics.store_up(true);
            readiness.store_reached();
            info!(store.path = %path, "the store keeps its state on disk");
        }
        DiskEvent::Down(why) => {
            metrics.store_up(false);
            error!(
                store.path = %path,
                error = %why,
                "the store cannot write to its disk: going on in memory, which a restart would lose"
            );
        }
        DiskEvent::SetAside { file, why, kept } => error!(
            store.file = %file.display(),
            store.kept_records = kept,
            error = %why,
            "the store's file was damaged and is set aside; what was good in it goes on"
        ),
        DiskEvent::Committed { took } => metrics.store_committed(took),
    })
}
