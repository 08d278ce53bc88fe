//! The guard: one handle on the state, from which any number of layers are made.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use governor::middleware::NoOpMiddleware;
use http::{Request, Response};
use tower::Layer;
use tower_governor::GovernorError;
use tower_governor::governor::{Governor, GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::KeyExtractor;
use vestibule_metrics::Metrics;
use vestibule_terms::Reject;
use vestibule_terms::reject::Scope;

use super::suspicion::Suspicion;
use super::{AddressService, Penalties};
use crate::facts::ClientAddress;
use crate::plans::Rate;
use crate::proxies::{self, Proxies};

/// What one address may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressLimit {
    /// Requests.
    pub rate: Rate,
    /// How many of them at once.
    pub burst: u32,
}

/// Reads the key of the limit from the fact that the service has just written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientKey;

impl KeyExtractor for ClientKey {
    type Key = IpAddr;

    fn extract<T>(&self, request: &Request<T>) -> Result<IpAddr, GovernorError> {
        let client = request.extensions().get::<ClientAddress>();
        client
            .map(|ClientAddress(address)| proxies::limit_key(*address))
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

type Config = GovernorConfig<ClientKey, NoOpMiddleware>;

/// State and rules of the address stage.
#[derive(Clone)]
pub struct AddressGuard {
    config: Option<Arc<Config>>,
    penalties: Arc<Penalties>,
    pub(super) proxies: Arc<Proxies>,
    pub(super) suspicion: Arc<Suspicion>,
    pub(super) metrics: Metrics,
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressGuard")
            .field("limited", &self.config.is_some())
            .field("proxies", &self.proxies)
            .finish_non_exhaustive()
    }
}

impl AddressGuard {
    /// A guard with empty tables; without `limit` the rate of requests is not limited.
    pub fn new(limit: Option<AddressLimit>, proxies: Proxies, metrics: Metrics) -> Self {
        Self {
            config: limit.and_then(config).map(Arc::new),
            penalties: Arc::new(Penalties::default()),
            suspicion: Arc::new(Suspicion::new(proxies.trusted.is_empty())),
            proxies: Arc::new(proxies),
            metrics,
        }
    }

    /// A layer on this state.
    pub fn layer(&self) -> AddressLayer {
        AddressLayer(self.clone())
    }

    /// The counter of failed authentications, for the auth stage.
    pub fn penalties(&self) -> &Arc<Penalties> {
        &self.penalties
    }

    /// Forgets addresses that are indistinguishable from new ones, and judges whether the addresses
    /// look like a proxy's. To be called every minute or so.
    pub fn sweep(&self) {
        if let Some(config) = &self.config {
            config.limiter().retain_recent();
            config.limiter().shrink_to_fit();
        }
        self.penalties.sweep();
        if let Some(suspect) = self.suspicion.judge() {
            self.metrics.client_address_suspect(suspect);
        }
    }

    pub(super) fn governor<S>(
        &self,
        inner: S,
    ) -> Result<Governor<ClientKey, NoOpMiddleware, S, Body>, S> {
        match &self.config {
            Some(config) => Ok(Governor::new(inner, config).error_handler(refusal)),
            None => Err(inner),
        }
    }
}

/// Absent when the limit allows nothing, which the configuration refuses.
fn config(limit: AddressLimit) -> Option<Config> {
    let count = limit.rate.count;
    let period = limit.rate.per.checked_div(count)?;
    GovernorConfigBuilder::default()
        .period(period.max(Duration::from_nanos(1)))
        .burst_size(limit.burst)
        .key_extractor(ClientKey)
        .finish()
}

/// The guard's answer: it carries its refusal, for the service to note in the record.
fn refusal(error: GovernorError) -> Response<Body> {
    let refusal = match error {
        GovernorError::TooManyRequests { wait_time, .. } => Reject::Limited {
            scope: Scope::Address,
            limit: "rate",
            // Whole seconds, rounded down: a client that came back then would be refused again.
            retry_after: Duration::from_secs(wait_time + 1),
        },
        GovernorError::UnableToExtractKey | GovernorError::Other { .. } => Reject::Internal,
    };
    let mut response = refusal.clone().into_response(None).map(Body::from);
    response.extensions_mut().insert(Refused(refusal));
    response
}

/// Marks an answer as the guard's own.
#[derive(Debug, Clone)]
pub(super) struct Refused(pub(super) Reject);

/// See the [module](crate::address).
#[derive(Debug, Clone)]
pub struct AddressLayer(AddressGuard);

impl<S> Layer<S> for AddressLayer {
    type Service = AddressService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AddressService::new(inner, self.0.clone())
    }
}
