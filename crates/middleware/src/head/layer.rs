//! The layer: how large a body the later stages may read.

use tower::Layer;

use super::HeadService;

/// See the [module](crate::head).
#[derive(Debug, Clone, Copy)]
pub struct HeadLayer {
    max_body: usize,
}

impl HeadLayer {
    /// Bodies are capped at `max_body` bytes.
    pub fn new(max_body: usize) -> Self {
        Self { max_body }
    }
}

impl<S> Layer<S> for HeadLayer {
    type Service = HeadService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        HeadService::new(inner, self.max_body)
    }
}
