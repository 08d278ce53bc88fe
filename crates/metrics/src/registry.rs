//! The handle rooms hold: one typed method an observation, every label bounded.
//!
//! Refusals need no call from the layer that refuses: the record layer derives
//! `requests_total`, `rejected_frames_total` and `auth_failures_total` from the request's record.
//! [`Metrics::rate_limited`] is called by whoever limits, since a record does not say whose limit
//! it was.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{IntGauge, Registry};
use vestibule_terms::reject::Scope;
use vestibule_terms::{Method, Outcome, Revision, ServerId, TenantId, UpstreamId};

use crate::expose;
use crate::families::Families;
use crate::labels::{self, Labels, Slot, Tools};

/// Where a client stream came from: the `kind` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// The answer of a POST.
    Post,
    /// A session's GET stream, resumed ones included.
    Get,
    /// The HTTP+SSE transport.
    Sse,
    /// `subscriptions/listen`.
    Listen,
}

impl StreamKind {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            StreamKind::Post => "post",
            StreamKind::Get => "get",
            StreamKind::Sse => "sse",
            StreamKind::Listen => "listen",
        }
    }
}

/// Shared handle on one process's metrics.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    families: Families,
    tenants: Labels,
    servers: Labels,
    upstreams: Labels,
    tools: Tools,
}

/// What is known of one request when it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestEnd<'a> {
    pub(crate) tenant: Option<&'a TenantId>,
    pub(crate) server: Option<&'a ServerId>,
    pub(crate) method: Option<Method>,
    pub(crate) revision: Option<Revision>,
    pub(crate) outcome: Outcome,
    pub(crate) elapsed: Duration,
    pub(crate) overhead: Option<Duration>,
}

/// A client stream that counts as open until this is dropped.
#[derive(Debug)]
pub struct OpenStream(Option<IntGauge>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(open) = &self.0 {
            open.dec();
        }
    }
}

fn text(label: &str) -> Arc<str> {
    Arc::from(label)
}

fn method_text(method: Option<Method>) -> Arc<str> {
    text(method.map_or("none", Method::as_str))
}

fn revision_text(revision: Option<Revision>) -> Arc<str> {
    text(revision.map_or("none", Revision::as_str))
}

// === impl Metrics ===

impl Metrics {
    /// A fresh registry of the build `version` at `commit`.
    pub fn new(version: &str, commit: &str) -> Self {
        let registry = Registry::new_custom(Some("vestibule".to_owned()), None)
            .expect("the prefix is a constant that is not empty");
        let families = Families::new(&registry, version, commit);
        // a process only runs on a configuration that was accepted
        families.config_last_reload_success.set(1);
        Self(Arc::new(Inner {
            registry,
            families,
            tenants: Labels::new(labels::MAX_TENANTS, "_unknown", "_other"),
            servers: Labels::new(labels::MAX_SERVERS, "_unknown", "_other"),
            upstreams: Labels::new(labels::MAX_UPSTREAMS, "_unknown", "_other"),
            tools: Tools::new(),
        }))
    }

    /// `Content-Type` of [`Metrics::expose`].
    pub const CONTENT_TYPE: &'static str = expose::CONTENT_TYPE;

    /// Everything, in the classic text format.
    pub fn expose(&self) -> String {
        expose::text(&self.0.registry)
    }

    /// One request to an upstream has ended.
    pub fn upstream_request(
        &self,
        (tenant, upstream): (&TenantId, &UpstreamId),
        method: Method,
        outcome: Outcome,
        elapsed: Duration,
    ) {
        let (t, u) = self.pair(tenant, upstream);
        self.0.families.upstream_requests.with(
            (t, u, method, outcome),
            || {
                let [tenant, upstream] = self.pair_texts(t, u);
                [
                    tenant,
                    upstream,
                    text(method.as_str()),
                    text(outcome.as_str()),
                ]
            },
            |count| count.inc(),
        );
        self.0.families.upstream_duration.with(
            (t, u),
            || self.pair_texts(t, u),
            |histogram| histogram.observe(elapsed.as_secs_f64()),
        );
    }

    /// Whether this process can reach the upstream, as its health checks see it.
    pub fn upstream_up(&self, tenant: &TenantId, upstream: &UpstreamId, up: bool) {
        let (t, u) = self.pair(tenant, upstream);
        self.0.families.upstream_up.with(
            (t, u),
            || self.pair_texts(t, u),
            |gauge| gauge.set(i64::from(up)),
        );
    }

    /// The upstream is no longer configured: its health is no longer exposed.
    pub fn forget_upstream(&self, tenant: &TenantId, upstream: &UpstreamId) {
        let (t, u) = self.pair(tenant, upstream);
        let labels = self.pair_texts(t, u);
        self.0.families.upstream_up.remove(&(t, u), labels);
    }

    /// How many sessions live in the store, by tenant and revision; what is not named has none.
    pub fn sessions_are<'a>(&self, all: impl IntoIterator<Item = (&'a TenantId, Revision, usize)>) {
        // Tenants beyond the bound share a label.
        let mut sums: HashMap<(Slot, Revision), i64> = HashMap::new();
        for (tenant, revision, live) in all {
            let sum = sums
                .entry((self.tenant(Some(tenant)), revision))
                .or_default();
            *sum = sum.saturating_add(i64::try_from(live).unwrap_or(i64::MAX));
        }
        let family = &self.0.families.sessions;
        family.each(|key, gauge| gauge.set(sums.remove(key).unwrap_or(0)));
        for ((t, revision), live) in sums {
            let labels = || [self.0.tenants.text(t), text(revision.as_str())];
            family.with((t, revision), labels, |gauge| gauge.set(live));
        }
    }

    /// A session was opened, where this process alone knows all of them.
    pub fn session_opened(&self, tenant: &TenantId, revision: Revision) {
        self.sessions(tenant, revision, IntGauge::inc);
    }

    /// A session has ended, where this process alone knows all of them.
    pub fn session_ended(&self, tenant: &TenantId, revision: Revision) {
        self.sessions(tenant, revision, IntGauge::dec);
    }

    fn sessions(&self, tenant: &TenantId, revision: Revision, change: impl FnOnce(&IntGauge)) {
        let t = self.tenant(Some(tenant));
        self.0.families.sessions.with(
            (t, revision),
            || [self.0.tenants.text(t), text(revision.as_str())],
            change,
        );
    }

    /// A client stream was opened on this process; it counts until the value is dropped.
    #[must_use = "the stream counts as open only while this value lives"]
    pub fn stream_opened(&self, tenant: &TenantId, kind: StreamKind) -> OpenStream {
        let t = self.tenant(Some(tenant));
        let mut open = None;
        self.0.families.streams.with(
            (t, kind),
            || [self.0.tenants.text(t), text(kind.as_str())],
            |gauge| {
                gauge.inc();
                open = Some(gauge.clone());
            },
        );
        OpenStream(open)
    }

    /// Events were sent on a client stream.
    pub fn stream_events(&self, tenant: &TenantId, kind: StreamKind, events: u64) {
        let t = self.tenant(Some(tenant));
        self.0.families.stream_events.with(
            (t, kind),
            || [self.0.tenants.text(t), text(kind.as_str())],
            |count| count.inc_by(events),
        );
    }

    /// A client came back for a stream; `outcome` is one of the closed list of resume outcomes.
    pub fn stream_resumed(&self, tenant: &TenantId, outcome: &'static str) {
        let t = self.tenant(Some(tenant));
        self.0.families.stream_resumes.with(
            (t, outcome),
            || [self.0.tenants.text(t), text(outcome)],
            |count| count.inc(),
        );
    }

    /// A request was over a limit; `None` is a tenant that does not exist or is not known yet.
    pub fn rate_limited(&self, tenant: Option<&TenantId>, scope: Scope) {
        let t = self.tenant(tenant);
        self.0.families.rate_limited.with(
            (t, scope),
            || [self.0.tenants.text(t), text(scope.as_str())],
            |count| count.inc(),
        );
    }

    /// A credential was refused where no request's record says so.
    pub fn auth_failed(&self, tenant: Option<&TenantId>, reason: &'static str) {
        let t = self.tenant(tenant);
        self.0.families.auth_failures.with(
            (t, reason),
            || [self.0.tenants.text(t), text(reason)],
            |count| count.inc(),
        );
    }

    /// A message was refused where no request's record says so: one element of a batch.
    pub fn frame_rejected(&self, reason: &'static str) {
        self.0
            .families
            .rejected_frames
            .with(reason, || [text(reason)], |count| count.inc());
    }

    /// A tool call reached an upstream. `tool` is its original name, from the catalog only;
    /// `None` when the catalog does not know it.
    pub fn tool_called(
        &self,
        tenant: &TenantId,
        upstream: &UpstreamId,
        tool: Option<&str>,
        ok: bool,
    ) {
        let (t, u) = self.pair(tenant, upstream);
        let name = self.0.tools.slot(t, tool);
        self.0.families.tool_calls.with(
            (t, u, name, ok),
            || {
                let [tenant, upstream] = self.pair_texts(t, u);
                let outcome = text(if ok { "ok" } else { "error" });
                [tenant, upstream, self.0.tools.text(name), outcome]
            },
            |count| count.inc(),
        );
    }

    /// A configuration was read again and applied, or refused.
    pub fn config_reloaded(&self, ok: bool) {
        let outcome = if ok { "ok" } else { "error" };
        let families = &self.0.families;
        families.config_reloads.with_label_values(&[outcome]).inc();
        families.config_last_reload_success.set(i64::from(ok));
    }

    /// Whether client addresses look like those of an untrusted proxy.
    pub fn client_address_suspect(&self, suspect: bool) {
        let gauge = &self.0.families.client_address_suspect;
        gauge.set(i64::from(suspect));
    }

    /// Whether the store answers.
    pub fn store_up(&self, up: bool) {
        self.0.families.store_up.set(i64::from(up));
    }

    /// The store has committed a group of changes to its disk.
    pub fn store_committed(&self, took: Duration) {
        self.0.families.store_operation.with(
            "commit",
            || [text("commit")],
            |histogram| histogram.observe(took.as_secs_f64()),
        );
    }

    /// One request has ended: see the record layer.
    pub(crate) fn request_ended(&self, end: &RequestEnd<'_>) {
        let families = &self.0.families;
        let t = self.tenant(end.tenant);
        let s = end
            .server
            .map_or(Slot::UNKNOWN, |server| self.0.servers.slot(server.as_str()));
        families.requests.with(
            (t, s, end.method, end.revision, end.outcome),
            || {
                [
                    self.0.tenants.text(t),
                    self.0.servers.text(s),
                    method_text(end.method),
                    revision_text(end.revision),
                    text(end.outcome.as_str()),
                ]
            },
            |count| count.inc(),
        );
        families.request_duration.with(
            (t, end.method),
            || [self.0.tenants.text(t), method_text(end.method)],
            |histogram| histogram.observe(end.elapsed.as_secs_f64()),
        );
        let Some(overhead) = end.overhead else { return };
        families.overhead.with(
            end.method,
            || [method_text(end.method)],
            |histogram| histogram.observe(overhead.as_secs_f64()),
        );
    }

    fn tenant(&self, tenant: Option<&TenantId>) -> Slot {
        tenant.map_or(Slot::UNKNOWN, |tenant| self.0.tenants.slot(tenant.as_str()))
    }

    fn pair(&self, tenant: &TenantId, upstream: &UpstreamId) -> (Slot, Slot) {
        let upstream = self.0.upstreams.slot(upstream.as_str());
        (self.tenant(Some(tenant)), upstream)
    }

    fn pair_texts(&self, tenant: Slot, upstream: Slot) -> [Arc<str>; 2] {
        [self.0.tenants.text(tenant), self.0.upstreams.text(upstream)]
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        Metrics::new("1.2.3", "abc")
    }

    fn tenant(text: &str) -> TenantId {
        TenantId::new(text).unwrap()
    }

    fn upstream(text: &str) -> UpstreamId {
        UpstreamId::new(text).unwrap()
    }

    fn end(tenant: Option<&TenantId>) -> RequestEnd<'_> {
        RequestEnd {
            tenant,
            server: None,
            method: Some(Method::ToolsCall),
            revision: Some(Revision::R2026_07_28),
            outcome: Outcome::Ok,
            elapsed: Duration::from_millis(20),
            overhead: Some(Duration::from_micros(80)),
        }
    }

    fn series(text: &str, family: &str) -> usize {
        text.lines().filter(|line| line.starts_with(family)).count()
    }

    #[test]
    fn every_family_has_its_contracted_name_and_labels() {
        let metrics = metrics();
        let (t, u) = (tenant("acme"), upstream("github"));
        metrics.request_ended(&end(Some(&t)));
        metrics.upstream_request(
            (&t, &u),
            Method::ToolsCall,
            Outcome::Timeout,
            Duration::ZERO,
        );
        metrics.upstream_up(&t, &u, true);
        metrics.sessions_are([(&t, Revision::R2025_11_25, 3)]);
        let _open = metrics.stream_opened(&t, StreamKind::Get);
        metrics.stream_events(&t, StreamKind::Post, 2);
        metrics.stream_resumed(&t, "replayed");
        metrics.rate_limited(None, Scope::Address);
        metrics.auth_failed(Some(&t), "missing");
        metrics.frame_rejected("depth");
        metrics.tool_called(&t, &u, Some("search"), true);
        metrics.config_reloaded(false);
        metrics.client_address_suspect(true);
        metrics.store_up(true);
        let text = metrics.expose();
        for line in [
            r#"vestibule_requests_total{method="tools/call",outcome="ok",revision="2026-07-28",server="_unknown",tenant="acme"} 1"#,
            r#"vestibule_request_duration_seconds_bucket{method="tools/call",tenant="acme",le="0.025"} 1"#,
            r#"vestibule_overhead_seconds_bucket{method="tools/call",le="0.00005"} 0"#,
            r#"vestibule_overhead_seconds_bucket{method="tools/call",le="0.0001"} 1"#,
            r#"vestibule_upstream_requests_total{method="tools/call",outcome="timeout",tenant="acme",upstream="github"} 1"#,
            r#"vestibule_upstream_request_duration_seconds_count{tenant="acme",upstream="github"} 1"#,
            r#"vestibule_upstream_up{tenant="acme",upstream="github"} 1"#,
            r#"vestibule_sessions{revision="2025-11-25",tenant="acme"} 3"#,
            r#"vestibule_streams{kind="get",tenant="acme"} 1"#,
            r#"vestibule_stream_events_total{kind="post",tenant="acme"} 2"#,
            r#"vestibule_stream_resumes_total{outcome="replayed",tenant="acme"} 1"#,
            r#"vestibule_rate_limited_total{scope="address",tenant="_unknown"} 1"#,
            r#"vestibule_auth_failures_total{reason="missing",tenant="acme"} 1"#,
            r#"vestibule_rejected_frames_total{reason="depth"} 1"#,
            r#"vestibule_tool_calls_total{outcome="ok",tenant="acme",tool="search",upstream="github"} 1"#,
            r#"vestibule_build_info{commit="abc",version="1.2.3"} 1"#,
            r#"vestibule_config_reloads_total{outcome="error"} 1"#,
            r#"vestibule_config_reloads_total{outcome="ok"} 0"#,
            "vestibule_config_last_reload_success 0",
            r#"vestibule_series_dropped_total{family="requests_total"} 0"#,
            "vestibule_client_address_suspect 1",
            "vestibule_store_up 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_closed_stream_no_longer_counts() {
        let metrics = metrics();
        let open = metrics.stream_opened(&tenant("a"), StreamKind::Listen);
        drop(open);
        assert!(
            metrics
                .expose()
                .contains(r#"vestibule_streams{kind="listen",tenant="a"} 0"#)
        );
    }

    #[test]
    fn a_forgotten_upstream_is_no_longer_exposed() {
        let metrics = metrics();
        let (t, u) = (tenant("a"), upstream("gone"));
        metrics.upstream_up(&t, &u, false);
        metrics.forget_upstream(&t, &u);
        assert!(!metrics.expose().contains("vestibule_upstream_up{"));
        metrics.upstream_up(&t, &u, true);
        assert_eq!(series(&metrics.expose(), "vestibule_upstream_up{"), 1);
    }

    /// What is not named has no sessions, and tenants that share a label are added up.
    #[test]
    fn sessions_are_what_was_counted_last() {
        let metrics = metrics();
        let (a, b) = (tenant("a"), tenant("b"));
        let (old, new) = (Revision::R2025_06_18, Revision::R2025_11_25);
        metrics.sessions_are([(&a, old, 2), (&a, new, 1), (&b, new, 7)]);
        metrics.sessions_are([(&a, new, 4)]);
        let of = |revision, tenant: &str, live: i64| {
            let line = format!(r#"sessions{{revision="{revision}",tenant="{tenant}"}} {live}"#);
            assert!(metrics.expose().contains(&line), "{line}");
        };
        of("2025-11-25", "a", 4);
        of("2025-06-18", "a", 0);
        of("2025-11-25", "b", 0);
        let many: Vec<_> = (0..600)
            .map(|number| tenant(&format!("t{number}")))
            .collect();
        metrics.sessions_are(many.iter().map(|tenant| (tenant, new, 1)));
        of("2025-11-25", "_other", 102);
    }

    /// T70: ten thousand tenants become 500 names and one `_other`; no family grows past its
    /// bound, all families together stay under theirs, and what was dropped is counted.
    #[test]
    fn t70_series_are_bounded_however_many_values_there_are() {
        let metrics = metrics();
        for number in 0..10_000 {
            let t = tenant(&format!("t{number}"));
            metrics.request_ended(&end(Some(&t)));
            for tool in 0..3 {
                let tool = format!("tool{tool}-{number}");
                metrics.tool_called(&t, &upstream("u"), Some(&tool), true);
            }
        }
        let text = metrics.expose();
        assert_eq!(series(&text, "vestibule_requests_total{"), 501);
        let durations = series(&text, "vestibule_request_duration_seconds");
        assert!((4_900..=5_000).contains(&durations), "{durations}");
        let all = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(all <= 10_040, "{all}"); // the unlabelled families come on top
        assert!(!text.contains(r#"series_dropped_total{family="request_duration_seconds"} 0"#));
        assert!(text.contains(r#"tenant="_other",tool="other""#));
    }
}
