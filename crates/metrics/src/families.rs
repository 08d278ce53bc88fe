//! Every metric family, declared once: name, help, labels. The names are a contract with
//! dashboards and alerts.

use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use vestibule_terms::reject::Scope;
use vestibule_terms::{Method, Outcome, Revision};

use crate::buckets;
use crate::family::{Budget, Family, Series};
use crate::labels::Slot;
use crate::registry::StreamKind;

type Counters<K> = Family<K, IntCounterVec>;
type Gauges<K> = Family<K, IntGaugeVec>;
type Histograms<K> = Family<K, HistogramVec>;

/// Tenant, server, method, revision, outcome of one request.
pub(crate) type RequestKey = (Slot, Slot, Option<Method>, Option<Revision>, Outcome);

/// All families of one registry.
#[derive(Debug)]
pub(crate) struct Families {
    pub(crate) requests: Counters<RequestKey>,
    pub(crate) request_duration: Histograms<(Slot, Option<Method>)>,
    pub(crate) overhead: Histograms<Option<Method>>,
    pub(crate) upstream_requests: Counters<(Slot, Slot, Method, Outcome)>,
    pub(crate) upstream_duration: Histograms<(Slot, Slot)>,
    pub(crate) upstream_up: Gauges<(Slot, Slot)>,
    pub(crate) sessions: Gauges<(Slot, Revision)>,
    pub(crate) streams: Gauges<(Slot, StreamKind)>,
    pub(crate) stream_events: Counters<(Slot, StreamKind)>,
    pub(crate) stream_resumes: Counters<(Slot, &'static str)>,
    pub(crate) rate_limited: Counters<(Slot, Scope)>,
    pub(crate) auth_failures: Counters<(Slot, &'static str)>,
    pub(crate) rejected_frames: Counters<&'static str>,
    pub(crate) tool_calls: Counters<(Slot, Slot, Slot, bool)>,
    pub(crate) config_reloads: IntCounterVec,
    pub(crate) config_last_reload_success: IntGauge,
    pub(crate) client_address_suspect: IntGauge,
    pub(crate) store_up: IntGauge,
    pub(crate) store_operation: Histograms<&'static str>,
}

impl Families {
    /// Declares and registers every family in `registry`, and says which build this is.
    #[expect(clippy::too_many_lines, reason = "a flat table, one family an entry")]
    pub(crate) fn new(registry: &Registry, version: &str, commit: &str) -> Self {
        let declare = Declare::new(registry);
        declare.build_info(version, commit);
        Self {
            requests: declare.counters(
                "requests_total",
                "Requests by how they ended.",
                &["tenant", "server", "method", "revision", "outcome"],
            ),
            request_duration: declare.histograms(
                "request_duration_seconds",
                "Time from a request's head to the end of its answer.",
                &["tenant", "method"],
                &buckets::DURATION,
            ),
            overhead: declare.histograms(
                "overhead_seconds",
                "Time a request spent in the gateway itself.",
                &["method"],
                &buckets::OVERHEAD,
            ),
            upstream_requests: declare.counters(
                "upstream_requests_total",
                "Requests to upstreams by how they ended.",
                &["tenant", "upstream", "method", "outcome"],
            ),
            upstream_duration: declare.histograms(
                "upstream_request_duration_seconds",
                "Time from a request to an upstream to the end of its answer.",
                &["tenant", "upstream"],
                &buckets::DURATION,
            ),
            upstream_up: declare.gauges(
                "upstream_up",
                "Whether this process can reach the upstream.",
                &["tenant", "upstream"],
            ),
            sessions: declare.gauges(
                "sessions",
                "Live sessions in the store.",
                &["tenant", "revision"],
            ),
            streams: declare.gauges(
                "streams",
                "Client streams open on this process.",
                &["tenant", "kind"],
            ),
            stream_events: declare.counters(
                "stream_events_total",
                "Events sent on client streams.",
                &["tenant", "kind"],
            ),
            stream_resumes: declare.counters(
                "stream_resumes_total",
                "Resumed streams by outcome.",
                &["tenant", "outcome"],
            ),
            rate_limited: declare.counters(
                "rate_limited_total",
                "Requests over a limit.",
                &["tenant", "scope"],
            ),
            auth_failures: declare.counters(
                "auth_failures_total",
                "Requests without a valid credential.",
                &["tenant", "reason"],
            ),
            rejected_frames: declare.counters(
                "rejected_frames_total",
                "Requests refused before they were understood.",
                &["reason"],
            ),
            tool_calls: declare.counters(
                "tool_calls_total",
                "Tool calls that reached an upstream.",
                &["tenant", "upstream", "tool", "outcome"],
            ),
            config_reloads: declare.reloads(),
            config_last_reload_success: declare.gauge(
                "config_last_reload_success",
                "Whether the newest configuration is the one in force.",
            ),
            client_address_suspect: declare.gauge(
                "client_address_suspect",
                "Whether nearly all requests come from one private address while no proxy is trusted.",
            ),
            store_up: declare.gauge("store_up", "Whether the store answers."),
            store_operation: declare.histograms(
                "store_operation_seconds",
                "Time of operations of the store; commit: one group of changes on disk.",
                &["operation"],
                &buckets::OVERHEAD,
            ),
        }
    }
}

/// Declares families in one registry, all under one budget of series.
struct Declare<'a> {
    registry: &'a Registry,
    budget: Arc<Budget>,
    dropped: IntCounterVec,
}

/// Every declaration is a constant of this file, so none can fail: a test builds them all.
const CONSTANT: &str = "names, labels and buckets are constants that are valid and differ";

impl<'a> Declare<'a> {
    fn new(registry: &'a Registry) -> Self {
        let opts = Opts::new(
            "series_dropped_total",
            "Observations that were dropped because a family is full.",
        );
        let dropped = IntCounterVec::new(opts, &["family"]).expect(CONSTANT);
        let declare = Self {
            registry,
            budget: Arc::default(),
            dropped: dropped.clone(),
        };
        declare.register(dropped);
        declare
    }

    fn register(&self, collector: impl Collector + 'static) {
        self.registry.register(Box::new(collector)).expect(CONSTANT);
    }

    fn family<K: Eq + std::hash::Hash, V>(&self, name: &str, weight: usize, vec: V) -> Family<K, V>
    where
        V: Series + Collector + Clone + 'static,
    {
        self.register(vec.clone());
        let dropped = self.dropped.with_label_values(&[name]);
        Family::new(vec, weight, Arc::clone(&self.budget), dropped)
    }

    fn counters<K: Eq + std::hash::Hash>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Counters<K> {
        let vec = IntCounterVec::new(Opts::new(name, help), labels).expect(CONSTANT);
        self.family(name, 1, vec)
    }

    fn gauges<K: Eq + std::hash::Hash>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Gauges<K> {
        let vec = IntGaugeVec::new(Opts::new(name, help), labels).expect(CONSTANT);
        self.family(name, 1, vec)
    }

    fn histograms<K: Eq + std::hash::Hash>(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Histograms<K> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let vec = HistogramVec::new(opts, labels).expect(CONSTANT);
        // every bucket, the infinite one, the sum and the count
        self.family(name, buckets.len() + 3, vec)
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        let gauge = IntGauge::new(name, help).expect(CONSTANT);
        self.register(gauge.clone());
        gauge
    }

    fn reloads(&self) -> IntCounterVec {
        let opts = Opts::new("config_reloads_total", "Configuration reloads by outcome.");
        let reloads = IntCounterVec::new(opts, &["outcome"]).expect(CONSTANT);
        for outcome in ["ok", "error"] {
            reloads.with_label_values(&[outcome]).inc_by(0);
        }
        self.register(reloads.clone());
        reloads
    }

    fn build_info(&self, version: &str, commit: &str) {
        let opts = Opts::new("build_info", "Which build this is; the value is always 1.");
        let info = IntGaugeVec::new(opts, &["version", "commit"]).expect(CONSTANT);
        info.with_label_values(&[version, commit]).set(1);
        self.register(info);
    }
}
