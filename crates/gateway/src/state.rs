//! Where sessions and streams are kept: in memory, on this process's disk too, or on a server that
//! several processes share.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use bytes::Bytes;
use tracing::{debug, error, info, warn};
use vestibule_admin::health::Readiness;
use vestibule_metrics::Metrics;
use vestibule_registry::{Checked, checked};
use vestibule_store::redis::{self, Redis, RedisAlarm, RedisEvent, RedisFleet, RedisSessions};
use vestibule_store::{
    Alarm, Alone, Disk, DiskEvent, EmbeddedSessions, Fleet, Keyring, Lifetimes, MemorySessions,
    ReplicaId, Sealer, Sessions, Settings, Stored,
};
use vestibule_streamlog::{EmbeddedLog, Limits, MemoryLog, Mode, Modes, RedisLog, StreamLog};
use vestibule_terms::{Clock, TenantId};

use crate::config;

/// How long the last events may take to get into a shared store.
const SHIPPING: Duration = Duration::from_secs(5);

/// What outlives a request, and the keys that seal it.
pub(crate) struct State {
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) log: Arc<dyn StreamLog>,
    pub(crate) estate: Estate,
    pub(crate) sealer: Sealer,
    pub(crate) keeping: Keeping,
}

/// What this process leaves to others when it ends.
pub(crate) struct Estate {
    pub(crate) fleet: Arc<dyn Fleet>,
    /// Whether another process goes on with it.
    pub(crate) outlived: bool,
    /// The log, where it is shared: what is on its way is waited for.
    log: Option<Arc<RedisLog>>,
}

impl Estate {
    /// Of a process that shares nothing with others at its side.
    fn alone(outlived: bool) -> Self {
        Self {
            fleet: Arc::new(Alone::new()),
            outlived,
            log: None,
        }
    }

    /// The last thing a process does with the store: others need not wait for its lease.
    pub(crate) async fn leave(&self) {
        if let Some(log) = &self.log
            && !log.shipped(SHIPPING).await
        {
            warn!("some events of streams did not get into the store");
        }
        if let Err(error) = self.fleet.leave().await {
            debug!(%error, "the other replicas have to notice by themselves that this one is gone");
        }
    }
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
            checked::Store::Redis { url, ca } => {
                let keyring =
                    configured.context("sealing.keys are needed with store.kind: redis")?;
                let mut settings = redis::Settings::new(url.expose().clone(), ReplicaId::random());
                settings.ca = authorities(ca.as_deref())?;
                Self::shared(Sealer::new(keyring), settings, clock, (metrics, readiness))
            }
        }
    }

    fn in_memory(configured: Option<Keyring>, clock: &Arc<dyn Clock>) -> Self {
        let sealer = Sealer::new(configured.unwrap_or_else(Keyring::generate));
        Self {
            sessions: Arc::new(MemorySessions::new(Lifetimes::default(), Arc::clone(clock))),
            log: Arc::new(MemoryLog::new(sealer.clone(), Limits::default())),
            estate: Estate::alone(false),
            keeping: Keeping::of(&sealer),
            sealer,
        }
    }

    fn shared(
        sealer: Sealer,
        settings: redis::Settings,
        clock: &Arc<dyn Clock>,
        (metrics, readiness): (&Metrics, &Readiness),
    ) -> anyhow::Result<Self> {
        let keeping = Keeping::of(&sealer);
        let redis = Redis::open(settings, redis_alarm(metrics, readiness))?;
        let fleet = RedisFleet::open(redis.clone(), Arc::clone(clock));
        let lifetimes = Lifetimes::default();
        let sessions = Arc::new(RedisSessions::new(
            redis.clone(),
            lifetimes,
            Arc::clone(clock),
        ));
        let log = RedisLog::open(
            redis,
            Arc::clone(&fleet) as Arc<dyn Fleet>,
            sealer.clone(),
            Limits::default(),
            keeping.modes(),
            Arc::clone(clock),
        );
        Ok(Self {
            sessions,
            log: Arc::clone(&log) as Arc<dyn StreamLog>,
            estate: Estate {
                fleet,
                outlived: true,
                log: Some(log),
            },
            keeping,
            sealer,
        })
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
        let restored = restored(&sessions, &sealer);
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
            estate: Estate::alone(true),
            keeping: Keeping::of(&sealer),
            sealer,
        })
    }
}

/// How the streams of each tenant are kept; it changes with the configuration.
#[derive(Clone)]
pub(crate) struct Keeping {
    modes: Arc<ArcSwap<HashMap<TenantId, Mode>>>,
    sealer: Sealer,
}

impl Keeping {
    /// Of no tenant yet.
    fn of(sealer: &Sealer) -> Self {
        Self {
            modes: Arc::default(),
            sealer: sealer.clone(),
        }
    }

    /// What sessions that begin are kept by from now on, and every payload that is stored.
    pub(crate) fn adopt(&self, checked: &Checked) {
        let of = |resume| match resume {
            checked::Resume::Required => Mode::Required,
            checked::Resume::BestEffort => Mode::BestEffort,
            checked::Resume::Off => Mode::Off,
        };
        let tenants = checked.tenants.iter();
        let modes = tenants.map(|tenant| (tenant.id.clone(), of(tenant.resume)));
        self.modes.store(Arc::new(modes.collect()));
        let sealed = checked
            .tenants
            .iter()
            .filter(|tenant| tenant.store_encryption);
        let sealed = sealed.map(|tenant| tenant.id.clone()).collect();
        self.sealer.seal_payloads_of(sealed);
    }

    /// What becomes of each tenant's streams while the store is away (EL-22).
    fn modes(&self) -> Modes {
        let modes = Arc::clone(&self.modes);
        Arc::new(move |tenant| modes.load().get(tenant).copied().unwrap_or_default())
    }
}

/// What is accepted in place of the machine's authorities.
fn authorities(file: Option<&Path>) -> anyhow::Result<Option<Bytes>> {
    let read = |path: &Path| {
        let text = std::fs::read(path);
        text.map(Bytes::from)
            .with_context(|| format!("store.ca: {} cannot be read", path.display()))
    };
    file.map(read).transpose()
}

/// Tells the operator whether the server answers.
fn redis_alarm(metrics: &Metrics, readiness: &Readiness) -> RedisAlarm {
    let (metrics, readiness) = (metrics.clone(), readiness.clone());
    Arc::new(move |event| match event {
        RedisEvent::Up => {
            metrics.store_up(true);
            readiness.store_reached();
            info!("the store answers");
        }
        RedisEvent::Down(why) => {
            metrics.store_up(false);
            error!(
                error = %why,
                "the store does not answer: stateless clients and running streams go on, new \
                 sessions are refused until it is back"
            );
        }
    })
}

/// The sessions that go on. One over HTTP+SSE was as long as its connection, which went with its
/// process (HSE-05).
fn restored(sessions: &EmbeddedSessions, sealer: &Sealer) -> Vec<Stored> {
    let over_sse = |stored: &Stored| {
        let (key, server) = (&stored.key, &stored.opening.server);
        sealer.check_sse_session_id(key.id().expose(), key.tenant(), server, key.principal())
    };
    let (over, on): (Vec<Stored>, Vec<Stored>) = sessions.all().into_iter().partition(over_sse);
    for stored in &over {
        drop(sessions.end(&stored.key)); // done when it returns; nothing else of it is here yet
    }
    on
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
