//! The layer.

use tower::Layer;

use super::PreflightService;

/// See the [module](crate::preflight).
#[derive(Debug, Clone, Copy, Default)]
pub struct PreflightLayer;

impl<S> Layer<S> for PreflightLayer {
    type Service = PreflightService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PreflightService::new(inner)
    }
}
