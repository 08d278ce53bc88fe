//! HTTP as both network servers need it: who may ask, what a body may be, how answers look.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tower::service_fn;
use vestibule_frame::sse;
use vestibule_listener::{Limits, Listener, Shutdown};

use crate::rpc::{INVALID_REQUEST, RpcError};

/// Largest request body.
const MAX_BODY: usize = 1024 * 1024;
/// Events that wait for a slow reader.
pub(crate) const STREAM_BUFFER: usize = 64;
/// A silent stream carries a comment this often, so that nobody between takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long requests may go on after the server was told to end.
const GRACE: Duration = Duration::from_secs(2);
/// The one path.
const PATH: &str = "/mcp";

/// Serves `handler` on `/mcp` until `shutdown`.
pub(crate) async fn serve<H, F>(
    socket: TcpListener,
    shutdown: CancellationToken,
    handler: H,
) -> io::Result<()>
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = handler.clone();
        async move {
            let response = match refusal(&request) {
                Some(refusal) => refusal,
                None => handler(request).await,
            };
            Ok::<_, Infallible>(response)
        }
    });
    let listener = Listener::from_socket(socket, Limits::default())?;
    let mut end = Shutdown::new(GRACE);
    end.stop = shutdown;
    listener.serve(service, end).await;
    Ok(())
}

/// Why this request is not for us. A page in a browser may reach loopback: by a name of its own
/// that resolves to it (Host), or from elsewhere (Origin).
fn refusal(request: &Request<Incoming>) -> Option<Response<Body>> {
    let host = request
        .headers()
        .get(HOST)
        .map(HeaderValue::as_bytes)
        .or_else(|| {
            request
                .uri()
                .authority()
                .map(|host| host.as_str().as_bytes())
        });
    if !host.is_some_and(is_loopback) {
        return Some(empty(StatusCode::FORBIDDEN));
    }
    if let Some(origin) = request.headers().get(ORIGIN) {
        let origin = origin.as_bytes();
        let host = origin
            .strip_prefix(b"http://")
            .or_else(|| origin.strip_prefix(b"https://"));
        if !host.is_some_and(is_loopback) {
            return Some(empty(StatusCode::FORBIDDEN));
        }
    }
    (request.uri().path() != PATH).then(|| empty(StatusCode::NOT_FOUND))
}

fn is_loopback(authority: &[u8]) -> bool {
    let Ok(uri) = Uri::try_from(authority) else {
        return false;
    };
    matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// Takes a POST apart, or says what is wrong with it.
pub(crate) async fn receive(request: Request<Incoming>) -> Result<(Parts, Bytes), Response<Body>> {
    let (head, body) = request.into_parts();
    let wants = |kind| accepts(&head.headers, kind);
    if !(wants("application/json") && wants("text/event-stream")) {
        return Err(empty(StatusCode::NOT_ACCEPTABLE));
    }
    if media_type(&head.headers, &CONTENT_TYPE).as_deref() != Some("application/json") {
        return Err(empty(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => Ok((head, body.to_bytes())),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(empty(StatusCode::PAYLOAD_TOO_LARGE))
        }
        Err(_) => Err(empty(StatusCode::BAD_REQUEST)),
    }
}

fn media_type(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    let kind = value.split(';').next()?;
    Some(kind.trim().to_ascii_lowercase())
}

/// Whether the client can read answers of this media type.
pub(crate) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let Some(family) = kind.split('/').next() else {
        return false;
    };
    headers.get_all(ACCEPT).iter().any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.split(',').any(|range| {
            let range = range.split(';').next().unwrap_or_default().trim();
            range == "*/*" || range == kind || range.strip_suffix("/*") == Some(family)
        })
    })
}

/// A header that stands once and is text.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// 405 with what is possible.
pub(crate) fn not_allowed(allow: &'static str) -> Response<Body> {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// Whether this is a POST, the one method both servers share.
pub(crate) fn is_post(request: &Request<Incoming>) -> bool {
    request.method() == Method::POST
}

/// One JSON message.
pub(crate) fn json(status: StatusCode, message: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(message.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A refusal of a body that is no acceptable message.
pub(crate) fn bad_message(error: &RpcError) -> Response<Body> {
    json(StatusCode::BAD_REQUEST, &error.to_message(None))
}

/// The refusal of a request in this state, with its id.
pub(crate) fn bad_request(id: Option<&Value>, why: &str) -> Response<Body> {
    let error = RpcError::new(INVALID_REQUEST, why);
    json(StatusCode::BAD_REQUEST, &error.to_message(id))
}

/// The sending side of a stream of events.
#[derive(Debug, Clone)]
pub(crate) struct Events(mpsc::Sender<Bytes>);

impl Events {
    /// Sends one message, waiting for a slow reader; a reader that is gone loses it.
    pub(crate) async fn send(&self, message: &Value) {
        let event = sse::message(None, &[Bytes::from(message.to_string())]);
        if self.0.send(event).await.is_err() {
            tracing::debug!("nobody reads this stream any more");
        }
    }

    /// Sends one message if there is room: a reader that does not read misses it.
    pub(crate) fn offer(&self, message: &Value) -> bool {
        let event = sse::message(None, &[Bytes::from(message.to_string())]);
        self.0.try_send(event).is_ok()
    }

    /// Ends when the reader is gone.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// A stream of events that ends when every sender is dropped, or at `end`.
pub(crate) fn event_stream(end: CancellationToken) -> (Events, Response<Body>) {
    let (sender, receiver) = mpsc::channel(STREAM_BUFFER);
    let silence = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    let events = ReceiverStream::new(receiver);
    let events = tokio_stream::StreamExt::timeout_repeating(events, silence)
        .map(|event| Ok::<_, Infallible>(event.unwrap_or_else(|_silent| sse::comment())))
        .take_until(end.cancelled_owned());
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    (Events(sender), response)
}
