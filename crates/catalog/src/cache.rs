//! Lists of upstreams, kept: fresh as long as the upstream said, refreshed once for everybody who
//! waits, served stale for ten minutes when a refresh fails (CCH-08, CCH-11, case 25).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::time::Instant;
use tracing::warn;
use vestibule_exchange::view::CacheScope;
use vestibule_exchange::{BoxFuture, Capabilities, RpcError};
use vestibule_terms::{TenantId, UpstreamId};

use crate::definition::Definition;
use crate::fetch::{Enumeration, Fetched};
use crate::kind::Kind;
use crate::variants::Variants;

/// How long a list outlives its freshness when it cannot be fetched again.
pub const STALE_IF_ERROR: Duration = Duration::from_secs(10 * 60);
/// How long anybody waits for an upstream that has answered before or never been asked.
const WAIT: Duration = Duration::from_secs(10);
/// How long anybody waits for one that failed last time (case 23).
const WAIT_AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How long a failure is remembered before the upstream is asked again.
const FAILURE: Duration = Duration::from_secs(5);
/// How long a list is good enough to resolve names by, whatever its lifetime; after that it is
/// refreshed behind the scenes.
const RESOLVE: Duration = Duration::from_secs(30);

static GENERATION: AtomicU64 = AtomicU64::new(1);

/// A whole list of one upstream.
#[derive(Debug)]
pub struct Listing {
    /// The good items, in the upstream's order.
    pub items: Vec<Definition>,
    /// Unlike that of every other listing.
    pub generation: u64,
    /// Who may keep it.
    pub scope: CacheScope,
    fetched: Instant,
    ttl: Duration,
    index: HashMap<Arc<str>, usize>,
}

impl Listing {
    fn new(fetched: Fetched) -> Self {
        let keys = fetched.items.iter().map(|item| Arc::clone(&item.key));
        Self {
            index: keys.zip(0..).collect(),
            items: fetched.items,
            generation: GENERATION.fetch_add(1, Ordering::Relaxed),
            scope: fetched.scope,
            fetched: Instant::now(),
            ttl: fetched.ttl,
        }
    }

    /// The item of that name, URI or template.
    pub fn get(&self, key: &str) -> Option<&Definition> {
        self.items.get(*self.index.get(key)?)
    }

    /// What is left of its lifetime.
    pub fn remaining(&self) -> Duration {
        (self.fetched + self.ttl).saturating_duration_since(Instant::now())
    }

    fn usable(&self) -> bool {
        self.fetched.elapsed() < self.ttl + STALE_IF_ERROR
    }
}

/// How new a list must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// As new as its lifetime says: for showing it.
    Listed,
    /// The last good one: for resolving names by it.
    Resolving,
    /// Fetched from now on (XMH-06).
    Anew,
}

/// What there is of a list.
#[derive(Debug, Clone)]
pub struct Found {
    /// The list.
    pub listing: Arc<Listing>,
    /// False when it is the last good one, after a failure or while waiting for a better one.
    pub fresh: bool,
}

type Refresh = Shared<BoxFuture<Result<Arc<Listing>, RpcError>>>;

#[derive(Default)]
struct State {
    listing: Option<Arc<Listing>>,
    /// Counts what made lists stale before their time.
    changes: u64,
    /// The count at which `listing` was asked for.
    asked: u64,
    failure: Option<(Instant, RpcError)>,
    /// What is running, and the count at which it began.
    refresh: Option<(u64, Refresh)>,
}

#[derive(Default)]
struct Slot(Mutex<State>);

/// One list, by what its upstream was told that clients can do.
type Slots = Variants<Arc<Capabilities>, Arc<Slot>>;

/// The lists of all upstreams, in a few variants each.
#[derive(Default)]
pub(crate) struct Cache {
    lists: DashMap<(TenantId, UpstreamId, Kind), Slots>,
}

impl Cache {
    /// Gets the list that `enumeration` describes.
    ///
    /// # Errors
    /// When there is none, not even an old one.
    pub(crate) async fn get(
        &self,
        enumeration: Enumeration,
        freshness: Freshness,
    ) -> Result<Found, RpcError> {
        let slot = self.slot(&enumeration);
        if freshness == Freshness::Anew {
            slot.state().changes += 1;
        }
        let upstream = enumeration.upstream.clone();
        let (refresh, wait) = match slot.look(enumeration, freshness) {
            Look::Done(outcome) => return outcome,
            Look::Wait(refresh, wait) => (refresh, wait),
        };
        match tokio::time::timeout(wait, refresh).await {
            Ok(Ok(listing)) => Ok(Found {
                listing,
                fresh: true,
            }),
            Ok(Err(error)) => slot.state().last_good(error),
            Err(_) => {
                let error = RpcError::timeout(&upstream);
                let mut state = slot.state();
                state.failure = Some((Instant::now(), error.clone()));
                state.last_good(error)
            }
        }
    }

    /// The list changed: what is kept is not fresh any more (CCH-08).
    pub(crate) fn invalidate(&self, tenant: &TenantId, upstream: &UpstreamId, kind: Kind) {
        let key = (tenant.clone(), upstream.clone(), kind);
        if let Some(variants) = self.lists.get(&key) {
            variants.values().for_each(|slot| slot.state().changes += 1);
        }
    }

    /// Forgets everything of upstreams that `keep` does not know.
    pub(crate) fn retain(&self, keep: impl Fn(&TenantId, &UpstreamId) -> bool) {
        self.lists
            .retain(|(tenant, upstream, _), _| keep(tenant, upstream));
    }

    fn slot(&self, of: &Enumeration) -> Arc<Slot> {
        let key = (of.tenant.clone(), of.upstream.clone(), of.kind);
        let mut variants = self.lists.entry(key).or_default();
        Arc::clone(variants.get_or_insert_with(&of.class, || Arc::new(Slot::default())))
    }
}

/// What looking came to.
enum Look {
    Done(Result<Found, RpcError>),
    Wait(Refresh, Duration),
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers at once where that is possible, and sees to a refresh where one is due.
    fn look(self: &Arc<Self>, enumeration: Enumeration, freshness: Freshness) -> Look {
        let mut state = self.state();
        if let Some(found) = state.at_once(freshness) {
            let due = found.listing.fetched.elapsed() >= found.listing.ttl.max(RESOLVE)
                || state.asked != state.changes;
            let idle = state.refresh.is_none() && state.may_ask();
            if freshness == Freshness::Resolving && due && idle {
                drop(self.refresh(&mut state, enumeration)); // it runs without being waited for
            }
            return Look::Done(Ok(found));
        }
        if freshness != Freshness::Anew
            && !state.may_ask()
            && let Some((_, error)) = &state.failure
        {
            let error = error.clone();
            return Look::Done(state.last_good(error));
        }
        let failed = state.failure.is_some();
        let wait = if failed { WAIT_AFTER_FAILURE } else { WAIT };
        Look::Wait(self.refresh(&mut state, enumeration), wait)
    }

    /// Joins the refresh that is running or starts one; it runs to its end whoever waits. One that
    /// began before the last change is not joined: it may bring the list from before it.
    fn refresh(self: &Arc<Self>, state: &mut State, enumeration: Enumeration) -> Refresh {
        let began = state.changes;
        if let Some((_, running)) = state.refresh.as_ref().filter(|(since, _)| *since == began) {
            return running.clone();
        }
        let slot = Arc::clone(self);
        let upstream = enumeration.upstream.clone();
        let running = tokio::spawn(async move {
            let (tenant, upstream) = (enumeration.tenant.clone(), enumeration.upstream.clone());
            let list = enumeration.kind.member();
            let outcome = enumeration.run().await;
            if let Err(error) = &outcome {
                warn!(
                    tenant.id = %tenant, upstream.id = %upstream, list, error = %error,
                    "could not fetch a list of upstream {upstream}"
                );
            }
            slot.state().settle(began, outcome)
        });
        let slot = Arc::clone(self);
        let refresh = async move {
            match running.await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let lost = RpcError::unavailable(&upstream, "refresh");
                    slot.state().settle(began, Err(lost))
                }
            }
        };
        let refresh = (Box::pin(refresh) as BoxFuture<_>).shared();
        state.refresh = Some((began, refresh.clone()));
        refresh
    }
}

impl State {
    fn at_once(&self, freshness: Freshness) -> Option<Found> {
        let listing = self.listing.as_ref()?;
        let fresh = self.asked == self.changes && !listing.remaining().is_zero();
        let enough = match freshness {
            Freshness::Listed => fresh,
            Freshness::Resolving => listing.usable(),
            Freshness::Anew => false,
        };
        enough.then(|| Found {
            listing: Arc::clone(listing),
            fresh,
        })
    }

    /// Whether the upstream may be asked again: not right after a failure.
    fn may_ask(&self) -> bool {
        self.failure
            .as_ref()
            .is_none_or(|(at, _)| at.elapsed() >= FAILURE)
    }

    fn last_good(&self, error: RpcError) -> Result<Found, RpcError> {
        match &self.listing {
            Some(listing) if listing.usable() => Ok(Found {
                listing: Arc::clone(listing),
                fresh: false,
            }),
            Some(_) | None => Err(error),
        }
    }

    /// Takes over what a refresh brought, unless a later one has been started since.
    fn settle(
        &mut self,
        began: u64,
        outcome: Result<Fetched, RpcError>,
    ) -> Result<Arc<Listing>, RpcError> {
        let latest = self
            .refresh
            .as_ref()
            .is_some_and(|(since, _)| *since == began);
        if latest {
            self.refresh = None;
        }
        match outcome {
            Ok(fetched) => {
                let listing = Arc::new(Listing::new(fetched));
                if latest {
                    self.listing = Some(Arc::clone(&listing));
                    self.asked = began;
                    self.failure = None;
                }
                Ok(listing)
            }
            Err(error) => {
                if latest {
                    self.failure = Some((Instant::now(), error.clone()));
                }
                Err(error)
            }
        }
    }
}
