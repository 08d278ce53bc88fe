//! **The** file: every stage a request passes, in order, one line each, and why it stands there.
//!
//! `docs/ARCHITECTURE.md` draws the same list; a test compares both with what a real request
//! records. The layers are the middleware room's, the stages behind them the session, interact,
//! router and upstream rooms'; only this crate knows two of them.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, Response};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceBuilder};
use vestibule_auth::SharedKeys;
use vestibule_frame::Limits;
use vestibule_metrics::{Metrics, RecordLayer};
use vestibule_middleware::Admitted;
use vestibule_middleware::accept::AcceptLayer;
use vestibule_middleware::address::AddressGuard;
use vestibule_middleware::auth::AuthLayer;
use vestibule_middleware::deadline::DeadlineLayer;
use vestibule_middleware::frame::FrameLayer;
use vestibule_middleware::head::HeadLayer;
use vestibule_middleware::origin::OriginLayer;
use vestibule_middleware::panic::PanicLayer;
use vestibule_middleware::plans::SharedPlans;
use vestibule_middleware::preflight::PreflightLayer;
use vestibule_middleware::quota::{LocalQuotas, QuotaLayer};
use vestibule_middleware::route::RouteLayer;
use vestibule_middleware::size::SizeLayer;
use vestibule_terms::Clock;

/// The stages in order, by the names that [`vestibule_terms::Record`] traces.
pub const STAGES: [&str; 17] = [
    "record",
    "panic",
    "head",
    "route",
    "origin",
    "preflight",
    "address",
    "size",
    "auth",
    "quota",
    "deadline",
    "accept",
    "frame",
    "session",
    "interact",
    "router",
    "upstream",
];

/// What a request meets from outside: never fails, always answers.
pub type Front = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// What the layers before the session are made of.
#[derive(Clone)]
#[expect(
    missing_debug_implementations,
    reason = "handles, some of them on secrets"
)]
pub struct Before {
    /// Counts and records.
    pub metrics: Metrics,
    /// What is served.
    pub plans: SharedPlans,
    /// What is accepted as a credential.
    pub keys: SharedKeys,
    /// Names accepted in Host.
    pub hosts: Arc<[String]>,
    /// Client addresses and their limits.
    pub guard: AddressGuard,
    /// Budgets of tenants and callers.
    pub quotas: LocalQuotas,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Largest body in bytes.
    pub max_body: usize,
}

/// Puts the stages together around the session room.
pub fn build(before: &Before, session: Admitted) -> Front {
    let Before {
        metrics,
        plans,
        keys,
        hosts,
        guard,
        quotas,
        clock,
        max_body,
    } = before.clone();
    let stack = ServiceBuilder::new()
        // first, so that whatever happens is recorded once, and last to close, with the body
        .layer(RecordLayer::new(metrics.clone()))
        // inside the record: a panic is a 500 that has an access record
        .layer(PanicLayer)
        // before anything reads a header: sizes, repetitions, headers that are not ours
        .layer(HeadLayer::new(max_body))
        // before everything tenant-shaped: origins, keys and budgets are of the plan
        .layer(RouteLayer::new(plans))
        // before anything is answered to a browser; a path without a plan ends here, as 404
        .layer(OriginLayer::new(hosts))
        // after the Origin check, before authentication: browsers send no credential with OPTIONS
        .layer(PreflightLayer)
        // the defence against unauthenticated load, before a credential costs anything
        .layer(guard.layer())
        // a declared size is refused before a byte of the body is read
        .layer(SizeLayer::new(max_body))
        // who is calling
        .layer(AuthLayer::new(
            keys,
            clock,
            Arc::clone(guard.penalties()),
            metrics.clone(),
        ))
        // budgets need the principal
        .layer(QuotaLayer::new(quotas, metrics))
        // the clocks of the call start once it is let in
        .layer(DeadlineLayer::new())
        // the last decision on the head alone
        .layer(AcceptLayer::new())
        // the first to touch the body; everything behind reads the one scanned frame
        .layer(FrameLayer::new(Limits::default()));
    BoxCloneSyncService::new(stack.service(session))
}

/// The listener's side of [`Front`]: its body becomes the one the layers read.
pub fn of_listener<B>(
    front: Front,
) -> impl Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    ServiceBuilder::new()
        .map_request(|request: Request<B>| request.map(Body::new))
        .service(front)
}

/// The pages of the admin plane that need no credential, as a [`Front`].
pub fn health(router: axum::Router) -> Front {
    BoxCloneSyncService::new(router)
}
