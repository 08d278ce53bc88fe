//! Upstreams that answer from a script, for the tests of this room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use vestibule_exchange::{
    BoxFuture, Capabilities, Closing, Connector, Events, Final, Inlet, Outbound, Profile,
    QuestionRef, RpcError, SessionKey,
};
use vestibule_frame::{Draft, Frame, Id, Limits, encode, json};
use vestibule_terms::plan::Visibility;
use vestibule_terms::{
    Era, Principal, Revision, ServerId, ServerKind, ServerPlan, TenantId, UpstreamId,
};

pub(crate) fn plan(tenant: &str, server: &str, upstreams: &[&str]) -> ServerPlan {
    let mut upstreams: Vec<_> = upstreams
        .iter()
        .map(|id| UpstreamId::new(id).unwrap())
        .collect();
    upstreams.sort();
    ServerPlan {
        visibility: Visibility::Everything,
        ..ServerPlan::new(
            TenantId::new(tenant).unwrap(),
            ServerId::new(server).unwrap(),
            ServerKind::Federated(upstreams),
        )
    }
}

pub(crate) fn principal(tenant: &str, subject: &str) -> Principal {
    let subject = Arc::from(subject);
    Principal {
        subject,
        ..Principal::anonymous(TenantId::new(tenant).unwrap())
    }
}

pub(crate) fn profile(revision: Revision, capabilities: &'static str) -> Arc<Profile> {
    Arc::new(Profile {
        revision,
        over_http: true,
        capabilities: Bytes::from_static(capabilities.as_bytes()),
        instructions: None,
    })
}

/// How an upstream answers a page of a list.
#[derive(Clone)]
pub(crate) enum Reply {
    /// This result.
    Result(String),
    /// This error object.
    Error(&'static str),
    /// Never.
    Silence,
}

type Script = dyn Fn(&str, &str, Option<&str>) -> Reply + Send + Sync;

/// Upstreams by a script of (upstream, method, cursor).
pub(crate) struct Fake {
    pub(crate) profiles: Mutex<HashMap<String, Arc<Profile>>>,
    pub(crate) script: Mutex<Arc<Script>>,
    pub(crate) calls: Mutex<Vec<String>>,
}

impl Fake {
    pub(crate) fn new(
        profiles: &[(&str, Arc<Profile>)],
        script: impl Fn(&str, &str, Option<&str>) -> Reply + Send + Sync + 'static,
    ) -> Arc<Self> {
        let profiles = profiles
            .iter()
            .map(|(id, p)| ((*id).to_owned(), Arc::clone(p)))
            .collect();
        Arc::new(Self {
            profiles: Mutex::new(profiles),
            script: Mutex::new(Arc::new(script)),
            calls: Mutex::default(),
        })
    }

    pub(crate) fn rescript(
        &self,
        script: impl Fn(&str, &str, Option<&str>) -> Reply + Send + Sync + 'static,
    ) {
        *self.script.lock().unwrap() = Arc::new(script);
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl Connector for Fake {
    fn call(&self, outbound: Outbound) -> BoxFuture<Events> {
        let frame = outbound.message.frame().clone();
        let cursor = frame
            .params()
            .and_then(|params| frame.member(params, "cursor"))
            .and_then(|span| frame.string(span).map(|text| text.into_owned()));
        let (upstream, method) = (outbound.upstream.to_string(), outbound.method.as_str());
        let cursor_text = json::quote(cursor.as_deref().unwrap_or("-"));
        self.calls
            .lock()
            .unwrap()
            .push(format!("{upstream} {method} {cursor_text}"));
        let script = Arc::clone(&self.script.lock().unwrap());
        let text = match script(&upstream, method, cursor.as_deref()) {
            Reply::Silence => {
                return Box::pin(async { Events::stream(futures_util::stream::pending()) });
            }
            Reply::Result(result) => encode::result(&Id::integer(1), result.as_bytes()),
            Reply::Error(error) => {
                Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#))
            }
        };
        let frame = Frame::parse(text, &Limits::default()).unwrap();
        Box::pin(async { Events::ready(Final::Message(Draft::new(frame))) })
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
