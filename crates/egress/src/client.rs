//! The client: pools over the connector. Plain TCP speaks HTTP/1.1 and has a pool of its own (see
//! `plain`); over TLS the version is negotiated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::body::Body;
use http::uri::Scheme;
use http::{Request, Response};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;

use crate::body::EgressBody;
use crate::connect::{Connector, within};
use crate::error::EgressError;
use crate::filter::Policy;
use crate::plain::Plain;
use crate::resolve::{Lookup, SystemLookup};
use crate::tls;

/// Headers of one answer, in bytes.
const MAX_HEADERS: u32 = 64 * 1024;
/// Header lines of one answer.
const MAX_HEADER_LINES: usize = 200;
/// How often a busy HTTP/2 connection is probed, and how long the answer may take.
const H2_PROBE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// How connections are made and kept.
#[derive(Clone)]
pub struct Options {
    /// Longest time from the decision to connect to a connection that is ready for a request:
    /// name, TCP and TLS together.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// How many unused connections are kept for one origin.
    pub max_idle_per_origin: usize,
    /// Roots that are trusted besides the usual ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// How names are resolved.
    pub lookup: Arc<dyn Lookup>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            max_idle_per_origin: 256,
            extra_roots: Vec::new(),
            lookup: Arc::new(SystemLookup),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("connect_timeout", &self.connect_timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("max_idle_per_origin", &self.max_idle_per_origin)
            .finish_non_exhaustive()
    }
}

/// The outbound HTTP client; cheap to clone, clones share policy and pools.
///
/// A pooled connection was made under the policy of its time, so a new policy comes with new pools:
/// see [`Client::adopt`].
#[derive(Debug, Clone)]
pub struct Client(Arc<ArcSwap<Current>>);

/// One policy and the connections made under it.
#[derive(Debug)]
struct Current {
    inner: legacy::Client<Connector, Body>,
    plain: Plain,
    policy: Arc<Policy>,
    options: Options,
}

impl Current {
    fn new(policy: Arc<Policy>, options: &Options) -> Self {
        let connector = Connector::new(
            Arc::clone(&policy),
            Arc::clone(&options.lookup),
            tls::client_config(&options.extra_roots),
            options.connect_timeout,
        );
        let plain = Plain::new(
            connector.clone(),
            options.idle_timeout,
            options.max_idle_per_origin,
        );
        let inner = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(options.idle_timeout)
            .pool_max_idle_per_host(options.max_idle_per_origin)
            // a request on a kept connection that turns out to be dead is the caller's to repeat:
            // only he knows whether it may run twice (SSE-13)
            .retry_canceled_requests(false)
            .http1_max_headers(MAX_HEADER_LINES)
            .http2_max_header_list_size(MAX_HEADERS)
            .http2_keep_alive_interval(H2_PROBE.0)
            .http2_keep_alive_timeout(H2_PROBE.1)
            .http2_adaptive_window(true)
            .build(connector);
        Self {
            inner,
            plain,
            policy,
            options: options.clone(),
        }
    }
}

impl Client {
    /// A client that reaches what `policy` allows.
    pub fn new(policy: Arc<Policy>, options: &Options) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Current::new(
            policy, options,
        ))))
    }

    /// From now on `policy` decides, for every clone; connections made under the old one are not
    /// used again. The same policy changes nothing.
    pub fn adopt(&self, policy: Policy) {
        let current = self.0.load();
        if *current.policy != policy {
            self.0
                .store(Arc::new(Current::new(Arc::new(policy), &current.options)));
        }
    }

    /// What this client may reach.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.0.load().policy)
    }

    /// Sends `request`, whose URI is absolute, and returns the head of the answer with its body
    /// still to be read. Headers go out as they are; only `Host` is added where it is missing.
    ///
    /// A connection that has to be made first must stand within `connect`, or within
    /// [`Options::connect_timeout`] where that is shorter.
    ///
    /// Dropping the future, or the body before its end, gives the request up: HTTP/2 resets the
    /// stream, HTTP/1.1 closes the connection (SSE-11). No redirect is followed, nothing is
    /// repeated, and only connecting has a timeout.
    pub async fn request(
        &self,
        request: Request<Body>,
        connect: Duration,
    ) -> Result<Response<EgressBody>, EgressError> {
        let uri = request.uri();
        if uri.scheme().is_none() || uri.host().is_none() {
            return Err(EgressError::Malformed(
                "the URI must have a scheme and a host".to_owned(),
            ));
        }
        // not a guard: the request may outlive the policy it was sent under
        if uri.scheme() == Some(&Scheme::HTTP) {
            let plain = self.0.load().plain.clone();
            let response = plain.request(request, connect).await?;
            return Ok(response.map(EgressBody::plain));
        }
        // on the heap, like all that is larger than the usual way
        let sending = Box::pin(within(connect, self.0.load().inner.request(request)));
        let response = sending.await.map_err(EgressError::from_client)?;
        Ok(response.map(EgressBody::pooled))
    }
}

#[cfg(test)]
mod tests;
