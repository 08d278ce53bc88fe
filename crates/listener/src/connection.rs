//! One connection: HTTP over its stream, until it ends, is drained or is cut.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use futures_util::future::Either;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower::util::Oneshot;
use tower::{Service, ServiceExt as _};

use crate::activity::{Activity, InFlight};
use crate::answer::{Answer, Stalls};
use crate::clock::{Clocks, Timed};
use crate::rare::Rare;
use crate::version::Begun;

/// The read buffer of an HTTP/1.1 connection bounds what a head may be: the 64 KiB of headers
/// that the pipeline allows and answers for itself, and a request line.
const HTTP1_BUFFER: usize = 96 * 1024;
/// Unsent bytes of one HTTP/2 stream.
const H2_SEND_BUFFER: usize = 64 * 1024;
/// HTTP/2: concurrent streams, windows of a stream and of the connection, header list (T23).
const H2_STREAMS: u32 = 100;
const H2_STREAM_WINDOW: u32 = 64 * 1024;
const H2_CONNECTION_WINDOW: u32 = 1024 * 1024;
const H2_HEADERS: u32 = 64 * 1024;
/// HTTP/2: streams that were reset and are still being forgotten, by the peer and by us (T23).
const H2_RESETS: usize = 20;
const H2_OWN_RESETS: usize = 1024;
/// HTTP/2: how often the peer is pinged, and how long it may take to answer.
const H2_PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// What a request may know of the connection it came on; an extension of every request. The peer
/// also stands there as `axum`'s `ConnectInfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The other end of the socket: a client, or the nearest proxy.
    pub peer: SocketAddr,
    /// Our end of it.
    pub local: SocketAddr,
    /// Whether it is encrypted.
    pub tls: bool,
}

/// How every connection of a listener is served.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    one: auto::Builder<TokioExecutor>,
    two: auto::Builder<TokioExecutor>,
}

impl Http {
    pub(crate) fn new() -> Self {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            // `Timed` is stricter; this makes the library look at idle connections at all
            .header_read_timeout(Clocks::DEFAULT.idle + Duration::from_secs(15))
            .max_buf_size(HTTP1_BUFFER)
            // header lines: the library's own limit, a hundred, for which it has room on its stack
            .keep_alive(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(H2_STREAMS)
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .max_header_list_size(H2_HEADERS)
            .max_pending_accept_reset_streams(H2_RESETS)
            .max_local_error_reset_streams(H2_OWN_RESETS)
            .max_send_buf_size(H2_SEND_BUFFER)
            .keep_alive_interval(H2_PING.0)
            .keep_alive_timeout(H2_PING.1);
        Self {
            one: builder.clone().http1_only(),
            two: builder.http2_only(),
        }
    }

    /// Serves one connection. After `drain` no new request is taken, and those in flight end as
    /// they will; after `cut` everything is dropped.
    pub(crate) async fn serve<IO, S>(
        &self,
        stream: IO,
        (facts, service): (Connection, S),
        drain: &CancellationToken,
        cut: &CancellationToken,
    ) where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let (activity, stalls) = (Arc::new(Activity::default()), Arc::new(Stalls::default()));
        let stream = Timed::new(stream, Clocks::DEFAULT, Arc::clone(&activity));
        let service = Served {
            inner: Mutex::new(service),
            facts,
            activity: Arc::clone(&activity),
            stalls: Arc::clone(&stalls),
        };
        let begun = tokio::select! {
            biased;
            begun = Begun::read(stream) => begun,
            // a connection that has not even begun holds up no drain
            () = drain.cancelled() => return,
            () = cut.cancelled() => return,
        };
        let (http, stream) = match begun {
            Ok((Version::HTTP_2, stream)) => (&self.two, stream),
            Ok((_, stream)) => (&self.one, stream),
            Err(error) => {
                tracing::debug!(error = %error, "connection ended early");
                return;
            }
        };
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let mut stalled = std::pin::pin!(stalls.watch(Clocks::DEFAULT.stall));
        let mut draining = false;
        loop {
            let may_drain = !draining;
            let end = std::pin::pin!(Rare::new(async {
                tokio::select! {
                    () = drain.cancelled(), if may_drain => End::Drain,
                    () = activity.abused() => End::Abused,
                    () = stalled.as_mut() => End::Cut, // it never ends
                    () = cut.cancelled() => End::Cut,
                }
            }));
            let end = tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(error = %error, "connection ended early");
                    }
                    return;
                }
                end = end => end,
            };
            match end {
                End::Drain => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                End::Abused => {
                    tracing::debug!(peer = %facts.peer, "the peer gives up too many requests");
                    return;
                }
                End::Cut => return,
            }
        }
    }
}

/// What ends a connection from our side.
enum End {
    /// No new request is taken.
    Drain,
    /// Its peer does what no client does.
    Abused,
    /// At once.
    Cut,
}

/// The service as one connection sees it: facts in, flight noted.
#[derive(Debug)]
struct Served<S> {
    /// The connection's own, used for one request after the other: a clone for each would count up and
    /// down every handle in it, on memory that all threads share.
    inner: Mutex<S>,
    facts: Connection,
    activity: Arc<Activity>,
    stalls: Arc<Stalls>,
}

impl<S> Served<S>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone,
{
    fn answer(&self, request: Request<Incoming>) -> Answering<S> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(
            match inner.poll_ready(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(())) => Either::Left(inner.call(request)),
                Poll::Ready(Err(never)) => match never {},
                // nobody is to be kept from the lock
                Poll::Pending => Either::Right(inner.clone().oneshot(request)),
            },
        )
    }
}

/// In a box of its own: the library has a place for it in every connection, also while that only waits
/// or sends, and it takes kilobytes.
type Answering<S> =
    Pin<Box<Either<<S as Service<Request<Incoming>>>::Future, Oneshot<S, Request<Incoming>>>>>;

impl<S> hyper::service::Service<Request<Incoming>> for Served<S>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone,
{
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Serving<Answering<S>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let multiplexed = request.version() == Version::HTTP_2;
        let Some(in_flight) = self.activity.begin(multiplexed) else {
            return Serving {
                answer: None,
                in_flight: None,
                stalls: None,
            };
        };
        let extensions = request.extensions_mut();
        extensions.insert(self.facts);
        extensions.insert(ConnectInfo(self.facts.peer));
        Serving {
            answer: Some(self.answer(request)),
            in_flight: Some(in_flight),
            stalls: multiplexed.then(|| Arc::clone(&self.stalls)),
        }
    }
}

pin_project! {
    /// A request being answered, or refused before anybody sees it.
    struct Serving<F> {
        #[pin]
        answer: Option<F>,
        in_flight: Option<InFlight>,
        // the answers beside this one, on HTTP/2
        stalls: Option<Arc<Stalls>>,
    }
}

impl<F> Future for Serving<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = Result<Response<Answer>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let response = match this.answer.as_mut().as_pin_mut() {
            Some(answer) => ready!(answer.poll(cx))?,
            None => refusal(),
        };
        this.answer.set(None);
        let in_flight = this.in_flight.take();
        Poll::Ready(Ok(response.map(|inner| match this.stalls {
            Some(stalls) => stalls.hold(inner, in_flight),
            None => Answer::alone(inner, in_flight),
        })))
    }
}

/// The answer to a request of which nobody can say where it ends: 400, and nothing that follows on
/// the connection is read (T16).
fn refusal() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}
