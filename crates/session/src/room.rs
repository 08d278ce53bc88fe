//! What this room holds: its handles on the store, the log and the rooms below, and everything
//! that is alive in this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::watch;
use vestibule_exchange::{Backchannel, BoxFuture, Call, Events, Exchange, SessionKey};
use vestibule_metrics::Metrics;
use vestibule_store::{Caps, Fleet, Sealer, Sessions};
use vestibule_streamlog::StreamLog;
use vestibule_terms::{Clock, FastHash, ServerId, ServerPlan, TenantId};

use crate::ending::{Admission, Endings};
use crate::identity::Identity;
use crate::legacy::{Live, Unmet};
use crate::modern::Listens;
use crate::observe::Observer;
use crate::others::Others;
use crate::toll::Toll;

/// How many sessions a tenant and each of its callers may have.
pub type SessionCaps = Arc<dyn Fn(&TenantId) -> Caps + Send + Sync>;

/// The server of that name as it is configured now, if it is.
pub type Plans = Arc<dyn Fn(&TenantId, &ServerId) -> Option<Arc<ServerPlan>> + Send + Sync>;

/// What the session room is given.
#[derive(Clone)]
pub struct SessionRooms {
    /// Where sessions are kept.
    pub sessions: Arc<dyn Sessions>,
    /// Where the events of resumable streams are kept.
    pub log: Arc<dyn StreamLog>,
    /// Mints and checks session ids.
    pub sealer: Sealer,
    /// The other processes that serve the same sessions.
    pub fleet: Arc<dyn Fleet>,
    /// Where this room counts.
    pub metrics: Metrics,
    /// Who the gateway says it is.
    pub identity: Identity,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// How many sessions there may be.
    pub caps: SessionCaps,
    /// What is configured, for what begins with no request.
    pub plans: Plans,
    /// Whether a caller is still let in.
    pub admission: Admission,
    /// What further messages of a batch cost.
    pub toll: Toll,
}

impl fmt::Debug for SessionRooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRooms").finish_non_exhaustive()
    }
}

/// The stage below, for calls that begin with no request.
pub(crate) type Below = Arc<dyn Fn(Call) -> BoxFuture<Events> + Send + Sync>;

/// Everything that does not depend on what the stage below is.
pub(crate) struct Shared {
    pub(crate) rooms: SessionRooms,
    pub(crate) below: Below,
    pub(crate) back: Arc<dyn Backchannel>,
    pub(crate) lives: DashMap<SessionKey, Arc<Live>, FastHash>,
    pub(crate) listens: Listens,
    pub(crate) observer: Observer,
    closed: AtomicU64,
    /// Becomes true when the process stops: streams end in the way of their era.
    pub(crate) draining: watch::Sender<bool>,
    pub(crate) endings: Endings,
    pub(crate) unmet: Unmet,
    pub(crate) others: Others,
}

impl Shared {
    pub(crate) fn new(rooms: SessionRooms, below: Below, back: Arc<dyn Backchannel>) -> Self {
        Self {
            below,
            observer: Observer::new(rooms.metrics.clone(), rooms.fleet.is_alone()),
            endings: Endings::new(Arc::clone(&rooms.admission)),
            rooms,
            back,
            lives: DashMap::default(),
            listens: Listens::default(),
            closed: AtomicU64::new(0),
            draining: watch::Sender::new(false),
            unmet: Unmet::default(),
            others: Others::default(),
        }
    }

    /// What a connection that is closed on purpose tells its client: 2 s and up to 3 s more, spread
    /// so that not all of them come back at once (EL-29).
    pub(crate) fn spread_retry(&self) -> Duration {
        let turn = self.closed.fetch_add(1, Ordering::Relaxed);
        let start = self.rooms.clock.unix_millis();
        let jitter = start.wrapping_add(turn.wrapping_mul(2_654_435_761)) % 3001;
        Duration::from_millis(2000 + jitter)
    }
}

/// The room with the stage below it.
pub(crate) struct Room<S> {
    inner: S,
    pub(crate) shared: Arc<Shared>,
}

impl<S: Exchange> Room<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }

    /// Hands a call to the stage below, which is always ready.
    pub(crate) fn call(&self, call: Call) -> impl Future<Output = Events> + Send + 'static {
        handed_down(&self.inner, call)
    }
}

/// The same for calls that begin with no request.
pub(crate) fn below<S: Exchange>(inner: S) -> Below {
    Arc::new(move |call| Box::pin(handed_down(&inner, call)))
}

fn handed_down<S: Exchange>(inner: &S, call: Call) -> impl Future<Output = Events> + Send + use<S> {
    let future = inner.clone().call(call);
    async move {
        match future.await {
            Ok(events) => events,
            Err(never) => match never {},
        }
    }
}
