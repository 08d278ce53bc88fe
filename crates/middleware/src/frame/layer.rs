//! The layer: what the scanner tolerates.

use tower::Layer;
use vestibule_frame::Limits;

use super::FrameService;

/// See the [module](crate::frame).
#[derive(Debug, Clone, Copy)]
pub struct FrameLayer {
    limits: Limits,
}

impl FrameLayer {
    /// Messages are scanned within `limits`.
    pub fn new(limits: Limits) -> Self {
        Self { limits }
    }
}

impl<S> Layer<S> for FrameLayer {
    type Service = FrameService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FrameService::new(inner, self.limits)
    }
}
