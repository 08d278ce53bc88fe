//! The seam after admission: everything behind it has one type.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use http::{Request, Response};
use tower::Service;
use vestibule_frame::body::FrameBody;

use crate::Stage;

/// An answer that is being made.
pub type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// What stands behind the layers of this room. It is always ready, and a clone is one more handle on
/// the same: layers that have to wait before they call it take one along for each request.
#[derive(Clone)]
pub struct Admitted(Arc<dyn Fn(Request<FrameBody>) -> Answering + Send + Sync>);

impl Admitted {
    /// A service that is always ready.
    pub fn new<S>(service: S) -> Self
    where
        S: Stage<Future: Send + 'static> + Clone + Send + Sync + 'static,
    {
        Self(Arc::new(move |request| {
            Box::pin(service.clone().call(request))
        }))
    }

    /// The same for one whose futures are on the heap already.
    pub fn of_boxed<S>(service: S) -> Self
    where
        S: Stage<Future = Answering> + Clone + Send + Sync + 'static,
    {
        Self(Arc::new(move |request| service.clone().call(request)))
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admitted")
    }
}

impl Service<Request<FrameBody>> for Admitted {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<FrameBody>) -> Answering {
        (self.0)(request)
    }
}
