//! The layer's configuration.

use tower::Layer;

use crate::record::service::RecordService;
use crate::registry::Metrics;

/// Wraps a service so that every request of it is recorded.
#[derive(Debug, Clone)]
pub struct RecordLayer {
    metrics: Metrics,
}

impl RecordLayer {
    /// Observes into `metrics`.
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics }
    }
}

impl<S> Layer<S> for RecordLayer {
    type Service = RecordService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RecordService::new(inner, self.metrics.clone())
    }
}
