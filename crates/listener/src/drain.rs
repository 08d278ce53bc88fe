//! Serving until told to stop, and stopping in two steps: no new work, then no work.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::accept::handshake;
use crate::bind::Listener;
use crate::caps::Caps;
use crate::connection::{Connection, Http};

/// When to stop and how.
#[derive(Debug, Clone)]
pub struct Shutdown {
    /// Stop accepting; idle connections close, requests in flight go on.
    pub stop: CancellationToken,
    /// Cut whatever is left, at once.
    pub force: CancellationToken,
    /// How long requests in flight may go on after `stop`.
    pub grace: Duration,
}

impl Shutdown {
    /// Two fresh signals and a grace.
    pub fn new(grace: Duration) -> Self {
        Self {
            stop: CancellationToken::new(),
            force: CancellationToken::new(),
            grace,
        }
    }
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut because they were still busy.
    pub cut: usize,
}

/// What every connection of a listener shares.
struct Shared {
    http: Http,
    tls: Option<TlsAcceptor>,
    drain: CancellationToken,
    cut: CancellationToken,
}

impl Shared {
    async fn serve<S>(&self, stream: TcpStream, facts: Connection, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let Some(acceptor) = &self.tls else {
            return self
                .http
                .serve(stream, (facts, service), &self.drain, &self.cut)
                .await;
        };
        // a plain connection needs no place for all this
        Box::pin(self.encrypted(acceptor, stream, (facts, service))).await;
    }

    async fn encrypted<S>(&self, acceptor: &TlsAcceptor, stream: TcpStream, served: (Connection, S))
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let encrypted = tokio::select! {
            encrypted = handshake(acceptor, stream) => encrypted,
            // a connection that has not even begun holds up no drain
            () = self.drain.cancelled() => return,
        };
        match encrypted {
            Ok(stream) => {
                self.http
                    .serve(stream, served, &self.drain, &self.cut)
                    .await
            }
            Err(error) => tracing::debug!(error = %error, "no TLS session"),
        }
    }
}

impl Listener {
    /// Serves `service` until `shutdown.stop`, then drains: the socket closes, connections take
    /// no new request, and what is in flight has `shutdown.grace` to end before it is cut;
    /// `shutdown.force` cuts it at once. Returns when no connection is left.
    ///
    /// Every request carries a [`Connection`]. Dropping the future stops accepting and leaves
    /// the connections to themselves: cancel the signals instead.
    pub async fn serve<S>(self, service: S, shutdown: Shutdown) -> Drained
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let shared = Arc::new(Shared {
            http: Http::new(),
            tls: self.tls.clone(),
            drain: shutdown.stop.clone(),
            cut: CancellationToken::new(),
        });
        let connections = TaskTracker::new();
        tokio::select! {
            () = self.accept_all(&service, &shared, &connections) => {}
            () = shutdown.stop.cancelled() => {}
            () = shutdown.force.cancelled() => {}
        }
        shutdown.stop.cancel();
        drop(self); // from here on the system refuses new connections
        connections.close();
        tokio::select! {
            () = connections.wait() => {}
            () = tokio::time::sleep(shutdown.grace) => {}
            () = shutdown.force.cancelled() => {}
        }
        let cut = connections.len();
        shared.cut.cancel();
        connections.wait().await;
        Drained { cut }
    }

    /// Accepts for ever.
    async fn accept_all<S>(&self, service: &S, shared: &Arc<Shared>, connections: &TaskTracker)
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let caps = Caps::new(self.limits);
        loop {
            let room = caps.room().await;
            let (stream, peer) = self.next().await;
            let Some(of_address) = caps.admit(peer.ip()) else {
                tracing::debug!(peer = %peer, "too many connections of this address");
                continue;
            };
            let facts = Connection {
                peer,
                local: stream.local_addr().unwrap_or(self.local),
                tls: self.tls.is_some(),
            };
            let (service, shared) = (service.clone(), Arc::clone(shared));
            let counted = (room, of_address);
            let Some((worker, place)) = self.workers.choose() else {
                connections.spawn(async move {
                    shared.serve(stream, facts, service).await;
                    drop(counted);
                });
                continue;
            };
            let Ok(stream) = stream.into_std() else {
                continue; // it broke at once
            };
            let serving = async move {
                // from here on this worker's runtime is told of it, not the one that accepted
                if let Ok(stream) = TcpStream::from_std(stream) {
                    shared.serve(stream, facts, service).await;
                }
                drop((counted, place));
            };
            connections.spawn_on(serving, worker);
        }
    }
}

#[cfg(test)]
mod tests;
