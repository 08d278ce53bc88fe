//! The service: body in, payload fact out.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response};
use tokio::time::{Instant, timeout_at};
use tower::Service;
use vestibule_frame::body::{BodyError, FrameBody};
use vestibule_frame::{Limits, Payload};
use vestibule_terms::{Deadline, Record, Reject};

use super::{broken, refuse};
use crate::{Stage, facts, reject};

/// Longest wait for a body where no deadline was set.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a body may come as slowly as it likes, and how many bytes must have come for every second
/// after that (T24).
const SLOW_START: Duration = Duration::from_secs(10);
const SLOWEST: usize = 1024;

/// See the [module](crate::frame).
#[derive(Debug, Clone)]
pub struct FrameService<S> {
    inner: S,
    limits: Limits,
}

impl<S> FrameService<S> {
    pub(super) fn new(inner: S, limits: Limits) -> Self {
        Self { inner, limits }
    }
}

impl<S> Service<Request<FrameBody>> for FrameService<S>
where
    S: Stage<Future: Send> + Clone + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<FrameBody>) -> Self::Future {
        let record = facts::record(request.extensions());
        record.enter("frame");
        if request.method() != Method::POST {
            return Box::pin(self.inner.call(request));
        }
        // the ready service is the one that is called; its clone waits for the next request
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let limits = self.limits;
        Box::pin(async move {
            match scan(request, &limits).await {
                Ok(request) => inner.call(request).await,
                Err(refused) => Ok(refused.answer(&record)),
            }
        })
    }
}

struct Refused(Reject, Option<Vec<u8>>);

impl Refused {
    fn answer(self, record: &Record) -> Response<Body> {
        reject::answer(record, self.0, self.1.as_deref())
    }
}

/// Reads and scans the body; the request goes on without one.
async fn scan(request: Request<FrameBody>, limits: &Limits) -> Result<Request<FrameBody>, Refused> {
    let (mut head, body) = request.into_parts();
    let patience = head
        .extensions
        .get::<Deadline>()
        .map_or(PATIENCE, |deadline| deadline.idle);
    let bytes = paced(body, patience)
        .await
        .ok_or(Refused(Reject::BodyUnreadable, None))?
        .map_err(|error| Refused(broken(&error), None))?;
    let payload = Payload::parse(bytes, limits).map_err(|error| {
        let (refusal, id) = refuse(&error);
        Refused(refusal, id)
    })?;
    head.extensions.insert(payload);
    Ok(Request::from_parts(head, FrameBody::new(Body::empty(), 0)))
}

/// Reads a body that comes within `patience` and, after a while, at a rate; none when it does not (T24).
async fn paced(body: FrameBody, patience: Duration) -> Option<Result<Bytes, BodyError>> {
    let (received, start) = (AtomicUsize::new(0), Instant::now());
    let mut reading = pin!(body.read_noting(&received));
    let mut allowed = SLOW_START.min(patience);
    loop {
        if let Ok(read) = timeout_at(start + allowed, reading.as_mut()).await {
            return Some(read);
        }
        let seconds = usize::try_from((allowed.saturating_sub(SLOW_START)).as_secs());
        let expected = seconds.unwrap_or(usize::MAX).saturating_mul(SLOWEST);
        if allowed >= patience || received.load(Ordering::Relaxed) < expected {
            return None;
        }
        allowed = (allowed + Duration::from_secs(1)).min(patience);
    }
}
