//! The service: writes the fact, then lets the governor decide.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use futures_util::future::Either;
use governor::middleware::NoOpMiddleware;
use http::header::FORWARDED;
use http::{HeaderName, Request, Response};
use pin_project_lite::pin_project;
use tower::Service;
use tower_governor::governor::Governor;
use vestibule_frame::body::FrameBody;
use vestibule_metrics::Metrics;
use vestibule_terms::Record;
use vestibule_terms::reject::Scope;

use super::guard::Refused;
use super::{AddressGuard, ClientKey};
use crate::facts::ClientAddress;
use crate::{Stage, facts, proxies, reject};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// See the [module](crate::address).
#[derive(Clone)]
pub struct AddressService<S> {
    inner: Inner<S>,
    guard: AddressGuard,
}

#[derive(Clone)]
enum Inner<S> {
    Limited(Governor<ClientKey, NoOpMiddleware, S, Body>),
    Unlimited(S),
}

impl<S> fmt::Debug for AddressService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressService")
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

impl<S> AddressService<S> {
    pub(super) fn new(inner: S, guard: AddressGuard) -> Self {
        let inner = match guard.governor(inner) {
            Ok(governor) => Inner::Limited(governor),
            Err(inner) => Inner::Unlimited(inner),
        };
        Self { inner, guard }
    }
}

type Governed<F> = Either<tower_governor::ResponseFuture<F, Body>, F>;

pin_project! {
    /// The answer from behind, or the guard's, noted in the record.
    pub struct AddressFuture<F> {
        #[pin]
        inner: Governed<F>,
        record: Record,
        metrics: Metrics,
    }
}

impl<F> fmt::Debug for AddressFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressFuture").finish_non_exhaustive()
    }
}

impl<F> Future for AddressFuture<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut answer = ready!(this.inner.poll(cx));
        if let Ok(response) = &mut answer
            && let Some(Refused(refusal)) = response.extensions_mut().remove::<Refused>()
        {
            reject::note(this.record, &refusal);
            let tenant = this.record.tenant();
            this.metrics.rate_limited(tenant, Scope::Address);
        }
        Poll::Ready(answer)
    }
}

impl<S: Stage> Service<Request<FrameBody>> for AddressService<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = AddressFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match &mut self.inner {
            Inner::Limited(service) => service.poll_ready(cx),
            Inner::Unlimited(service) => service.poll_ready(cx),
        }
    }

    fn call(&mut self, mut request: Request<FrameBody>) -> Self::Future {
        let record = facts::record(request.extensions());
        record.enter("address");
        let peer = facts::peer(request.extensions());
        let address = proxies::client_address(peer, request.headers(), &self.guard.proxies);
        request.extensions_mut().insert(ClientAddress(address));
        self.guard.suspicion.observe(address);
        // Nobody behind may be tempted to believe them.
        request.headers_mut().remove(&X_FORWARDED_FOR);
        request.headers_mut().remove(FORWARDED);
        let inner = match &mut self.inner {
            Inner::Limited(service) => Either::Left(service.call(request)),
            Inner::Unlimited(service) => Either::Right(service.call(request)),
        };
        AddressFuture {
            inner,
            record,
            metrics: self.guard.metrics.clone(),
        }
    }
}
