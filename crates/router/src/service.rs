//! The router: one screen that says what happens to each kind of request.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;
use vestibule_catalog::{Catalog, Viewer};
use vestibule_exchange::{BoxFuture, Call, Connector, Events, Final, RpcError};
use vestibule_metrics::Metrics;
use vestibule_terms::reject::code;

use crate::method::{FanOut, Local, Route, route};
use crate::seen::Seen;
use crate::{fanout, listen, one, view};

/// Brings each call to where it is answered. Cheap to clone; always ready.
#[derive(Clone)]
pub struct Router {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) metrics: Metrics,
    pub(crate) seen: Arc<Seen>,
}

impl Router {
    /// A router over the upstreams of `connector`, whose lists and names `catalog` knows.
    pub fn new(connector: Arc<dyn Connector>, catalog: Arc<Catalog>, metrics: Metrics) -> Self {
        Self {
            connector,
            catalog,
            metrics,
            seen: Arc::default(),
        }
    }

    async fn route(self, call: Call) -> Events {
        if let Some(continuation) = call.continues.clone() {
            return one::go_on(self, call, &continuation).await;
        }
        match route(call.method) {
            Route::Local(Local::View) => view::view(&self, &call).await,
            Route::Local(Local::Ping) => Events::ready(Final::Empty),
            // on the heap, like all that is seldom done: it would make every call's future larger
            Route::FanOut(FanOut::List(kind)) => Box::pin(fanout::list(self, call, kind)).await,
            Route::FanOut(FanOut::Level) => Box::pin(fanout::level(&self, &call)).await,
            Route::One(target) => one::call(self, call, target).await,
            Route::Stream => Box::pin(listen::listen(self, call)).await,
            Route::Unknown => Events::error(method_not_found()),
        }
    }
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}

impl Service<Call> for Router {
    type Response = Events;
    type Error = Infallible;
    type Future = BoxFuture<Result<Events, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// Resolves once it is known who answers and the request has been handed to it. Dropping the
    /// future, or the events, cancels the call.
    fn call(&mut self, call: Call) -> Self::Future {
        call.record.enter("router");
        let router = self.clone();
        Box::pin(async move { Ok(router.route(call).await) })
    }
}

/// The caller as the catalog asks for it.
pub(crate) fn viewer(call: &Call) -> Viewer<'_> {
    Viewer {
        plan: &call.plan,
        principal: &call.principal,
        revision: call.revision,
        capabilities: &call.capabilities,
    }
}

/// -32601: not a method here, or of a feature that is not offered (CAP-01).
pub(crate) fn method_not_found() -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, "method not found")
}
