//! The service: answers OPTIONS, and dresses every other answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use futures_util::future::Either;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower::Service;
use vestibule_frame::body::FrameBody;

use super::rule;
use crate::facts::AllowedOrigin;
use crate::gate::{Answer, now};
use crate::{Stage, facts};

/// See the [module](crate::preflight).
#[derive(Debug, Clone)]
pub struct PreflightService<S> {
    inner: S,
}

impl<S> PreflightService<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner }
    }
}

pin_project! {
    /// The answer from behind, with its CORS headers.
    #[derive(Debug)]
    pub struct PreflightFuture<F> {
        #[pin]
        inner: F,
        origin: Option<HeaderValue>,
    }
}

impl<F> Future for PreflightFuture<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.inner.poll(cx));
        let origin = this.origin.as_ref();
        Poll::Ready(answer.map(|mut response| {
            rule::expose(response.headers_mut(), origin);
            response
        }))
    }
}

impl<S: Stage> Service<Request<FrameBody>> for PreflightService<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer<PreflightFuture<S::Future>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<FrameBody>) -> Self::Future {
        facts::record(request.extensions()).enter("preflight");
        let origin = request.extensions().get::<AllowedOrigin>();
        let origin = origin.map(|AllowedOrigin(origin)| origin.clone());
        if request.method() == Method::OPTIONS {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            *response.headers_mut() = rule::preflight(request.headers(), origin.as_ref());
            return now(response);
        }
        Either::Left(PreflightFuture {
            inner: self.inner.call(request),
            origin,
        })
    }
}
