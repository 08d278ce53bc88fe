//! The seam to upstream servers of any era and transport.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_frame::Draft;
use vestibule_terms::{Deadline, Era, Method, Record, Revision, TenantId, UpstreamId};

use crate::BoxFuture;
use crate::call::{LogLevel, SessionKey};
use crate::capability::Capabilities;
use crate::continuation::Continuation;
use crate::error_map::RpcError;
use crate::event::Events;
use crate::inlet::Inlet;
use crate::question::QuestionRef;

/// With whom an upstream session may be shared (translation rules, section 4). Modern upstreams
/// have no sessions and ignore it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Private to one legacy client session.
    Session(SessionKey),
    /// Among the calls of one principal, by its [`binding`](vestibule_terms::Principal::binding).
    Principal(Arc<str>),
    /// Among everybody: enumeration of lists with the upstream's own credential.
    Catalog,
}

/// Who gives up, at their upstreams, the upstream sessions of a client session that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// This process: its own, and what was written down through an [`Inlet`] by any.
    Here(Vec<(UpstreamId, Bytes)>),
    /// Another one has done so with all that were written down.
    Elsewhere,
}

/// One request to one upstream, with the upstream's own names and URIs in it.
#[derive(Clone)]
pub struct Outbound {
    /// The tenant.
    pub tenant: TenantId,
    /// The upstream.
    pub upstream: UpstreamId,
    /// Whose upstream session it uses.
    pub sharing: Sharing,
    /// The client's era: an upstream that speaks both is spoken to in this one.
    pub era: Era,
    /// The method.
    pub method: Method,
    /// The message as the upstream shall see it, but for what the connector owns: `id`,
    /// `progressToken` and the reserved members of `_meta`, which it removes and writes anew.
    pub message: Draft,
    /// Value of `Mcp-Name` before encoding: original name or URI (HDR-11).
    pub name: Option<String>,
    /// `Mcp-Param-*` headers: name suffix and value before encoding (HDR-18).
    pub param_headers: Vec<(String, String)>,
    /// What the client of this call can do; declared upstream as far as the revision can say it.
    pub capabilities: Arc<Capabilities>,
    /// The minimum log level the client wants, if it wants logs.
    pub log_level: Option<LogLevel>,
    /// Whether progress is wanted.
    pub progress: bool,
    /// The clocks of the call.
    pub deadline: Deadline,
    /// The record of the client's request, where there is one.
    pub record: Record,
    /// Where messages of a private session go that belong to no call.
    pub inlet: Option<Arc<dyn Inlet>>,
    /// What it goes on with: then nothing is sent, and the message only says what it is about.
    pub continues: Option<Arc<Continuation>>,
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound")
            .field("upstream", &self.upstream)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// What is known of an upstream once its era is known: `initialize` result or discover result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The revision spoken with it.
    pub revision: Revision,
    /// Whether it is reached over HTTP (header rules apply) or stdio.
    pub over_http: bool,
    /// Its `capabilities` object, raw.
    pub capabilities: Bytes,
    /// Its `instructions`, if any.
    pub instructions: Option<String>,
}

impl Profile {
    /// Whether the capability object has a member of that name that is an object.
    pub fn offers(&self, capability: &str) -> bool {
        self.capability(capability).is_some()
    }

    /// The raw value of one capability.
    pub fn capability(&self, name: &str) -> Option<Bytes> {
        let text = &self.capabilities;
        vestibule_frame::json::members(text)
            .find(|member| {
                vestibule_frame::json::string(&text[member.key.range()]).as_deref() == Some(name)
            })
            .map(|member| text.slice(member.value.range()))
            .filter(|value| value.first() == Some(&b'{'))
    }
}

/// Upstream servers, however they are reached. Implemented by the upstream room; held by the
/// router, the catalog and interact.
pub trait Connector: Send + Sync + 'static {
    /// Sends one request. Every failure is the stream's final error. Dropping the events cancels
    /// the request at the upstream in the way of its era.
    fn call(&self, outbound: Outbound) -> BoxFuture<Events>;

    /// Brings the client's answer (a response message) to the upstream that asked. The message's
    /// id is the client side's; the connector writes the upstream's.
    fn answer(&self, to: QuestionRef, answer: Draft) -> BoxFuture<Result<(), RpcError>>;

    /// The same from a process that the upstream did not ask: on the session that `inlet` recalls of
    /// a client that can do `capabilities`. Delivered at most once a call of this; identical bytes
    /// may be brought again after a crash.
    fn deliver(
        &self,
        to: QuestionRef,
        answer: Draft,
        capabilities: Arc<Capabilities>,
        inlet: Arc<dyn Inlet>,
    ) -> BoxFuture<Result<(), RpcError>>;

    /// Sends a notification on every open upstream session of a client session
    /// (`roots/list_changed`); upstreams that did not negotiate it are left out.
    fn notify(&self, session: SessionKey, message: Draft) -> BoxFuture<()>;

    /// Ends the upstream sessions that were private to a client session that has ended, also those
    /// that other processes have opened.
    fn close(&self, session: SessionKey, closing: Closing) -> BoxFuture<()>;

    /// What the upstream is for clients of `era`: of that era where it speaks it. Probes it when
    /// nothing is known or the knowledge is stale; callers bound the wait.
    fn profile(
        &self,
        tenant: TenantId,
        upstream: UpstreamId,
        era: Era,
    ) -> BoxFuture<Result<Arc<Profile>, RpcError>>;

    /// What is known right now, without waiting.
    fn known_profile(
        &self,
        tenant: &TenantId,
        upstream: &UpstreamId,
        era: Era,
    ) -> Option<Arc<Profile>>;
}
