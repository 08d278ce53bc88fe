//! Builds every room once, in the order of their rows, and hands each the handles it needs.
//!
//! Nobody receives the app. What a reload may change lives in snapshots behind `ArcSwap`; what it
//! may not (listeners, store, sealing keys, admin address) is compared, and a difference is said.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use vestibule_admin::health::{self, Health, Readiness, Watchdog};
use vestibule_auth::SharedKeys;
use vestibule_catalog::Catalog;
use vestibule_egress::{Client, Options};
use vestibule_exchange::Connector;
use vestibule_interact::Interact;
use vestibule_listener::{Limits, Listener, Shutdown, TlsFiles, Workers};
use vestibule_metrics::Metrics;
use vestibule_middleware::Admitted;
use vestibule_middleware::address::AddressGuard;
use vestibule_middleware::plans::SharedPlans;
use vestibule_middleware::quota::LocalQuotas;
use vestibule_registry::{Checked, checked};
use vestibule_router::Router;
use vestibule_session::{Identity, Plans, SessionRooms, SessionService, Supervisor};
use vestibule_store::Caps;
use vestibule_terms::Clock;
use vestibule_terms::clock::SystemClock;
use vestibule_upstream::{GatewayIdentity, Targets, Upstreams};

use crate::admission::Admissions;
use crate::config;
use crate::pipeline::{self, Before, Front};
use crate::shutdown::Stop;
use crate::state::{Estate, Keeping, State};
use crate::toll;

/// The name of this implementation, towards clients and upstreams.
const NAME: &str = "vestibule";

/// How often tables of client addresses are swept.
const SWEEP: Duration = Duration::from_secs(60);

/// A gateway, built and not yet listening.
pub struct App {
    metrics: Metrics,
    plans: SharedPlans,
    keys: SharedKeys,
    targets: Arc<ArcSwap<Targets>>,
    upstreams: Upstreams,
    client: Client,
    catalog: Arc<Catalog>,
    guard: AddressGuard,
    supervisor: Supervisor,
    estate: Estate,
    keeping: Keeping,
    admissions: Admissions,
    readiness: Readiness,
    front: Front,
    fixed: Fixed,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

/// What a reload cannot change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fixed {
    listen: SocketAddr,
    hosts: Vec<String>,
    max_body: usize,
    admin: SocketAddr,
    telemetry: Option<SocketAddr>,
    store: checked::Store,
    sealing: Vec<String>,
    proxies: checked::Proxies,
    limits: checked::Limits,
}

impl Fixed {
    fn of(checked: &Checked) -> Self {
        Self {
            listen: checked.listen.address,
            hosts: checked.listen.hosts.clone(),
            max_body: checked.listen.max_body,
            admin: checked.admin.address,
            telemetry: checked.telemetry.address,
            store: checked.store.clone(),
            sealing: checked
                .sealing
                .keys
                .iter()
                .map(|key| key.id.clone())
                .collect(),
            proxies: checked.listen.proxies.clone(),
            limits: checked.limits.clone(),
        }
    }

    /// The keys whose change needs a restart.
    fn differences(&self, new: &Self) -> Vec<&'static str> {
        [
            (self.listen != new.listen, "listen.address"),
            (self.hosts != new.hosts, "listen.hosts"),
            (self.max_body != new.max_body, "listen.max_body"),
            (self.proxies != new.proxies, "listen.proxies"),
            (self.limits != new.limits, "limits.address"),
            (self.admin != new.admin, "admin.address"),
            (self.telemetry != new.telemetry, "telemetry.address"),
            (self.store != new.store, "store"),
            (self.sealing != new.sealing, "sealing.keys"),
        ]
        .into_iter()
        .filter_map(|(changed, key)| changed.then_some(key))
        .collect()
    }
}

/// The way out: whom upstreams may be, and the one client that reaches them.
struct Egress {
    targets: Arc<ArcSwap<Targets>>,
    client: Client,
    upstreams: Upstreams,
}

impl Egress {
    fn build(checked: &Checked, metrics: &Metrics) -> anyhow::Result<Self> {
        let targets = Arc::new(ArcSwap::from_pointee(config::targets(checked)?));
        let client = Client::new(
            Arc::new(config::egress_policy(checked)?),
            &Options::default(),
        );
        let identity = GatewayIdentity {
            name: NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let upstreams = Upstreams::new(
            Arc::clone(&targets),
            client.clone(),
            metrics.clone(),
            &identity,
        );
        Ok(Self {
            targets,
            client,
            upstreams,
        })
    }
}

/// What the layers before the session work with.
fn before(
    checked: &Checked,
    metrics: &Metrics,
    plans: &SharedPlans,
    keys: &SharedKeys,
    quotas: LocalQuotas,
    clock: Arc<dyn Clock>,
) -> Before {
    let guard = AddressGuard::new(
        config::address_limit(checked),
        config::proxies(checked),
        metrics.clone(),
    );
    Before {
        metrics: metrics.clone(),
        plans: Arc::clone(plans),
        keys: Arc::clone(keys),
        hosts: checked.listen.hosts.clone().into(),
        guard,
        quotas,
        clock,
        max_body: checked.listen.max_body,
    }
}

/// The server of that name, as the newest snapshot has it.
fn configured(plans: &SharedPlans) -> Plans {
    let plans = Arc::clone(plans);
    Arc::new(move |tenant, server| {
        let plans = plans.load();
        let found = plans.find(tenant.as_str(), server.as_str())?;
        Some(Arc::clone(&found.plan))
    })
}

// === impl App ===

impl App {
    /// Builds the rooms from the bottom row up.
    pub fn build(checked: &Checked) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), commit());
        let readiness = Readiness::default();
        let state = State::open(checked, &clock, &metrics, &readiness)?;
        state.keeping.adopt(checked);
        let sealer = state.sealer;
        let Egress {
            targets,
            client,
            upstreams,
        } = Egress::build(checked, &metrics)?;
        let connector: Arc<dyn Connector> = Arc::new(upstreams.clone());
        let catalog = Catalog::new(Arc::clone(&connector), sealer.clone(), Arc::clone(&clock));
        let catalog = Arc::new(catalog);
        let router = Router::new(
            Arc::clone(&connector),
            Arc::clone(&catalog),
            metrics.clone(),
        );
        let interact = Interact::new(router, connector, sealer.clone(), Arc::clone(&clock));
        let back = interact.backchannel();
        let plans = config::plans(checked).shared();
        let keys = config::keys(checked).shared();
        let admissions = Admissions::new(&plans, &keys, &clock);
        let quotas = LocalQuotas::default();
        let rooms = SessionRooms {
            sessions: state.sessions,
            log: state.log,
            fleet: Arc::clone(&state.estate.fleet),
            sealer,
            metrics: metrics.clone(),
            identity: Identity::new(NAME, env!("CARGO_PKG_VERSION"), Some("Vestibule")),
            clock: Arc::clone(&clock),
            caps: Arc::new(|_| Caps::default()),
            plans: configured(&plans),
            admission: admissions.question(),
            toll: toll::of(&quotas, &plans, &metrics),
        };
        let session = SessionService::new(interact, back, rooms);
        let supervisor = session.supervisor();

        let before = before(checked, &metrics, &plans, &keys, quotas, clock);
        let front = pipeline::build(&before, Admitted::of_boxed(session));
        readiness.configuration_applied();
        Ok(Self {
            metrics,
            plans,
            keys,
            targets,
            upstreams,
            client,
            catalog,
            guard: before.guard,
            estate: state.estate,
            keeping: state.keeping,
            supervisor,
            admissions,
            readiness,
            front,
            fixed: Fixed::of(checked),
        })
    }

    /// Where the gateway counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The pipeline itself, without a socket.
    pub fn front(&self) -> Front {
        self.front.clone()
    }

    /// Puts a new configuration in force: builds every snapshot, then swaps them. Returns what
    /// differs and stays as it was until a restart, a sentence each.
    ///
    /// # Errors
    /// A snapshot that cannot be built; nothing has changed then.
    pub fn apply(&self, checked: &Checked) -> anyhow::Result<Vec<String>> {
        let targets = config::targets(checked)?;
        let policy = config::egress_policy(checked)?;
        let (plans, keys) = (config::plans(checked), config::keys(checked));
        self.client.adopt(policy);
        self.targets.store(Arc::new(targets));
        self.upstreams.refresh();
        let known = self.targets.load();
        self.catalog
            .retain(|tenant, upstream| known.get(tenant, upstream).is_some());
        self.keys.store(Arc::new(keys));
        self.plans.store(Arc::new(plans));
        self.keeping.adopt(checked);
        self.admissions.changed();
        let kept = self.fixed.differences(&Fixed::of(checked));
        Ok(kept
            .into_iter()
            .map(|key| format!("{key} differs; it stays as it was until a restart"))
            .collect())
    }

    /// Binds the listeners and serves until `stop`, the data plane by `workers`.
    ///
    /// # Errors
    /// An address that cannot be bound, named.
    pub fn start(
        self: &Arc<Self>,
        addresses: Addresses,
        workers: Workers,
        stop: &Stop,
    ) -> anyhow::Result<Running> {
        let data = addresses.data.bind()?.on(workers.clone());
        let admin = addresses.admin.bind()?;
        let telemetry = addresses
            .telemetry
            .map(|address| address.bind())
            .transpose()?;
        let bound = Bound {
            data: data.local_addr(),
            admin: admin.local_addr(),
            telemetry: telemetry.as_ref().map(Listener::local_addr),
        };
        info!(address = %bound.data, "serving MCP");
        info!(address = %bound.admin, "serving health and metrics");

        let health = Health {
            readiness: self.readiness.clone(),
            watchdog: Watchdog::over(workers.runtimes()),
            metrics: self.metrics.clone(),
        };
        let over = CancellationToken::new();
        let aside: Vec<JoinHandle<()>> = std::iter::once(admin)
            .chain(telemetry)
            .map(|listener| tokio::spawn(serve_health(listener, health.clone(), over.clone())))
            .collect();
        let serving = tokio::spawn(serve_data(Arc::clone(self), data, stop.clone()));
        Ok(Running {
            bound,
            serving,
            aside,
            over,
            app: Arc::clone(self),
            _workers: workers,
        })
    }

    async fn housekeeping(self: Arc<Self>) {
        let mut ticks = interval(SWEEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.guard.sweep();
        }
    }
}

async fn serve_health(listener: Listener, health: Health, over: CancellationToken) {
    let service = pipeline::of_listener(pipeline::health(health::router(health)));
    let shutdown = Shutdown {
        stop: over.clone(),
        force: over,
        grace: Duration::ZERO,
    };
    let _connections_of_probes = listener.serve(service, shutdown).await;
}

/// Serves the data plane and walks it through the steps of a stop. True when nothing was cut.
async fn serve_data(app: Arc<App>, listener: Listener, stop: Stop) -> bool {
    let keeping = tokio::spawn(app.supervisor.clone().keep());
    let hearing = tokio::spawn(app.supervisor.clone().hear());
    let sweeping = tokio::spawn(Arc::clone(&app).housekeeping());
    let admitting = tokio::spawn(app.admissions.clone().watch(app.supervisor.clone()));
    let steps = tokio::spawn({
        let (app, stop) = (Arc::clone(&app), stop.clone());
        async move {
            stop.announced.cancelled().await;
            app.readiness.start_draining();
            stop.draining.cancelled().await;
            app.supervisor.drain();
            stop.ending.cancelled().await;
            app.supervisor.end_calls(app.estate.outlived);
        }
    });
    let service = pipeline::of_listener(app.front());
    let shutdown = Shutdown {
        stop: stop.draining.clone(),
        force: stop.cut.clone(),
        grace: Duration::from_secs(60 * 60),
    };
    let drained = listener.serve(service, shutdown).await;
    // asked before anything else is waited for: a second signal leaves no time to whatever was open
    let clean = drained.cut == 0 && !stop.cut.is_cancelled();
    // clients that were sent away come back elsewhere for what goes on here
    tokio::select! {
        () = app.supervisor.settled() => {}
        () = stop.cut.cancelled() => {}
    }
    if drained.cut > 0 {
        warn!(
            connections = drained.cut,
            "cut what was still open when the grace ended"
        );
    }
    keeping.abort();
    hearing.abort();
    sweeping.abort();
    admitting.abort();
    steps.abort();
    app.upstreams.shutdown(app.estate.outlived).await;
    app.estate.leave().await;
    clean
}

/// One address to listen on.
#[derive(Debug, Clone)]
pub struct Address {
    /// Where; port 0 is any free one.
    pub address: SocketAddr,
    /// Certificate files.
    pub tls: Option<TlsFiles>,
    /// Connections.
    pub limits: Limits,
}

impl Address {
    /// Plain HTTP with the default limits.
    pub fn plain(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            limits: Limits::default(),
        }
    }

    fn bind(&self) -> anyhow::Result<Listener> {
        Ok(Listener::bind(
            self.address,
            self.tls.as_ref(),
            self.limits,
        )?)
    }
}

/// Where the gateway listens.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// The data plane.
    pub data: Address,
    /// Health and metrics, and what is administered.
    pub admin: Address,
    /// Health and metrics alone.
    pub telemetry: Option<Address>,
}

impl Addresses {
    /// As configured.
    pub fn of(checked: &Checked) -> Self {
        let tls = |files: &Option<checked::TlsFiles>| {
            files.as_ref().map(|files| TlsFiles {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
            })
        };
        let per_address = checked
            .limits
            .address
            .map(|limits| usize::try_from(limits.connections).unwrap_or(usize::MAX));
        // behind a proxy the peer is the proxy: its connections are everybody's
        let per_address = per_address.filter(|_| checked.listen.proxies.trusted.is_empty());
        Self {
            data: Address {
                address: checked.listen.address,
                tls: tls(&checked.listen.tls),
                limits: Limits {
                    per_address,
                    ..Limits::default()
                },
            },
            admin: Address {
                tls: tls(&checked.admin.tls),
                ..Address::plain(checked.admin.address)
            },
            telemetry: checked.telemetry.address.map(Address::plain),
        }
    }
}

/// Where a running gateway listens.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// The data plane.
    pub data: SocketAddr,
    /// Health and metrics.
    pub admin: SocketAddr,
    /// Health and metrics alone.
    pub telemetry: Option<SocketAddr>,
}

/// A gateway that serves.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub bound: Bound,
    serving: JoinHandle<bool>,
    aside: Vec<JoinHandle<()>>,
    over: CancellationToken,
    app: Arc<App>,
    /// What outlives its connection runs on to the end.
    _workers: Workers,
}

impl Running {
    /// Waits until the data plane has drained and upstream processes have ended, then closes the
    /// other listeners. True when nothing had to be cut.
    pub async fn finished(self) -> bool {
        let clean = self
            .serving
            .await
            .inspect_err(|failure| error!("serving failed: {failure}"));
        self.over.cancel();
        for listener in self.aside {
            if let Err(failure) = listener.await {
                error!("a listener failed: {failure}");
            }
        }
        drop(self.app);
        clean.unwrap_or(false)
    }
}

/// The commit this was built from, where the build knew it.
fn commit() -> &'static str {
    option_env!("VESTIBULE_COMMIT").unwrap_or("unknown")
}
