//! A layer that admits or refuses by the head, written once: a [`Gate`] is the rule, [`GateLayer`]
//! and [`GateService`] are the plumbing around it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::body::Body;
use futures_util::future::Either;
use http::{Request, Response};
use tower::{Layer, Service};
use vestibule_frame::body::FrameBody;
use vestibule_terms::Reject;

use crate::{Stage, facts, reject};

/// An answer that is either the inner service's or already there.
pub type Answer<F> = Either<F, Ready<Result<Response<Body>, Infallible>>>;

/// An answer that is already there.
pub(crate) fn now<F>(response: Response<Body>) -> Answer<F> {
    Either::Right(ready(Ok(response)))
}

/// A rule about the head of a request.
pub trait Gate: Clone {
    /// Name of the stage, as the trace of stages shows it.
    const STAGE: &'static str;

    /// Admits the request, perhaps with a fact more, or refuses it.
    ///
    /// # Errors
    /// The refusal.
    fn admit(&self, request: &mut Request<FrameBody>) -> Result<(), Reject>;
}

/// Lays a [`Gate`] before a service.
#[derive(Debug, Clone)]
pub struct GateLayer<G>(pub(crate) G);

/// A service behind a [`Gate`].
#[derive(Debug, Clone)]
pub struct GateService<G, S> {
    gate: G,
    inner: S,
}

// === impl GateLayer ===

impl<G: Gate, S> Layer<S> for GateLayer<G> {
    type Service = GateService<G, S>;

    fn layer(&self, inner: S) -> Self::Service {
        GateService {
            gate: self.0.clone(),
            inner,
        }
    }
}

// === impl GateService ===

impl<G: Gate, S: Stage> Service<Request<FrameBody>> for GateService<G, S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<FrameBody>) -> Self::Future {
        let record = facts::record(request.extensions());
        record.enter(G::STAGE);
        match self.gate.admit(&mut request) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(refusal) => now(reject::answer(&record, refusal, None)),
        }
    }
}
