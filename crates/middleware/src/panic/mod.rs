//! A panic behind this layer becomes a 500 that says nothing, and one log line that says all. The
//! record knows the outcome; other requests never notice.
//!
//! Panics of a response body while it streams end that one connection: nothing can be answered any
//! more by then.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use futures_util::FutureExt;
use futures_util::future::{CatchUnwind, Either, Ready, ready};
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use vestibule_terms::{Record, Reject};

use crate::{facts, reject};

/// See the [module](crate::panic).
#[derive(Debug, Clone, Copy, Default)]
pub struct PanicLayer;

/// See the [module](crate::panic).
#[derive(Debug, Clone)]
pub struct PanicService<S> {
    inner: S,
}

pin_project! {
    /// The answer of the inner service, or a 500.
    #[derive(Debug)]
    pub struct PanicFuture<F> {
        #[pin]
        inner: Either<CatchUnwind<AssertUnwindSafe<F>>, Ready<Caught>>,
        record: Record,
    }
}

type Caught = Result<Result<Response<Body>, Infallible>, Box<dyn Any + Send>>;

impl<S> Layer<S> for PanicLayer {
    type Service = PanicService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PanicService { inner }
    }
}

impl<S, B> Service<Request<B>> for PanicService<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = PanicFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let record = facts::record(request.extensions());
        record.enter("panic");
        // The services behind hold handles and nothing of a request, so nothing half-changed is seen again.
        let called = catch_unwind(AssertUnwindSafe(|| self.inner.call(request)));
        let inner = match called {
            Ok(future) => Either::Left(AssertUnwindSafe(future).catch_unwind()),
            Err(panic) => Either::Right(ready(Err(panic))),
        };
        PanicFuture { inner, record }
    }
}

impl<F> Future for PanicFuture<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let caught: Poll<Caught> = this.inner.poll(cx);
        caught.map(|caught| match caught {
            Ok(answer) => answer,
            Err(panic) => {
                let message = message(panic.as_ref());
                tracing::error!(panic.message = message, "a request handler panicked");
                Ok(reject::answer(this.record, Reject::Internal, None))
            }
        })
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(not a text)")
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;
    use crate::testing::request;

    async fn panics(at_once: bool) -> (Response<Body>, Record) {
        let record = Record::default();
        let mut request = request("POST", "/mcp", &[]);
        request.extensions_mut().insert(record.clone());
        let inner = tower::service_fn(move |_request| {
            assert!(!at_once, "at once");
            async { panic!("later") }
        });
        let service = PanicLayer.layer(inner);
        (service.oneshot(request).await.unwrap(), record)
    }

    #[tokio::test]
    async fn a_panic_is_a_500_that_says_nothing() {
        for at_once in [true, false] {
            let (response, record) = panics(at_once).await;
            assert_eq!(response.status(), 500);
            assert_eq!(record.reason(), Some(&"internal"));
            assert_eq!(record.code(), Some(&-32603));
        }
    }
}
