//! The place of one upstream session in the pool: opened at its first use, opened again when the
//! upstream has lost it, closed when its owner is gone (SES-04, case 113).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use vestibule_exchange::{Away, Capabilities, Inlet, Outbound, Sharing};
use vestibule_frame::encode;
use vestibule_terms::Method;

use crate::background::Background;
use crate::fault::Fault;
use crate::flight::Flight;
use crate::legacy::live::Live;
use crate::legacy::peer::Owner;
use crate::legacy::record::SessionRecord;
use crate::link::Link;
use crate::locked;

/// URIs that are subscribed to anew after a session was lost.
const SUBSCRIPTIONS: usize = 1024;
/// How long calls may go on after their session was given up, and how often is looked for them.
const GRACE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(250);
/// How often is looked for a session that another process has opened while nobody can know of it: for
/// ten seconds.
const ATTEMPTS: u32 = 40;
/// Longest wait for one of our own requests on a session.
pub(crate) const SMALL_REQUEST: Duration = Duration::from_secs(5);

/// What makes two calls share a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    /// With whom.
    pub(crate) sharing: Sharing,
    /// What is declared. A private session has one class whatever a call says.
    pub(crate) class: Arc<Capabilities>,
}

/// One place in the pool.
pub(crate) struct Session {
    key: PoolKey,
    class: Arc<Capabilities>,
    live: ArcSwapOption<Live>,
    opening: Flight<Result<Arc<Live>, Fault>>,
    uses: Mutex<Uses>,
    inlet: Mutex<Option<Arc<dyn Inlet>>>,
    /// What was last written down of it.
    record: Mutex<Option<Bytes>>,
    /// Parameters of `resources/subscribe` by URI token, for a session that must be opened anew.
    subscribed: Mutex<BTreeMap<Bytes, Bytes>>,
    closed: CancellationToken,
}

/// Who uses a session right now.
#[derive(Debug)]
struct Uses {
    calls: usize,
    held: bool,
    last: Instant,
}

// === impl Session ===

impl Session {
    pub(crate) fn new(key: PoolKey, class: Arc<Capabilities>) -> Self {
        Self {
            key,
            class,
            live: ArcSwapOption::empty(),
            opening: Flight::default(),
            uses: Mutex::new(Uses {
                calls: 0,
                held: false,
                last: Instant::now(),
            }),
            inlet: Mutex::new(None),
            record: Mutex::new(None),
            subscribed: Mutex::default(),
            closed: CancellationToken::new(),
        }
    }

    pub(crate) fn key(&self) -> &PoolKey {
        &self.key
    }

    /// Whose session it is, for what is opened in this place.
    pub(crate) fn owner(&self, link: &Link) -> Owner {
        Owner {
            tenant: link.tenant().clone(),
            upstream: link.upstream().clone(),
            sharing: self.key.sharing.clone(),
            class: Arc::clone(&self.class),
        }
    }

    /// What is declared at its `initialize`.
    pub(crate) fn class(&self) -> &Arc<Capabilities> {
        &self.class
    }

    /// The open session; opened first when there is none, once for all who wait.
    pub(crate) async fn live(self: &Arc<Self>, link: &Arc<Link>) -> Result<Arc<Live>, Fault> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let (session, link) = (Arc::clone(self), Arc::clone(link));
        let handle = link.background().handle().clone();
        let opened = self
            .opening
            .run(&handle, move || async move { session.open(&link).await });
        opened.await.unwrap_or(Err(Fault::Broken))
    }

    /// The open session, or the one that another process has opened; never a new one.
    pub(crate) async fn attached(self: &Arc<Self>, link: &Arc<Link>) -> Result<Arc<Live>, Fault> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let (session, link) = (Arc::clone(self), Arc::clone(link));
        let handle = link.background().handle().clone();
        let attached = self.opening.run(&handle, move || async move {
            if let Some(live) = session.current() {
                return Ok(live);
            }
            for _ in 0..ATTEMPTS {
                match session.recalled(&link).await {
                    Ok(Some(live)) => return session.install(&link, live).await,
                    Ok(None) => return Err(Fault::SessionLost),
                    Err(Away) => sleep(LOOK).await,
                }
            }
            Err(Fault::NotSent("store"))
        });
        attached.await.unwrap_or(Err(Fault::Broken))
    }

    /// The open session, if there is one.
    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        self.live.load_full().filter(|live| !live.is_over())
    }

    /// Takes a session that was opened while the era was being found out.
    pub(crate) fn adopt(&self, live: Arc<Live>, background: &Background) {
        if let Some(replaced) = self.live.swap(Some(live)) {
            background.run(async move { replaced.close().await });
        }
    }

    /// Remembers where that goes which belongs to no call.
    pub(crate) fn set_inlet(&self, inlet: &Arc<dyn Inlet>) {
        *locked(&self.inlet) = Some(Arc::clone(inlet));
        if let Some(live) = self.current() {
            live.peer.set_inlet(Arc::clone(inlet));
        }
    }

    /// Whether somebody wants to know what belongs to no call.
    pub(crate) fn has_inlet(&self) -> bool {
        locked(&self.inlet).is_some()
    }

    /// Whether another process can go on with it.
    pub(crate) fn is_written_down(&self) -> bool {
        locked(&self.record).is_some()
    }

    /// Whether it is open, and was written down so.
    pub(crate) fn is_open_as(&self, record: &Bytes) -> bool {
        self.current().is_some() && locked(&self.record).as_ref() == Some(record)
    }

    /// Gives the session up here; another process goes on with it.
    pub(crate) fn leave(&self) {
        self.closed.cancel();
        if let Some(live) = self.live.swap(None) {
            live.end();
        }
    }

    /// Gives the session up, here and at the upstream.
    pub(crate) async fn close_now(self: Arc<Self>) {
        self.closed.cancel();
        if let Some(live) = self.live.swap(None) {
            live.close().await;
        }
    }

    /// The same, once nobody uses it any more; at the latest after a minute, or when `hurry` says so.
    pub(crate) async fn close_when_unused(self: Arc<Self>, hurry: CancellationToken) {
        self.closed.cancel();
        let last = Instant::now() + GRACE;
        while locked(&self.uses).calls > 0 && Instant::now() < last {
            if timeout(LOOK, hurry.cancelled()).await.is_ok() {
                break;
            }
        }
        self.close_now().await;
    }

    /// A call of `outbound` succeeded: subscriptions are remembered (translation rules 4, (c)).
    pub(crate) fn succeeded(&self, outbound: &Outbound) {
        let frame = outbound.message.frame();
        let Some(uri) = frame.uri().map(|uri| frame.shared(uri)) else {
            return;
        };
        let mut subscribed = locked(&self.subscribed);
        if outbound.method == Method::ResourcesUnsubscribe {
            subscribed.remove(&uri);
        } else if outbound.method == Method::ResourcesSubscribe && subscribed.len() < SUBSCRIPTIONS
        {
            let params = encode::object(&[("uri", &uri)]);
            subscribed.insert(uri, params);
        }
    }

    /// Begins a use; `hold` for a call that no other interactive call may share it with. False when
    /// it is held already.
    pub(crate) fn take(&self, hold: bool) -> bool {
        let mut uses = locked(&self.uses);
        if hold && uses.held {
            return false;
        }
        uses.held |= hold;
        uses.calls += 1;
        true
    }

    /// Ends a use.
    pub(crate) fn give_back(&self, hold: bool) {
        let mut uses = locked(&self.uses);
        uses.calls = uses.calls.saturating_sub(1);
        uses.held &= !hold;
        uses.last = Instant::now();
    }

    /// Since when nobody has used it; none while somebody does, and while a question is open on it
    /// or somebody is subscribed (such sessions are pinned).
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let asking = self
            .live
            .load()
            .as_ref()
            .is_some_and(|live| live.peer.is_asking());
        // lists of everybody are kept current by what arrives on their session; those of a class
        // are not worth a session for ever, since clients choose their class
        let listened = self.has_inlet() && self.class.is_empty();
        let pinned = asking || listened || !locked(&self.subscribed).is_empty();
        let uses = locked(&self.uses);
        (uses.calls == 0 && !pinned).then_some(uses.last)
    }

    async fn open(self: Arc<Self>, link: &Arc<Link>) -> Result<Arc<Live>, Fault> {
        if let Some(live) = self.current() {
            return Ok(live); // opened between the look and the flight
        }
        if let Ok(Some(live)) = self.recalled(link).await {
            return self.install(link, live).await;
        }
        let opened = link.open_session(&self).await?;
        let (live, is_new) = self.remembered(link, opened).await;
        let live = self.install(link, live).await?;
        if is_new {
            self.subscribe_anew(link, &live).await;
        }
        Ok(live)
    }

    /// The session that another process has opened for the same client session, unless that is the
    /// one that has just turned out to be lost.
    async fn recalled(&self, link: &Arc<Link>) -> Result<Option<Live>, Away> {
        let Some(inlet) = self.scribe() else {
            return Ok(None);
        };
        let Some(record) = inlet.recall(link.upstream()).await? else {
            return Ok(None);
        };
        if locked(&self.record).as_ref() == Some(&record) {
            return Ok(None);
        }
        let live = link.attach(self, &record);
        if live.is_some() {
            *locked(&self.record) = Some(record);
        }
        Ok(live)
    }

    /// Writes a new session down. Where another process was faster its session is the one, and
    /// ours is ended.
    async fn remembered(&self, link: &Arc<Link>, opened: Live) -> (Live, bool) {
        let (Some(inlet), Some(record)) = (self.scribe(), SessionRecord::of(&opened)) else {
            return (opened, true);
        };
        let instead = locked(&self.record).take();
        let written = inlet.remember(link.upstream(), record.clone(), instead);
        let written = written.await;
        let theirs = written.as_ref().filter(|written| **written != record);
        let theirs = theirs.and_then(|record| link.attach(self, record));
        *locked(&self.record) = written;
        match theirs {
            Some(theirs) => {
                link.background().run(async move { opened.close().await });
                (theirs, false)
            }
            None => (opened, true),
        }
    }

    /// Who writes down what this session is; nobody but for private ones.
    fn scribe(&self) -> Option<Arc<dyn Inlet>> {
        let private = matches!(self.key.sharing, Sharing::Session(_));
        locked(&self.inlet).clone().filter(|_| private)
    }

    async fn install(&self, link: &Arc<Link>, live: Live) -> Result<Arc<Live>, Fault> {
        let live = Arc::new(live);
        let inlet = locked(&self.inlet).clone();
        if let Some(inlet) = inlet {
            live.peer.set_inlet(inlet);
        }
        self.live.store(Some(Arc::clone(&live)));
        if self.closed.is_cancelled() || link.is_over() {
            live.close().await;
            return Err(Fault::Retired);
        }
        link.learnt(&live.profile);
        Ok(live)
    }

    async fn subscribe_anew(&self, link: &Link, live: &Live) {
        let wanted: Vec<Bytes> = locked(&self.subscribed).values().cloned().collect();
        for params in wanted {
            let id = link.ids().call();
            let asking = live.ask(&id, Method::ResourcesSubscribe, &params);
            if !matches!(timeout(SMALL_REQUEST, asking).await, Ok(Ok(_))) {
                tracing::warn!(upstream.id = %link.upstream(), "a subscription could not be renewed");
            }
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}
