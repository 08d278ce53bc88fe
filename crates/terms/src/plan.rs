//! What one request may know of the tenant and the virtual server it addressed.
//!
//! A plan is a fact: built from the configuration at each change, handed to the request by the
//! route layer, never mutated. Secrets and connection details of upstreams are not in it.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{ServerId, TenantId, UpstreamId};
use crate::revision::Revision;

/// How a virtual server presents its upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerKind {
    /// One upstream; names and URIs pass untouched.
    Transparent(UpstreamId),
    /// Any number of upstreams (one is fine, none is an empty server), ordered by id; names and
    /// URIs carry the upstream's id.
    Federated(Vec<UpstreamId>),
}

/// What policy shows of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// The tenant has no policy: nobody sees anything.
    Nothing,
    /// `policy: allow_all`: whoever authentication lets in.
    Everything,
}

/// Names a server lets through, as globs over exposed names (`*` and `?`); absent means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowLists {
    /// Tools by exposed name.
    pub tools: Option<Vec<String>>,
    /// Prompts by exposed name.
    pub prompts: Option<Vec<String>>,
    /// Resources and templates by exposed URI.
    pub resources: Option<Vec<String>>,
}

/// Which browser origins a plan accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    /// Serialised origins, compared exactly.
    pub listed: Vec<String>,
    /// Whether every `http(s)` loopback origin of any port is accepted too (a loopback listener
    /// whose tenant lists none).
    pub loopback: bool,
}

/// One virtual server as a request sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPlan {
    /// The tenant.
    pub tenant: TenantId,
    /// The server.
    pub server: ServerId,
    /// Its upstreams.
    pub kind: ServerKind,
    /// The revisions it serves, oldest first; never empty.
    pub revisions: Vec<Revision>,
    /// Accepted browser origins.
    pub origins: Origins,
    /// What policy shows.
    pub visibility: Visibility,
    /// What the server lets through of that.
    pub allow: AllowLists,
    /// Longest exposed name (`name_limit`, 48 by default).
    pub name_limit: usize,
    /// Whether members newer than the receiver's revision are removed (`strict_fields`).
    pub strict_fields: bool,
    /// A legacy answer that takes longer becomes an SSE stream (`stream_after`, 2 s by default).
    pub stream_after: Duration,
    /// Whether a client's stream ends when the upstream's does before its answer (`poll_close`).
    pub poll_close: bool,
    /// Whether legacy clients that never send their session id back are served too.
    pub sessions_optional: bool,
    /// Whether the transport of 2024-11-05 is offered (`http_sse` of the tenant).
    pub http_sse: bool,
    /// Text the operator puts before the upstreams' instructions.
    pub instructions: Option<Arc<str>>,
    /// Longest silence of a call and its total (LIF-09).
    pub call_idle: Duration,
    /// See `call_idle`.
    pub call_total: Duration,
}

impl ServerPlan {
    /// A server with every default of the configuration, which shows nothing: every revision and
    /// transport, no origin, 48 characters a name, SSE after two seconds, calls of a minute's
    /// silence and ten minutes in all.
    pub fn new(tenant: TenantId, server: ServerId, kind: ServerKind) -> Self {
        Self {
            tenant,
            server,
            kind,
            revisions: Revision::ALL.to_vec(),
            origins: Origins::default(),
            visibility: Visibility::Nothing,
            allow: AllowLists::default(),
            name_limit: 48,
            strict_fields: false,
            stream_after: Duration::from_secs(2),
            poll_close: false,
            sessions_optional: false,
            http_sse: true,
            instructions: None,
            call_idle: Duration::from_secs(60),
            call_total: Duration::from_secs(600),
        }
    }

    /// The upstreams, in order of id.
    pub fn upstreams(&self) -> &[UpstreamId] {
        match &self.kind {
            ServerKind::Transparent(upstream) => std::slice::from_ref(upstream),
            ServerKind::Federated(upstreams) => upstreams,
        }
    }

    /// Whether names and URIs carry the upstream's id.
    pub fn is_federated(&self) -> bool {
        matches!(self.kind, ServerKind::Federated(_))
    }

    /// Whether the server speaks `revision`.
    pub fn serves(&self, revision: Revision) -> bool {
        self.revisions.contains(&revision)
    }

    /// Whether any stateless revision is served.
    pub fn serves_modern(&self) -> bool {
        self.revisions.iter().any(|revision| revision.is_modern())
    }

    /// The newest revision with a handshake that is served, if any.
    pub fn newest_legacy(&self) -> Option<Revision> {
        self.revisions
            .iter()
            .copied()
            .filter(|revision| !revision.is_modern())
            .max()
    }

    /// Whether clients may open HTTP+SSE here: it is offered, and there is a revision to speak on
    /// it.
    pub fn opens_http_sse(&self) -> bool {
        self.http_sse && self.newest_legacy().is_some()
    }

    /// Every served version, newest first: the `supported` list of version errors (AMB-04).
    pub fn supported(&self) -> Vec<&'static str> {
        let mut revisions = self.revisions.clone();
        revisions.sort_unstable();
        revisions
            .iter()
            .rev()
            .map(|revision| revision.as_str())
            .collect()
    }
}
