//! One upstream and everything that lives under it: what is known of it, its sessions or processes,
//! and the way of a call through them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use vestibule_exchange::{
    Capabilities, Continuation, Events, Final, Outbound, Profile, RpcError, SessionKey, Sharing,
};
use vestibule_frame::Frame;
use vestibule_terms::reject::code;
use vestibule_terms::{Era, Method, TenantId, UpstreamId, mutation};

use crate::background::Background;
use crate::clock::CallClock;
use crate::era::{Known, Memory};
use crate::fault::Fault;
use crate::ids::Ids;
use crate::legacy::live::{Live, Quirks};
use crate::legacy::peer::Tools;
use crate::legacy::pool::{Bounds, Lease, Pool};
use crate::legacy::session::{PoolKey, Session};
use crate::legacy::{self};
use crate::modern::{self, Turn};
use crate::observe::{Measured, Observe, States};
use crate::running::{self, Sink};
use crate::stdio::open::StdioSide;
use crate::targets::{EraChoice, Reach, Target};
use crate::wire::Wire;
use crate::{probe, retry, stdio};

/// An upstream over HTTP.
#[derive(Debug)]
pub(crate) struct HttpSide {
    pub(crate) wire: Arc<Wire>,
    pub(crate) quirks: Arc<Quirks>,
    /// Answers in a row that no stateless server gives.
    pub(crate) strikes: AtomicU8,
}

/// How an upstream is reached.
#[derive(Debug)]
enum Via {
    Http(HttpSide),
    Stdio(Box<StdioSide>),
}

/// What all upstreams use.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) client: vestibule_egress::Client,
    pub(crate) metrics: vestibule_metrics::Metrics,
    pub(crate) states: States,
    pub(crate) client_info: Bytes,
    pub(crate) tools: Tools,
}

/// One upstream.
pub(crate) struct Link {
    tenant: TenantId,
    target: Arc<Target>,
    client_info: Bytes,
    tools: Tools,
    observe: Observe,
    memory: Memory,
    /// Its clients are legacy ones: it is taken for one with a handshake until it refuses it.
    handshake_first: AtomicBool,
    pool: Arc<Pool>,
    via: Via,
    over: CancellationToken,
}

// === impl Link ===

impl Link {
    /// An upstream that nothing is known of yet, for clients of `era`. None when its URL is none.
    pub(crate) fn new(
        tenant: &TenantId,
        target: &Arc<Target>,
        common: &Common,
        era: Era,
    ) -> Option<Self> {
        let (via, bounds) = match &target.reach {
            Reach::Http { url } => {
                let wire = Arc::new(Wire::new(common.client.clone(), target, url)?);
                let side = HttpSide {
                    wire,
                    quirks: Arc::default(),
                    strikes: AtomicU8::new(0),
                };
                (Via::Http(side), Bounds::http(target.max_sessions))
            }
            Reach::Stdio { .. } => (
                Via::Stdio(Box::default()),
                Bounds::stdio(target.max_sessions),
            ),
        };
        let metrics = common.metrics.clone();
        Some(Self {
            tenant: tenant.clone(),
            client_info: common.client_info.clone(),
            tools: common.tools.clone(),
            observe: Observe::new(metrics, &common.states, tenant.clone(), target.id.clone()),
            memory: Memory::default(),
            handshake_first: AtomicBool::new(era == Era::Legacy),
            pool: Arc::new(Pool::new(bounds)),
            target: Arc::clone(target),
            via,
            over: CancellationToken::new(),
        })
    }

    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    pub(crate) fn upstream(&self) -> &UpstreamId {
        &self.target.id
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    pub(crate) fn client_info(&self) -> &Bytes {
        &self.client_info
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.tools.ids
    }

    pub(crate) fn tools(&self) -> Tools {
        self.tools.clone()
    }

    pub(crate) fn background(&self) -> &Background {
        &self.tools.background
    }

    pub(crate) fn observe(&self) -> &Observe {
        &self.observe
    }

    /// Its processes, when it is one.
    pub(crate) fn stdio(&self) -> Option<&StdioSide> {
        match &self.via {
            Via::Stdio(side) => Some(side),
            Via::Http(_) => None,
        }
    }

    /// Whether its target was removed or replaced.
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// The events of one call.
    pub(crate) fn call(self: Arc<Self>, outbound: Outbound) -> Events {
        running::events(move |sink| async move {
            let measured = Measured::begin(&self, &outbound);
            let end = match outbound.continues.clone() {
                None => self.run(outbound, &sink).await,
                Some(continuation) => Box::pin(self.go_on(outbound, &continuation, &sink)).await,
            };
            measured.end(&end);
            end
        })
    }

    /// What the upstream is.
    pub(crate) async fn profile(self: &Arc<Self>) -> Result<Arc<Profile>, Fault> {
        let mut known = self.known().await?;
        if let Some(profile) = known.fresh_profile() {
            return Ok(profile);
        }
        if known.era == Era::Legacy {
            match self.catalog_session().live(self).await {
                Ok(live) => return Ok(Arc::clone(&live.profile)),
                Err(fault) if self.guesses() && fault.doubts_era() => {
                    self.forget_era();
                    known = self.known().await?;
                }
                Err(fault) => return Err(fault),
            }
        }
        if let Some(profile) = known.fresh_profile() {
            return Ok(profile);
        }
        let (handle, link) = (self.background().handle().clone(), Arc::clone(self));
        let looked = self.memory.looking.run(&handle, move || async move {
            let known = link.memory.set(probe::look(&link).await?);
            known
                .profile
                .clone()
                .ok_or(Fault::Protocol("discover_result"))
        });
        looked.await.unwrap_or(Err(Fault::Broken))
    }

    /// What a session was told, if the upstream is known to have a handshake.
    pub(crate) fn known_legacy(&self) -> Option<Arc<Profile>> {
        let known = self
            .memory
            .known()
            .filter(|known| known.era == Era::Legacy)?;
        known.profile.clone()
    }

    /// What is known of it right now.
    pub(crate) fn known_profile(&self) -> Option<Arc<Profile>> {
        self.memory.known()?.profile.clone()
    }

    /// A session was opened, and said this.
    pub(crate) fn learnt(&self, profile: &Arc<Profile>) {
        self.memory.learnt(profile);
    }

    /// The era has to be found out again, by asking.
    pub(crate) fn forget_era(&self) {
        if self.target.era == EraChoice::Auto {
            self.handshake_first.store(false, Ordering::Relaxed);
            self.memory.forget();
        }
    }

    /// Whether the handshake is a guess that no answer has confirmed.
    fn guesses(&self) -> bool {
        self.handshake_first.load(Ordering::Relaxed)
    }

    /// The session that lists are fetched with when nothing is declared.
    pub(crate) fn catalog_session(&self) -> Arc<Session> {
        self.pool.place(Sharing::Catalog, Arc::default())
    }

    /// The session for a call.
    pub(crate) async fn lease(&self, outbound: &Outbound) -> Lease {
        let class = self.class(&outbound.capabilities);
        let hold = self.must_hold(outbound, &class);
        let close = |session: Arc<Session>| {
            self.background().each(vec![session.close_now()]);
        };
        self.pool.acquire(outbound, class, hold, close).await
    }

    /// Opens a session in a place of the pool.
    pub(crate) async fn open_session(&self, session: &Session) -> Result<Live, Fault> {
        let owner = session.owner(self);
        match &self.via {
            Via::Http(side) => probe::open_http(self, side, owner, None).await,
            Via::Stdio(side) => match side.open_session(self, owner).await {
                // a stateless server may end on a message it does not know
                Err(Fault::Broken) if self.guesses() => Err(Fault::Incompatible),
                opened => opened,
            },
        }
    }

    /// A session that another process has opened, in a place of the pool.
    pub(crate) fn attach(&self, session: &Session, record: &Bytes) -> Option<Live> {
        match &self.via {
            Via::Http(side) => probe::attach_http(self, side, session.owner(self), record),
            Via::Stdio(_) => None,
        }
    }

    /// The place of a client session's private session.
    pub(crate) fn private_place(
        &self,
        sharing: &Sharing,
        declared: &Arc<Capabilities>,
    ) -> Arc<Session> {
        let class = self.class(&self.relayable(declared));
        self.pool.place(sharing.clone(), class)
    }

    /// The answer to `server/discover`.
    pub(crate) async fn discover(self: &Arc<Self>) -> Result<Frame, Fault> {
        match &self.via {
            Via::Http(side) => modern::discover(self, side).await,
            Via::Stdio(side) => stdio::modern::discover(self, side).await,
        }
    }

    /// The open private sessions of a client session.
    pub(crate) fn private(&self, client: &SessionKey) -> Vec<Arc<Live>> {
        self.pool
            .of(client)
            .iter()
            .filter_map(|session| session.current())
            .collect()
    }

    /// Ends the private sessions of a client session.
    pub(crate) async fn close(&self, client: &SessionKey) {
        let sessions = self.pool.remove(client);
        join_all(sessions.into_iter().map(|session| session.close_now())).await;
    }

    /// The same, but those which are written down are given up here only.
    pub(crate) async fn close_unwritten(&self, client: &SessionKey) {
        let sessions = self.pool.remove(client).into_iter();
        let (left, ended): (Vec<_>, Vec<_>) = sessions.partition(|one| one.is_written_down());
        left.iter().for_each(|session| session.leave());
        join_all(ended.into_iter().map(|session| session.close_now())).await;
    }

    /// Ends the private session of a client session that was written down so, unless it is open
    /// here, where it ends with the others.
    pub(crate) async fn close_written(&self, client: &SessionKey, record: &Bytes) {
        let here = self.pool.of(client);
        if here.iter().any(|session| session.is_open_as(record)) {
            return;
        }
        let place = Session::new(PoolKey::private(client), Arc::default());
        if let Some(live) = self.attach(&place, record) {
            live.close().await;
        }
    }

    /// Ends pooled sessions that nobody uses.
    pub(crate) fn sweep(&self) {
        let idle = self.pool.remove_idle();
        self.background().each(
            idle.into_iter()
                .map(|session| session.close_now())
                .collect(),
        );
    }

    /// The target is no more: what lives here ends as soon as the calls that are under way have
    /// ended, or a minute later.
    pub(crate) fn retire(&self) {
        self.over.cancel();
        let ending = self.background().ending();
        let sessions = self.pool.remove_all().into_iter();
        let works = sessions.map(|session| session.close_when_unused(ending.clone()));
        self.background().each(works.collect());
        if let Via::Stdio(side) = &self.via {
            side.shared.leave();
        }
    }

    /// Everything that lives here ends now, but for what others go on with.
    pub(crate) fn stop(&self, outlived: bool) {
        self.over.cancel();
        let (left, ended): (Vec<_>, Vec<_>) = self
            .pool
            .remove_all()
            .into_iter()
            .partition(|session| outlived && session.is_written_down());
        left.iter().for_each(|session| session.leave());
        self.background().each(
            ended
                .into_iter()
                .map(|session| session.close_now())
                .collect(),
        );
        if let Via::Stdio(side) = &self.via {
            side.shared.stop();
        }
    }

    /// Goes on with what another process began. Nothing is ever sent anew: what cannot be found
    /// again is lost, and said to be (EL-15).
    async fn go_on(
        self: &Arc<Self>,
        mut outbound: Outbound,
        continuation: &Continuation,
        sink: &Sink,
    ) -> Final {
        outbound.capabilities = self.relayable(&outbound.capabilities);
        if mutation::on("rerun-call") {
            return self.run(outbound, sink).await;
        }
        let mut clock = CallClock::start(&outbound, &self.target.timeouts);
        match legacy::go_on(self, &outbound, continuation, &mut clock, sink).await {
            Ok(end) => self.judged(end),
            Err(fault @ Fault::Timeout) => {
                Final::Error(fault.into_error(&self.target.id, outbound.method))
            }
            Err(fault) => {
                tracing::info!(upstream.id = %self.target.id, %fault, "a call of another process could not be gone on with");
                Final::Error(RpcError::lost(Some(&self.target.id)))
            }
        }
    }

    async fn run(self: &Arc<Self>, mut outbound: Outbound, sink: &Sink) -> Final {
        outbound.capabilities = self.relayable(&outbound.capabilities);
        let mut clock = CallClock::start(&outbound, &self.target.timeouts);
        let mut attempt = 0;
        loop {
            let fault = match self.try_call(&outbound, &mut clock, sink).await {
                Ok(end) => return self.judged(end),
                Err(fault) => fault,
            };
            if fault.is_down() {
                self.observe.reached(false);
            }
            tracing::debug!(upstream.id = %self.target.id, method = outbound.method.as_str(), %fault, "a call failed");
            match retry::after(&fault, outbound.method, attempt) {
                Some(delay) if clock.allows(delay) => tokio::time::sleep(delay).await,
                Some(_) | None => {
                    return Final::Error(fault.into_error(&self.target.id, outbound.method));
                }
            }
            attempt += 1;
        }
    }

    /// Makes the call in the upstream's era; once more when that was another one.
    async fn try_call(
        self: &Arc<Self>,
        outbound: &Outbound,
        clock: &mut CallClock,
        sink: &Sink,
    ) -> Result<Final, Fault> {
        for may_turn in [true, false] {
            let may_turn = may_turn && self.target.era == EraChoice::Auto;
            let known = clock.bound(self.known()).await??;
            let turn = match (&self.via, known.era) {
                (Via::Http(side), Era::Modern) => {
                    modern::call(self, side, outbound, clock, sink).await?
                }
                (Via::Stdio(side), Era::Modern) => {
                    Box::pin(stdio::modern::call(self, side, outbound, clock, sink)).await?
                }
                (_, Era::Legacy) => match legacy::call(self, outbound, clock, sink).await {
                    Ok(Some(end)) => return Ok(end),
                    Ok(None) => Turn::Modern,
                    Err(fault) if may_turn && fault.doubts_era() => Turn::Modern,
                    Err(fault) => return Err(fault),
                },
            };
            match turn {
                Turn::End(end) => return Ok(*end),
                Turn::Legacy | Turn::Modern if !may_turn => break,
                Turn::Legacy => {
                    self.memory.set(Known::pinned(Era::Legacy));
                }
                Turn::Modern => self.forget_era(),
            }
        }
        Err(Fault::Incompatible)
    }

    /// The era, found out first when it is not known. A stale one is used while it is asked for
    /// again.
    async fn known(self: &Arc<Self>) -> Result<Arc<Known>, Fault> {
        let pinned = match self.target.era {
            EraChoice::Auto => None,
            EraChoice::Modern => Some(Era::Modern),
            EraChoice::Legacy => Some(Era::Legacy),
        };
        if let Some(era) = pinned {
            return Ok(self
                .memory
                .known()
                .unwrap_or_else(|| self.memory.set(Known::pinned(era))));
        }
        if self.guesses() {
            let guess = || self.memory.set(Known::pinned(Era::Legacy));
            return Ok(self.memory.known().unwrap_or_else(guess));
        }
        if self.stdio().is_some_and(StdioSide::wants_probe) {
            self.memory.forget();
        }
        // a process does not change its era while it lives, and is asked again when it ends
        let known = self.memory.known();
        let renews = self.target.is_over_http();
        let (handle, link) = (self.background().handle().clone(), Arc::clone(self));
        let probe = move || async move { link.probe().await };
        match known {
            Some(known) if !renews || !known.is_stale() => Ok(known),
            Some(known) => {
                self.memory.probing.begin(&handle, probe);
                Ok(known)
            }
            None => self
                .memory
                .probing
                .run(&handle, probe)
                .await
                .unwrap_or(Err(Fault::Broken)),
        }
    }

    async fn probe(self: &Arc<Self>) -> Result<Arc<Known>, Fault> {
        let probed = match &self.via {
            Via::Http(side) => probe::http(self, side).await,
            Via::Stdio(side) => side.probe(self).await,
        };
        if let Err(fault) = &probed {
            tracing::warn!(upstream.id = %self.target.id, %fault, "could not find out what an upstream speaks");
            self.observe.reached(!fault.is_down());
        } else {
            self.observe.reached(true);
        }
        Ok(self.memory.set(probed?))
    }

    /// Whether everybody is the same to this upstream.
    fn shares_credential(&self) -> bool {
        match &self.target.reach {
            Reach::Http { .. } => !self.target.headers.is_empty(),
            Reach::Stdio { env, .. } => !env.is_empty(),
        }
    }

    /// The end of a call, unless it asks one user for a grant that all would share (ELI-14).
    fn judged(&self, end: Final) -> Final {
        let asks = match &end {
            Final::Message(draft) => asks_for_grant(draft.frame()),
            Final::Error(_)
            | Final::View(_)
            | Final::List(_)
            | Final::Empty
            | Final::Wanted(_)
            | Final::Cancelled => false,
        };
        if asks && self.shares_credential() {
            return Final::Error(RpcError::shared_credential(&self.target.id));
        }
        end
    }

    /// What may be declared of a client's capabilities. With a credential that everybody shares a
    /// url elicitation would bind one user's grant to all (ELI-14).
    fn relayable(&self, declared: &Arc<Capabilities>) -> Arc<Capabilities> {
        if declared.elicit_url && self.shares_credential() {
            return Arc::new(Capabilities {
                elicit_url: false,
                ..(**declared).clone()
            });
        }
        Arc::clone(declared)
    }

    /// The class of a call: what its upstream's revision can say of the capabilities.
    fn class(&self, declared: &Arc<Capabilities>) -> Arc<Capabilities> {
        let revision = self
            .memory
            .known()
            .and_then(|known| known.profile.as_ref().map(|p| p.revision));
        match revision.filter(|revision| !revision.is_modern()) {
            Some(revision) if !declared.is_empty() => Arc::new(declared.masked(revision)),
            Some(_) | None => Arc::clone(declared),
        }
    }

    /// Whether the call must be the only one on its session during which the upstream may ask.
    fn must_hold(&self, outbound: &Outbound, class: &Capabilities) -> bool {
        let private = matches!(outbound.sharing, Sharing::Session(_));
        let blurred = match &self.via {
            Via::Http(side) => side.quirks.asks_on_get.load(Ordering::Relaxed),
            Via::Stdio(_) => true,
        };
        !private && blurred && !class.is_empty() && outbound.method.may_ask()
    }
}

/// Whether a response asks for a url elicitation: first of all, or before it goes on.
fn asks_for_grant(frame: &Frame) -> bool {
    if let Some(parts) = frame.error_parts() {
        return parts.code == Some(code::URL_ELICITATION);
    }
    let requests = frame
        .result_type()
        .and_then(|_| frame.member(frame.result()?, "inputRequests"));
    let mut requests = requests
        .into_iter()
        .flat_map(|requests| frame.members(requests));
    requests.any(|request| {
        let params = frame.member(request.value, "params");
        let mode = params.and_then(|params| frame.member(params, "mode"));
        mode.and_then(|span| frame.string(span)).as_deref() == Some("url")
    })
}

/// The error that a caller gets who asks for what a target is.
pub(crate) fn profile_error(fault: Fault, upstream: &UpstreamId) -> RpcError {
    fault.into_error(upstream, Method::ServerDiscover)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("upstream", &self.target.id)
            .finish_non_exhaustive()
    }
}
