//! HTTP/1.1 over plain TCP, where whoever sends a request drives its connection too.
//!
//! The general client gives every connection a task: a request is handed over to it, and the answer
//! handed back, piece by piece, with two tasks woken in turn. Here both are one future, so a small
//! request costs no hand-over at all. Between requests a connection rests in a [`Pool`], where
//! nobody reads it: whether it still lives is looked at when it is taken out again.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::header::{HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery, Uri};
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::ServiceExt;

use crate::connect::{Connector, within};
use crate::error::EgressError;
use crate::pool::Pool;

type Io = MaybeHttpsStream<TokioIo<TcpStream>>;

/// One connection: both halves of it.
pub(crate) struct Link {
    sender: SendRequest<Body>,
    connection: Connection<Io, Body>,
}

/// Sends requests over plain TCP.
#[derive(Clone)]
pub(crate) struct Plain {
    connector: Connector,
    pool: Arc<Pool>,
}

/// The body of an answer, which drives its connection. Dropping it before its end closes the
/// connection (SSE-11).
pub(crate) struct PlainBody {
    incoming: Incoming,
    link: Option<Box<Link>>,
    origin: Authority,
    pool: Weak<Pool>,
}

// === impl Link ===

impl Link {
    /// What is driven by hand needs no waking: it is asked again after the connection was polled,
    /// and only the connection waits for something outside.
    fn aside() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    /// Whether another request can be sent. What has come meanwhile (the other side's end, most
    /// often) is read first.
    pub(crate) fn is_fit(&mut self) -> bool {
        let alive = Pin::new(&mut self.connection).poll(&mut Self::aside());
        alive.is_pending() && self.sender.is_ready()
    }

    /// Sends a request, and drives the connection until the head of the answer is there.
    async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, hyper::Error> {
        let sending = self.sender.send_request(request);
        let mut sending = std::pin::pin!(sending);
        let connection = &mut self.connection;
        let mut over = false;
        poll_fn(|context| {
            if !over {
                // what ends it is what the request is told
                over = Pin::new(&mut *connection).poll(context).is_ready();
            }
            sending.as_mut().poll(&mut Self::aside())
        })
        .await
    }
}

// === impl Plain ===

impl Plain {
    /// Over `connector`; at most `max_idle` connections rest for one origin, none longer than
    /// `idle_timeout`.
    pub(crate) fn new(connector: Connector, idle_timeout: Duration, max_idle: usize) -> Self {
        Self {
            connector,
            pool: Arc::new(Pool::new(idle_timeout, max_idle)),
        }
    }

    /// Sends `request`, whose URI is absolute; a connection that has to be made must stand within
    /// `patience`.
    pub(crate) async fn request(
        self,
        mut request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<PlainBody>, EgressError> {
        let Some(origin) = request.uri().authority().cloned() else {
            return Err(EgressError::Malformed("the URI has no host".to_owned()));
        };
        let mut link = match self.pool.take(&origin) {
            Some(link) => link,
            // on the heap: what connecting takes would make every request's future larger
            None => {
                let connecting = self.connect(request.uri().clone());
                Box::pin(within(patience, connecting)).await?
            }
        };
        if !request.headers().contains_key(HOST) {
            request.headers_mut().insert(HOST, host(&origin)?);
        }
        *request.uri_mut() = origin_form(request.uri());
        let response = link.send(request).await.map_err(EgressError::from_plain)?;
        Ok(response.map(|incoming| {
            let mut body = PlainBody {
                incoming,
                link: Some(link),
                origin,
                pool: Arc::downgrade(&self.pool),
            };
            if body.incoming.is_end_stream() {
                body.rest();
            }
            body
        }))
    }

    async fn connect(&self, target: Uri) -> Result<Box<Link>, EgressError> {
        let connecting = self.connector.clone().oneshot(target);
        let stream = connecting
            .await
            .map_err(|failure| EgressError::of(&failure))?;
        let handshake = Builder::new().handshake(stream).await;
        let (sender, connection) = handshake.map_err(EgressError::from_plain)?;
        Ok(Box::new(Link { sender, connection }))
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain")
    }
}

/// `Host` without a port that goes without saying.
fn host(origin: &Authority) -> Result<HeaderValue, EgressError> {
    let text = match origin.port_u16() {
        Some(80) => origin.host(),
        Some(_) | None => origin.as_str(),
    };
    // what stands before an @ belongs to nobody else
    let text = text.rsplit('@').next().unwrap_or_default();
    HeaderValue::from_str(text).map_err(|error| EgressError::Malformed(error.to_string()))
}

fn origin_form(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned();
    Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")))
}

// === impl PlainBody ===

impl PlainBody {
    /// Lets the connection rest: the answer is complete.
    fn rest(&mut self) {
        let (Some(mut link), Some(pool)) = (self.link.take(), self.pool.upgrade()) else {
            return;
        };
        if link.sender.is_ready() || link.is_fit() {
            pool.put(&self.origin, link);
        }
    }
}

impl HttpBody for PlainBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut polled = Pin::new(&mut this.incoming).poll_frame(&mut Link::aside());
        if polled.is_pending()
            && let Some(link) = &mut this.link
        {
            if Pin::new(&mut link.connection).poll(context).is_ready() {
                this.link = None;
            }
            polled = Pin::new(&mut this.incoming).poll_frame(&mut Link::aside());
        }
        match &polled {
            // the end of a chunked body is known only once there is nothing more
            Poll::Ready(None) => this.rest(),
            Poll::Ready(Some(Ok(_))) if this.incoming.is_end_stream() => this.rest(),
            Poll::Ready(Some(Err(_))) => this.link = None,
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
