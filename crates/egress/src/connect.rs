//! The connector: policy, name resolution, TCP with happy eyeballs, TLS; all of it within one
//! timeout.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use crate::error::{ConnectFailure, cause_of};
use crate::filter::Policy;
use crate::resolve::{FilteredResolver, Lookup, check_target};

/// How long the preferred address family may take before the other is tried beside it.
const HAPPY_EYEBALLS: Duration = Duration::from_millis(300);
/// When an idle TCP connection is probed.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

type Connecting<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// TCP to a target that the policy allows.
#[derive(Debug, Clone)]
struct Guarded {
    policy: Arc<Policy>,
    tcp: HttpConnector<FilteredResolver>,
}

impl Service<Uri> for Guarded {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectFailure;
    type Future = Connecting<Self::Response, ConnectFailure>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectFailure>> {
        self.tcp
            .poll_ready(cx)
            .map_err(|error| ConnectFailure::Connect(io::Error::other(error)))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        // literal addresses never reach the resolver, so they are judged here
        if let Err(denied) = check_target(&self.policy, &target) {
            tracing::warn!(
                host = target.host(),
                rule = denied.rule.as_str(),
                "egress denied: the target may not be reached"
            );
            return Box::pin(std::future::ready(Err(denied.into())));
        }
        let connecting = self.tcp.call(target);
        Box::pin(async move { connecting.await.map_err(|error| tcp_failure(&error)) })
    }
}

fn tcp_failure(error: &(dyn std::error::Error + 'static)) -> ConnectFailure {
    if let Some(ConnectFailure::Denied(denied)) = cause_of::<ConnectFailure>(error) {
        return ConnectFailure::Denied(*denied);
    }
    let kind = cause_of::<io::Error>(error).map_or(io::ErrorKind::Other, io::Error::kind);
    let mut text = error.to_string();
    if let Some(source) = error.source() {
        text = format!("{text}: {source}");
    }
    ConnectFailure::Connect(io::Error::new(kind, text))
}

tokio::task_local! {
    /// How long whoever asks waits for a connection. The pools between him and the connector hand on
    /// an address and nothing else, but they call the connector while he is polled.
    static PATIENCE: Duration;
}

/// Runs `asking`; a connection that it makes must stand within `patience`.
pub(crate) fn within<F: Future>(patience: Duration, asking: F) -> impl Future<Output = F::Output> {
    PATIENCE.scope(patience, asking)
}

/// TCP, then TLS where the scheme asks for it, within the timeout.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    https: HttpsConnector<Guarded>,
    timeout: Duration,
}

impl Connector {
    pub(crate) fn new(
        policy: Arc<Policy>,
        lookup: Arc<dyn Lookup>,
        tls: ClientConfig,
        timeout: Duration,
    ) -> Self {
        let resolver = FilteredResolver::new(Arc::clone(&policy), lookup);
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        tcp.set_happy_eyeballs_timeout(Some(HAPPY_EYEBALLS));
        tcp.set_connect_timeout(Some(timeout));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(Guarded { policy, tcp });
        Self { https, timeout }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = ConnectFailure;
    type Future = Connecting<Self::Response, ConnectFailure>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectFailure>> {
        self.https.poll_ready(cx).map_err(failure)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connecting = self.https.call(target);
        let patience = PATIENCE.try_with(|patience| *patience);
        let timeout = patience.map_or(self.timeout, |patience| patience.min(self.timeout));
        Box::pin(async move {
            match tokio::time::timeout(timeout, connecting).await {
                Ok(connected) => connected.map_err(failure),
                Err(_elapsed) => Err(ConnectFailure::Timeout),
            }
        })
    }
}

/// What is not a failure of the TCP connector is one of TLS.
fn failure(error: BoxError) -> ConnectFailure {
    match error.downcast::<ConnectFailure>() {
        Ok(failure) => *failure,
        Err(error) => ConnectFailure::Tls(io::Error::other(error)),
    }
}
