//! Upstreams that answer from a script, and calls to a router over them.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks for the one variant it expects"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tower::Service;
use vestibule_catalog::Catalog;
use vestibule_exchange::{
    BoxFuture, Call, Capabilities, Closing, Connector, Event, Events, Final, Inlet, Outbound,
    Profile, QuestionRef, RpcError, SessionKey,
};
use vestibule_frame::{Draft, Frame, Limits, encode};
use vestibule_metrics::Metrics;
use vestibule_store::{Keyring, Sealer};
use vestibule_terms::clock::SystemClock;
use vestibule_terms::plan::Visibility;
use vestibule_terms::{
    Deadline, Era, Method, Principal, Record, Revision, ServerId, ServerKind, ServerPlan,
    SessionId, TenantId, UpstreamId,
};

use crate::Router;

pub(crate) const ALL: &str =
    r#"{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{}}"#;

fn plan_of(kind: ServerKind) -> ServerPlan {
    ServerPlan {
        visibility: Visibility::Everything,
        ..ServerPlan::new(
            TenantId::new("t").unwrap(),
            ServerId::new("s").unwrap(),
            kind,
        )
    }
}

pub(crate) fn plan(upstreams: &[&str]) -> ServerPlan {
    let ids = upstreams
        .iter()
        .map(|id| UpstreamId::new(id).unwrap())
        .collect();
    plan_of(ServerKind::Federated(ids))
}

pub(crate) fn transparent(upstream: &str) -> ServerPlan {
    plan_of(ServerKind::Transparent(UpstreamId::new(upstream).unwrap()))
}

pub(crate) fn profile_with(
    revision: Revision,
    capabilities: &'static str,
    instructions: Option<&str>,
) -> Arc<Profile> {
    Arc::new(Profile {
        revision,
        over_http: true,
        capabilities: Bytes::from_static(capabilities.as_bytes()),
        instructions: instructions.map(str::to_owned),
    })
}

pub(crate) fn modern() -> Arc<Profile> {
    profile_with(Revision::R2026_07_28, ALL, None)
}

pub(crate) fn legacy() -> Arc<Profile> {
    profile_with(Revision::R2025_11_25, ALL, None)
}

/// A message as text, for scripts.
pub(crate) fn draft(text: &str) -> Draft {
    let bytes = Bytes::from(text.to_owned());
    Draft::new(Frame::parse(bytes, &Limits::default()).unwrap())
}

pub(crate) fn result(result: &str) -> Events {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
    Events::ready(Final::Message(draft(&text)))
}

pub(crate) fn error(error: &str) -> Events {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#);
    Events::ready(Final::Message(draft(&text)))
}

type Script = dyn Fn(&Outbound) -> Events + Send + Sync;

/// Upstreams by a script; remembers what it was asked.
pub(crate) struct Fake {
    pub(crate) profiles: Mutex<HashMap<String, Arc<Profile>>>,
    script: Box<Script>,
    pub(crate) calls: Mutex<Vec<Outbound>>,
}

impl Connector for Fake {
    fn call(&self, outbound: Outbound) -> BoxFuture<Events> {
        self.calls.lock().unwrap().push(outbound.clone());
        let events = (self.script)(&outbound);
        Box::pin(async { events })
    }

    fn answer(&self, _: QuestionRef, _: Draft) -> BoxFuture<Result<(), RpcError>> {
        Box::pin(async { Ok(()) })
    }

    fn deliver(
        &self,
        to: QuestionRef,
        answer: Draft,
        _capabilities: Arc<Capabilities>,
        _inlet: Arc<dyn Inlet>,
    ) -> BoxFuture<Result<(), RpcError>> {
        self.answer(to, answer)
    }

    fn notify(&self, _: SessionKey, _: Draft) -> BoxFuture<()> {
        Box::pin(async {})
    }

    fn close(&self, _: SessionKey, _: Closing) -> BoxFuture<()> {
        Box::pin(async {})
    }

    fn profile(
        &self,
        tenant: TenantId,
        upstream: UpstreamId,
        era: Era,
    ) -> BoxFuture<Result<Arc<Profile>, RpcError>> {
        let known = self.known_profile(&tenant, &upstream, era);
        Box::pin(async move { known.ok_or_else(|| RpcError::unavailable(&upstream, "connect")) })
    }

    fn known_profile(&self, _: &TenantId, upstream: &UpstreamId, _: Era) -> Option<Arc<Profile>> {
        self.profiles
            .lock()
            .unwrap()
            .get(upstream.as_str())
            .cloned()
    }
}

/// A router over scripted upstreams.
pub(crate) struct World {
    pub(crate) fake: Arc<Fake>,
    pub(crate) router: Router,
    pub(crate) plan: ServerPlan,
    pub(crate) revision: Revision,
    pub(crate) capabilities: Capabilities,
    pub(crate) param_headers: Vec<(String, Result<String, ()>)>,
}

impl World {
    pub(crate) fn new(
        plan: ServerPlan,
        profiles: &[(&str, Arc<Profile>)],
        script: impl Fn(&Outbound) -> Events + Send + Sync + 'static,
    ) -> Self {
        let profiles = profiles
            .iter()
            .map(|(id, p)| ((*id).to_owned(), Arc::clone(p)))
            .collect();
        let fake = Arc::new(Fake {
            profiles: Mutex::new(profiles),
            script: Box::new(script),
            calls: Mutex::default(),
        });
        let connector = Arc::clone(&fake) as Arc<dyn Connector>;
        let sealer = Sealer::new(Keyring::generate());
        let catalog = Catalog::new(Arc::clone(&connector), sealer, Arc::new(SystemClock));
        let router = Router::new(connector, Arc::new(catalog), Metrics::new("0", "test"));
        Self {
            fake,
            router,
            plan,
            revision: Revision::R2026_07_28,
            capabilities: Capabilities::default(),
            param_headers: Vec::new(),
        }
    }

    pub(crate) fn legacy(mut self) -> Self {
        self.revision = Revision::R2025_11_25;
        self
    }

    pub(crate) fn call_of(&self, method: Method, params: &str) -> Call {
        let id = vestibule_frame::Id::integer(7);
        let text = encode::request(&id, method.as_str(), Some(params.as_bytes()));
        let tenant = self.plan.tenant.clone();
        let session = SessionKey {
            tenant: tenant.clone(),
            session: SessionId::new("sid"),
        };
        Call {
            plan: Arc::new(self.plan.clone()),
            principal: Arc::new(Principal::anonymous(tenant)),
            record: Record::default(),
            revision: self.revision,
            method,
            message: Draft::new(Frame::parse(text, &Limits::default()).unwrap()),
            session: (!self.revision.is_modern()).then_some(session),
            capabilities: Arc::new(self.capabilities.clone()),
            log_level: None,
            progress: false,
            param_headers: Arc::from(self.param_headers.clone()),
            deadline: Deadline::starting_now(Duration::from_secs(60), Duration::from_secs(600)),
            inlet: None,
            continues: None,
            rounds: vestibule_exchange::Rounds::default(),
        }
    }

    pub(crate) async fn events(&self, method: Method, params: &str) -> Events {
        self.router
            .clone()
            .call(self.call_of(method, params))
            .await
            .unwrap()
    }

    pub(crate) async fn end(&self, method: Method, params: &str) -> Final {
        let mut events = self.events(method, params).await;
        loop {
            if let Event::Final(end) = events.next().await.expect("an end") {
                return end;
            }
        }
    }

    /// The message a call ended with, as text.
    pub(crate) async fn message(&self, method: Method, params: &str) -> String {
        match self.end(method, params).await {
            Final::Message(draft) => text(&draft),
            other => panic!("not a message: {other:?}"),
        }
    }

    pub(crate) async fn error(&self, method: Method, params: &str) -> RpcError {
        match self.end(method, params).await {
            Final::Error(error) => error,
            other => panic!("not an error: {other:?}"),
        }
    }

    /// What upstreams were asked since the last time, but for lists of the catalog.
    pub(crate) fn asked(&self) -> Vec<Outbound> {
        let all = std::mem::take(&mut *self.fake.calls.lock().unwrap());
        let own = |outbound: &Outbound| outbound.sharing != vestibule_exchange::Sharing::Catalog;
        all.into_iter().filter(own).collect()
    }
}

pub(crate) fn text(draft: &Draft) -> String {
    String::from_utf8(draft.to_bytes().to_vec()).unwrap()
}
