//! The service: asks, then calls or refuses.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use futures_util::future::Either;
use http::{Method, Request, Response};
use pin_project_lite::pin_project;
use tower::Service;
use vestibule_frame::body::FrameBody;
use vestibule_frame::{Frame, Id, Limits};
use vestibule_metrics::Metrics;
use vestibule_terms::{InFlight, Principal, Record, Reject};

use super::held::Held;
use super::{Over, Permit, Quotas, Use};
use crate::plans::Budgets;
use crate::{Answering, Stage, facts, reject};

/// Most of a body that a refusal reads.
const MAX_PREFIX: usize = 64 * 1024;
/// Longest time a refusal waits for it.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// See the [module](crate::quota).
#[derive(Debug, Clone)]
pub struct QuotaService<Q, S> {
    inner: S,
    quotas: Q,
    metrics: Metrics,
}

impl<Q, S> QuotaService<Q, S> {
    pub(super) fn new(inner: S, quotas: Q, metrics: Metrics) -> Self {
        Self {
            inner,
            quotas,
            metrics,
        }
    }
}

/// The answer from behind, holding its permit, or a refusal.
pub type QuotaFuture<F> = Either<Permitted<F>, Answering>;

pin_project! {
    /// The answer to a request that was let in at once.
    pub struct Permitted<F> {
        #[pin]
        answer: F,
        permit: Option<Permit>,
    }
}

impl<F> fmt::Debug for Permitted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permitted").finish_non_exhaustive()
    }
}

impl<F> Future for Permitted<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.answer.poll(cx))?;
        Poll::Ready(Ok(match this.permit.take() {
            Some(permit) => response.map(|body| Held::body(body, permit)),
            None => response,
        }))
    }
}

impl<Q, S> Service<Request<FrameBody>> for QuotaService<Q, S>
where
    Q: Quotas,
    S: Stage + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = QuotaFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<FrameBody>) -> Self::Future {
        let record = facts::record(request.extensions());
        record.enter("quota");
        let budgets = request.extensions().get::<Arc<Budgets>>();
        let principal = request.extensions().get::<Arc<Principal>>();
        let (Some(budgets), Some(principal)) = (budgets, principal) else {
            let response = reject::answer(&record, Reject::Internal, None);
            return Either::Right(Box::pin(std::future::ready(Ok(response))));
        };
        let wanted = wanted(request.method());
        match self.quotas.admit_now(budgets, principal, wanted) {
            Some(Ok(permit)) => {
                note(&permit, &mut request);
                Either::Left(Permitted {
                    answer: self.inner.call(request),
                    permit: Some(permit),
                })
            }
            Some(Err(over)) => {
                let metrics = self.metrics.clone();
                Either::Right(Box::pin(async move {
                    Ok(refuse(&record, &metrics, request, over).await)
                }))
            }
            None => {
                let admitted = self.quotas.admit(budgets, principal, wanted);
                Either::Right(self.wait(admitted, record, request))
            }
        }
    }
}

impl<Q, S> QuotaService<Q, S>
where
    S: Stage + Clone + Send + 'static,
    S::Future: Send,
{
    /// The answer once the verdict is there.
    fn wait(
        &mut self,
        admitted: impl Future<Output = Result<Permit, Over>> + Send + 'static,
        record: Record,
        request: Request<FrameBody>,
    ) -> Answering {
        let metrics = self.metrics.clone();
        // The service that is ready is the one that is called; its clone waits for the next request.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let mut request = request;
            match admitted.await {
                Ok(permit) => {
                    note(&permit, &mut request);
                    let response = inner.call(request).await?;
                    Ok(response.map(|body| Held::body(body, permit)))
                }
                Err(over) => Ok(refuse(&record, &metrics, request, over).await),
            }
        })
    }
}

/// Whoever goes on with the request after its answer is in flight with it (HSE-03).
fn note(permit: &Permit, request: &mut Request<FrameBody>) {
    let in_flight = InFlight::new(Arc::clone(permit));
    request.extensions_mut().insert(in_flight);
}

fn wanted(method: &Method) -> Use {
    match *method {
        Method::POST => Use::Call,
        Method::GET => Use::Stream,
        _ => Use::Other,
    }
}

async fn refuse(
    record: &Record,
    metrics: &Metrics,
    request: Request<FrameBody>,
    over: Over,
) -> Response<Body> {
    metrics.rate_limited(record.tenant(), over.scope);
    let id = match wanted(request.method()) {
        Use::Call => read_id(request.into_body()).await,
        Use::Stream | Use::Other => None,
    };
    reject::answer(record, over.into(), id.as_ref().map(Id::as_bytes))
}

/// The id of the message in `body`, if it is small, comes soon and is a message.
async fn read_id(body: FrameBody) -> Option<Id> {
    let prefix = tokio::time::timeout(MAX_WAIT, body.read_prefix(MAX_PREFIX)).await;
    match Frame::parse(prefix.ok()?, &Limits::default()) {
        Ok(frame) => frame.id(),
        Err(error) => error.id,
    }
}
