//! What is counted about upstreams, in one place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use dashmap::DashMap;
use tokio::time::Instant;
use vestibule_exchange::{Final, Outbound};
use vestibule_metrics::Metrics;
use vestibule_terms::{Method, Outcome, Record, TenantId, UpstreamId};

/// What is known of each upstream's state, whichever link learnt it: 0 unknown, 1 down, 2 up. The
/// gauge is written at changes only.
#[derive(Clone, Default)]
pub(crate) struct States(Arc<DashMap<(TenantId, UpstreamId), Arc<AtomicU8>>>);

/// Counts what happens at one upstream.
pub(crate) struct Observe {
    metrics: Metrics,
    tenant: TenantId,
    upstream: UpstreamId,
    state: Arc<AtomicU8>,
    violations: AtomicU64,
}

/// Measures one call; counts it as cancelled when it is dropped before its end.
pub(crate) struct Measured {
    observe: Arc<crate::link::Link>,
    record: Record,
    method: Method,
    since: Instant,
    outcome: Outcome,
}

// === impl Observe ===

impl Observe {
    pub(crate) fn new(
        metrics: Metrics,
        states: &States,
        tenant: TenantId,
        upstream: UpstreamId,
    ) -> Self {
        let state = states.0.entry((tenant.clone(), upstream.clone()));
        let state = Arc::clone(&state.or_default());
        Self {
            metrics,
            tenant,
            upstream,
            state,
            violations: AtomicU64::new(0),
        }
    }

    /// The upstream answered, or could not be reached.
    pub(crate) fn reached(&self, up: bool) {
        let now = if up { 2 } else { 1 };
        let before = self.state.swap(now, Ordering::Relaxed);
        if before == now {
            return;
        }
        self.metrics.upstream_up(&self.tenant, &self.upstream, up);
        match (before, up) {
            (_, false) => tracing::warn!(upstream.id = %self.upstream, "upstream is down"),
            (1, true) => tracing::info!(upstream.id = %self.upstream, "upstream is up again"),
            (_, true) => {}
        }
    }

    /// The upstream said something that it must not say. Logged ever more seldom: it may do so in
    /// every event.
    pub(crate) fn violated(&self, what: &'static str) {
        let times = self.violations.fetch_add(1, Ordering::Relaxed) + 1;
        if times.is_power_of_two() {
            tracing::warn!(upstream.id = %self.upstream, times, "an upstream broke the protocol: {what}");
        }
    }

    /// The upstream exists no more.
    pub(crate) fn forget(&self, states: &States) {
        states
            .0
            .remove(&(self.tenant.clone(), self.upstream.clone()));
        self.metrics.forget_upstream(&self.tenant, &self.upstream);
    }

    fn ended(&self, method: Method, outcome: Outcome, since: Instant) {
        let pair = (&self.tenant, &self.upstream);
        self.metrics
            .upstream_request(pair, method, outcome, since.elapsed());
    }
}

// === impl Measured ===

impl Measured {
    /// The call begins.
    pub(crate) fn begin(link: &Arc<crate::link::Link>, outbound: &Outbound) -> Self {
        outbound.record.enter("upstream");
        outbound.record.set_upstream(outbound.upstream.clone());
        Self {
            observe: std::sync::Arc::clone(link),
            record: outbound.record.clone(),
            method: outbound.method,
            since: Instant::now(),
            outcome: Outcome::Cancelled,
        }
    }

    /// The call ends so.
    pub(crate) fn end(mut self, end: &Final) {
        self.outcome = outcome(end, self.method);
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.record.add_upstream_time(self.since.elapsed());
        self.observe
            .observe()
            .ended(self.method, self.outcome, self.since);
    }
}

fn outcome(end: &Final, method: Method) -> Outcome {
    match end {
        Final::Message(draft) => {
            let frame = draft.frame();
            if frame.result().is_none() {
                return Outcome::RpcError;
            }
            if method == Method::ToolsCall && frame.result_is_error() {
                Outcome::ToolError
            } else {
                Outcome::Ok
            }
        }
        Final::Error(error) => error.outcome(),
        Final::View(_) | Final::List(_) | Final::Empty | Final::Wanted(_) => Outcome::Ok,
        Final::Cancelled => Outcome::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links of both eras lead to one upstream: the gauge says what the last of them learnt.
    #[test]
    fn the_gauge_is_that_of_the_upstream_not_of_one_link() {
        let (metrics, states) = (Metrics::new("0", "0"), States::default());
        let link = || {
            let (tenant, upstream) = (TenantId::new("t").unwrap(), UpstreamId::new("up").unwrap());
            Observe::new(metrics.clone(), &states, tenant, upstream)
        };
        let (legacy, modern) = (link(), link());
        let gauge = |value: u8| {
            let line = format!(r#"vestibule_upstream_up{{tenant="t",upstream="up"}} {value}"#);
            assert!(metrics.expose().contains(&line), "{line}");
        };
        legacy.reached(true);
        modern.reached(true);
        modern.reached(false);
        gauge(0);
        legacy.reached(true);
        gauge(1);
        legacy.forget(&states);
        assert!(!metrics.expose().contains("vestibule_upstream_up{"));
        link().reached(true);
        gauge(1);
    }
}
