//! The service: turns the listener's body into a [`FrameBody`] and the headers into a view.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use futures_util::future::Either;
use http::request::Parts;
use http::{Request, Response};
use tower::Service;
use vestibule_frame::body::FrameBody;
use vestibule_frame::head::Head;
use vestibule_terms::Reject;

use super::rule;
use crate::gate::{Answer, now};
use crate::{Stage, facts, reject};

/// See the [module](crate::head).
#[derive(Debug, Clone)]
pub struct HeadService<S> {
    inner: S,
    max_body: usize,
}

impl<S> HeadService<S> {
    pub(super) fn new(inner: S, max_body: usize) -> Self {
        Self { inner, max_body }
    }
}

fn admit(head: &mut Parts) -> Result<(), Reject> {
    rule::sizes(&head.headers)?;
    let view = Head::read(&head.headers);
    rule::single(&head.headers, &view)?;
    let named_by_connection = head.headers.contains_key(http::header::CONNECTION);
    rule::strip(&mut head.headers);
    // `Connection` may have named a control header away; the view then follows.
    let view = if named_by_connection {
        Head::read(&head.headers)
    } else {
        view
    };
    head.extensions.insert(Arc::new(view));
    Ok(())
}

impl<S: Stage> Service<Request<Body>> for HeadService<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        let record = facts::record(&head.extensions);
        record.enter("head");
        match admit(&mut head) {
            Ok(()) => {
                let body = FrameBody::new(body, self.max_body);
                Either::Left(self.inner.call(Request::from_parts(head, body)))
            }
            Err(refusal) => now(reject::answer(&record, refusal, None)),
        }
    }
}
