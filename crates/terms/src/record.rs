//! The record of one request: what the access log and the metrics say of it.
//!
//! Created by the record layer, filled by the layers that learn each fact (every cell is
//! write-once; a second write is ignored), read when the response body closes. Nothing decides
//! by it: a layer that needs a fact takes the fact itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::id::{ServerId, TenantId, UpstreamId};
use crate::method::Method;
use crate::revision::Revision;

/// How a request ended, as the metric label says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A result.
    Ok,
    /// A tool's own failure (`isError`).
    ToolError,
    /// A JSON-RPC error of the upstream or about the request's content.
    RpcError,
    /// Refused before it was understood.
    Rejected,
    /// No valid credential.
    Unauthenticated,
    /// Understood and not permitted.
    Denied,
    /// Over a limit.
    Limited,
    /// The upstream could not be reached or broke the protocol.
    UpstreamError,
    /// A clock ran out.
    Timeout,
    /// The caller gave up.
    Cancelled,
    /// Our own fault.
    Internal,
}

impl Outcome {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::ToolError => "tool_error",
            Outcome::RpcError => "rpc_error",
            Outcome::Rejected => "rejected",
            Outcome::Unauthenticated => "unauthenticated",
            Outcome::Denied => "denied",
            Outcome::Limited => "limited",
            Outcome::UpstreamError => "upstream_error",
            Outcome::Timeout => "timeout",
            Outcome::Cancelled => "cancelled",
            Outcome::Internal => "internal",
        }
    }
}

/// Shared handle on one request's record.
#[derive(Debug, Clone, Default)]
pub struct Record(Arc<Cells>);

#[derive(Debug, Default)]
struct Cells {
    request_id: OnceLock<Box<str>>,
    tenant: OnceLock<TenantId>,
    server: OnceLock<ServerId>,
    principal: OnceLock<Box<str>>,
    revision: OnceLock<Revision>,
    method: OnceLock<Method>,
    target: OnceLock<Box<str>>,
    upstream: OnceLock<UpstreamId>,
    outcome: OnceLock<Outcome>,
    code: OnceLock<i64>,
    reason: OnceLock<&'static str>,
    upstream_micros: AtomicU64,
    stages: OnceLock<std::sync::Mutex<Vec<&'static str>>>,
}

macro_rules! cell {
    ($(#[$doc:meta])* $set:ident, $get:ident: $type:ty) => {
        $(#[$doc])*
        pub fn $set(&self, value: $type) {
            let _already_known = self.0.$get.set(value);
        }

        /// The fact, once it is known.
        pub fn $get(&self) -> Option<&$type> {
            self.0.$get.get()
        }
    };
}

impl Record {
    cell!(/** The id of `X-Request-Id`. */ set_request_id, request_id: Box<str>);
    cell!(/** Tenant of the path, once it is known to exist. */ set_tenant, tenant: TenantId);
    cell!(/** Server of the path, once it is known to exist. */ set_server, server: ServerId);
    cell!(/** Subject of the principal. */ set_principal, principal: Box<str>);
    cell!(/** Revision the client speaks. */ set_revision, revision: Revision);
    cell!(/** Method of the message. */ set_method, method: Method);
    cell!(/** Exposed name or URI, for the access record only. */ set_target, target: Box<str>);
    cell!(/** The upstream that answered. */ set_upstream, upstream: UpstreamId);
    cell!(/** How it ended. */ set_outcome, outcome: Outcome);
    cell!(/** JSON-RPC error code of the answer. */ set_code, code: i64);
    cell!(/** Bounded reason of a refusal. */ set_reason, reason: &'static str);

    /// A new record for one message of this request: who and where are known, what it does is not.
    pub fn of_message(&self) -> Self {
        let known = &self.0;
        Self(Arc::new(Cells {
            request_id: known.request_id.clone(),
            tenant: known.tenant.clone(),
            server: known.server.clone(),
            principal: known.principal.clone(),
            revision: known.revision.clone(),
            ..Cells::default()
        }))
    }

    /// Adds time spent waiting for the upstream.
    pub fn add_upstream_time(&self, elapsed: std::time::Duration) {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.0.upstream_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Time spent waiting for upstreams, in microseconds.
    pub fn upstream_micros(&self) -> u64 {
        self.0.upstream_micros.load(Ordering::Relaxed)
    }

    /// Turns on the trace of stages: a test of the pipeline's order asks for it.
    pub fn trace_stages(&self) {
        let _already_on = self.0.stages.set(std::sync::Mutex::new(Vec::new()));
    }

    /// Notes that the request entered `stage`; free unless the trace is on.
    pub fn enter(&self, stage: &'static str) {
        if let Some(Ok(mut stages)) = self.0.stages.get().map(|stages| stages.lock()) {
            stages.push(stage);
        }
    }

    /// The stages entered so far, in order; empty unless the trace is on.
    pub fn stages(&self) -> Vec<&'static str> {
        match self.0.stages.get().map(|stages| stages.lock()) {
            Some(Ok(stages)) => stages.clone(),
            Some(Err(_)) | None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_writer_of_a_fact_wins() {
        let record = Record::default();
        record.set_outcome(Outcome::Denied);
        record.clone().set_outcome(Outcome::Ok);
        assert_eq!(record.outcome(), Some(&Outcome::Denied));
    }

    #[test]
    fn stages_are_traced_only_on_request() {
        let record = Record::default();
        record.enter("route");
        assert!(record.stages().is_empty());
        record.trace_stages();
        record.enter("route");
        assert_eq!(record.stages(), ["route"]);
    }
}
