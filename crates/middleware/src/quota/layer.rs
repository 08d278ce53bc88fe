//! The layer: who counts.

use tower::Layer;
use vestibule_metrics::Metrics;

use super::{QuotaService, Quotas};

/// See the [module](crate::quota).
#[derive(Debug, Clone)]
pub struct QuotaLayer<Q> {
    quotas: Q,
    metrics: Metrics,
}

impl<Q: Quotas> QuotaLayer<Q> {
    /// Counts with `quotas`.
    pub fn new(quotas: Q, metrics: Metrics) -> Self {
        Self { quotas, metrics }
    }
}

impl<Q: Quotas, S> Layer<S> for QuotaLayer<Q> {
    type Service = QuotaService<Q, S>;

    fn layer(&self, inner: S) -> Self::Service {
        QuotaService::new(inner, self.quotas.clone(), self.metrics.clone())
    }
}
