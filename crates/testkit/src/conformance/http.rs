//! The fixture over Streamable HTTP, on a loopback port of its own choosing or
//! a given one.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use axum::{Router, middleware};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    Eras, FixtureServer, era,
    polling::{PollingSessions, RETRY},
    server::Shared,
};

/// A running fixture; it stops when dropped.
#[derive(Debug)]
pub struct HttpFixture {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl HttpFixture {
    /// Listens on `address` (port 0: any free one) and serves.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on.
    pub async fn start(address: SocketAddr, eras: Eras) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let address = listener
            .local_addr()
            .context("a listening socket has an address")?;
        let stop = CancellationToken::new();
        let router = router(eras, &stop);
        let stopped = stop.clone().cancelled_owned();
        let served = tokio::spawn(async move {
            let server = axum::serve(listener, router).with_graceful_shutdown(stopped);
            if let Err(error) = server.await {
                tracing::error!(%error, "the conformance upstream stopped serving");
            }
        });
        Ok(Self {
            address,
            stop,
            served,
        })
    }

    /// The URL of its MCP endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Waits until it stops serving.
    pub async fn wait(mut self) {
        // A panic of the serving task has been reported where it happened.
        (&mut self.served).await.ok();
    }
}

impl Drop for HttpFixture {
    fn drop(&mut self) {
        self.stop.cancel();
        self.served.abort();
    }
}

fn router(eras: Eras, stop: &CancellationToken) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_sse_retry(Some(RETRY))
        .with_legacy_session_mode(eras != Eras::Modern)
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"])
        .with_cancellation_token(stop.child_token());
    let shared = Arc::new(Shared::new(eras));
    let instance = move || Ok(FixtureServer::with(Arc::clone(&shared)));
    let service =
        StreamableHttpService::new(instance, Arc::new(PollingSessions::default()), config);
    Router::new()
        .route_service("/mcp", service)
        .layer(middleware::from_fn_with_state(eras, era::gate))
}
