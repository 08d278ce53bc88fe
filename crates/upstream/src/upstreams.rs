//! Every upstream of every tenant, behind the one seam.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use futures_util::future::join_all;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use vestibule_egress::Client;
use vestibule_exchange::{
    BoxFuture, Capabilities, Closing, Connector, Events, Inlet, Outbound, Profile, QuestionRef,
    RpcError, SessionKey,
};
use vestibule_frame::Draft;
use vestibule_metrics::Metrics;
use vestibule_terms::reject::code;
use vestibule_terms::{Era, FastHash, Method, TenantId, UpstreamId};

use crate::background::Background;
use crate::compose::GatewayIdentity;
use crate::fault::Fault;
use crate::ids::Ids;
use crate::legacy::desk::Desk;
use crate::legacy::peer::Tools;
use crate::link::{Common, Link, profile_error};
use crate::observe::States;
use crate::targets::{EraChoice, Targets};

/// How often unused sessions and removed targets are looked for.
const SWEEP: Duration = Duration::from_secs(15);
/// How long stopping may take: processes get five seconds twice.
const SHUTDOWN: Duration = Duration::from_secs(12);

/// The upstreams.
#[derive(Clone)]
pub struct Upstreams(Arc<Inner>);

struct Inner {
    targets: Arc<ArcSwap<Targets>>,
    common: Common,
    /// By the era of the clients: an upstream of both eras is two to us.
    links: DashMap<(TenantId, UpstreamId, Era), Arc<Link>, FastHash>,
    stop: CancellationToken,
}

// === impl Upstreams ===

impl Upstreams {
    /// Over `targets`, which may be swapped at any time. Must be called within the runtime.
    pub fn new(
        targets: Arc<ArcSwap<Targets>>,
        client: Client,
        metrics: Metrics,
        identity: &GatewayIdentity,
    ) -> Self {
        let tools = Tools {
            ids: Arc::new(Ids::new()),
            desk: Arc::new(Desk::default()),
            background: Background::new(),
        };
        let client_info = identity.client_info();
        let common = Common {
            client,
            metrics,
            states: States::default(),
            client_info,
            tools,
        };
        let stop = CancellationToken::new();
        let inner = Arc::new(Inner {
            targets,
            common,
            links: DashMap::default(),
            stop: stop.clone(),
        });
        let swept = Arc::downgrade(&inner);
        inner.common.tools.background.task(async move {
            let mut ticks = interval(SWEEP);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = ticks.tick() => {}
                }
                let Some(inner) = swept.upgrade() else { return };
                inner.sweep();
            }
        });
        Self(inner)
    }

    /// Gives up what belongs to targets that are no more. The gateway calls it after it has swapped
    /// the snapshot; it happens by itself a little later too.
    pub fn refresh(&self) {
        self.0.sweep();
    }

    /// Ends every session and every process. Returns when all have ended, or after twelve seconds.
    /// With `outlived`, sessions of client sessions that are written down are left to whoever goes
    /// on with them.
    pub async fn shutdown(&self, outlived: bool) {
        self.0.stop.cancel();
        for link in self.0.all() {
            link.stop(outlived);
        }
        if !self.0.common.tools.background.settle(SHUTDOWN).await {
            tracing::warn!("some upstreams did not end in time");
        }
    }
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstreams")
            .field("links", &self.0.links.len())
            .finish_non_exhaustive()
    }
}

impl Connector for Upstreams {
    fn call(&self, outbound: Outbound) -> BoxFuture<Events> {
        let events = match self
            .0
            .link(&outbound.tenant, &outbound.upstream, outbound.era)
        {
            Ok(link) => link.call(outbound),
            Err(error) => Events::error(error),
        };
        Box::pin(std::future::ready(events))
    }

    fn answer(&self, to: QuestionRef, answer: Draft) -> BoxFuture<Result<(), RpcError>> {
        let tools = self.0.common.tools.clone();
        Box::pin(async move {
            let Some(open) = tools.desk.take(&to) else {
                return Err(closed(&to.upstream));
            };
            open.peer.taken(&open.upstream_id);
            let mut answer = answer;
            answer.set_id(&open.upstream_id);
            let carried = open.peer.carrier().carry(answer.chunks()).await;
            carried.map_err(|fault| {
                // delivered at most once: only what provably was not sent may be tried again
                if matches!(fault, Fault::NotSent(_)) {
                    let peer = Arc::clone(&open.peer);
                    peer.put_back(open);
                }
                fault.into_error(&to.upstream, Method::ToolsCall)
            })
        })
    }

    fn deliver(
        &self,
        to: QuestionRef,
        answer: Draft,
        capabilities: Arc<Capabilities>,
        inlet: Arc<dyn Inlet>,
    ) -> BoxFuture<Result<(), RpcError>> {
        if self.0.common.tools.desk.is_open(&to.id) {
            return self.answer(to, answer);
        }
        let link = self.0.link(&to.tenant, &to.upstream, Era::Legacy);
        Box::pin(async move {
            let (link, mut answer) = (link?, answer);
            let place = link.private_place(&to.sharing, &capabilities);
            place.set_inlet(&inlet);
            let live = place.attached(&link).await;
            let live = live.map_err(|fault| {
                if matches!(fault, Fault::SessionLost) {
                    return closed(&to.upstream);
                }
                fault.into_error(&to.upstream, Method::ToolsCall)
            })?;
            answer.set_id(&to.asked_as);
            let carried = live.peer.carrier().carry(answer.chunks()).await;
            carried.map_err(|fault| fault.into_error(&to.upstream, Method::ToolsCall))
        })
    }

    fn notify(&self, session: SessionKey, message: Draft) -> BoxFuture<()> {
        let links = self.0.of_tenant(&session.tenant);
        Box::pin(async move {
            let method = message
                .frame()
                .method()
                .and_then(|name| Method::parse(&name));
            let about_roots = method == Some(Method::RootsListChanged);
            let lives = links.iter().flat_map(|link| link.private(&session));
            let told =
                lives.filter(|live| !about_roots || live.peer.owner().class.roots_list_changed);
            let told = told.map(|live| tell(live.peer.carrier().carry(message.chunks())));
            join_all(told).await;
        })
    }

    fn close(&self, session: SessionKey, closing: Closing) -> BoxFuture<()> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let tenant = &session.tenant;
            let Closing::Here(kept) = closing else {
                let links = inner.of_tenant(tenant);
                join_all(links.iter().map(|link| link.close_unwritten(&session))).await;
                return;
            };
            let all = kept.into_iter().filter_map(|(upstream, record)| {
                let link = inner.link(tenant, &upstream, Era::Legacy).ok()?;
                let session = &session;
                Some(async move { link.close_written(session, &record).await })
            });
            // Before the others, whose places say which of them are open here.
            join_all(all).await;
            let links = inner.of_tenant(tenant);
            join_all(links.iter().map(|link| link.close(&session))).await;
        })
    }

    fn profile(
        &self,
        tenant: TenantId,
        upstream: UpstreamId,
        era: Era,
    ) -> BoxFuture<Result<Arc<Profile>, RpcError>> {
        let link = self.0.link(&tenant, &upstream, era);
        Box::pin(async move {
            link?
                .profile()
                .await
                .map_err(|fault| profile_error(fault, &upstream))
        })
    }

    fn known_profile(
        &self,
        tenant: &TenantId,
        upstream: &UpstreamId,
        era: Era,
    ) -> Option<Arc<Profile>> {
        self.0.link(tenant, upstream, era).ok()?.known_profile()
    }
}

async fn tell(carrying: BoxFuture<Result<(), Fault>>) {
    if let Err(error) = carrying.await {
        tracing::debug!(%error, "a notification was not taken");
    }
}

fn closed(upstream: &UpstreamId) -> RpcError {
    let message = "the question is no longer open";
    RpcError::gateway(
        code::LOST,
        message,
        "question_closed",
        Some(upstream),
        false,
    )
}

// === impl Inner ===

impl Inner {
    /// The upstream as the snapshot describes it now, for clients of `era`.
    fn link(
        &self,
        tenant: &TenantId,
        upstream: &UpstreamId,
        era: Era,
    ) -> Result<Arc<Link>, RpcError> {
        let missing = || RpcError::unavailable(upstream, "unknown_upstream");
        if self.stop.is_cancelled() {
            return Err(RpcError::unavailable(upstream, "shutting_down"));
        }
        let targets = self.targets.load();
        let target = targets.get(tenant, upstream).ok_or_else(missing)?;
        // one of a configured era is the same to everybody
        let era = match target.era {
            EraChoice::Auto => era,
            EraChoice::Modern | EraChoice::Legacy => Era::Modern,
        };
        let key = (tenant.clone(), upstream.clone(), era);
        if let Some(link) = self.links.get(&key).filter(|link| stands(link, target)) {
            return Ok(Arc::clone(&link));
        }
        let mut place = self.links.entry(key).or_try_insert_with(|| {
            Link::new(tenant, target, &self.common, era)
                .map(Arc::new)
                .ok_or_else(missing)
        })?;
        if !stands(&place, target) {
            let fresh = Link::new(tenant, target, &self.common, era)
                .map(Arc::new)
                .ok_or_else(missing)?;
            std::mem::replace(place.value_mut(), fresh).retire();
        }
        Ok(Arc::clone(&place))
    }

    fn all(&self) -> Vec<Arc<Link>> {
        self.links.iter().map(|link| Arc::clone(&link)).collect()
    }

    fn of_tenant(&self, tenant: &TenantId) -> Vec<Arc<Link>> {
        let links = self.links.iter().filter(|link| link.tenant() == tenant);
        links.map(|link| Arc::clone(&link)).collect()
    }

    fn sweep(&self) {
        let targets = self.targets.load_full();
        self.links.retain(|(tenant, upstream, _), link| {
            let stays = targets
                .get(tenant, upstream)
                .is_some_and(|target| stands(link, target));
            if !stays {
                link.retire();
            }
            if targets.get(tenant, upstream).is_none() {
                link.observe().forget(&self.common.states);
            }
            stays
        });
        for link in self.all() {
            link.sweep();
        }
    }
}

/// Whether what lives under a link is still what the configuration says.
fn stands(link: &Link, target: &Arc<crate::targets::Target>) -> bool {
    Arc::ptr_eq(link.target(), target) || link.target().is_same_as(target)
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
        for link in &self.links {
            link.stop(true); // who did not say that it is over may have been killed as well
        }
    }
}
