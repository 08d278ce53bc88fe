//! The upstream under every comparison: an MCP server of both eras that does as little as one can.
//!
//! Its one tool `echo` answers with the text it was given, or with as many bytes, after as many
//! events and as much time as the call asks for. It keeps no state: a session id is a number that
//! nothing is looked up by, and an event id says all that is needed to continue its stream. It is
//! no example of a server; it checks nothing.

mod message;
mod paced;

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::mcp::SESSION;
use message::{Answer, Message};
use paced::Paced;

/// Largest request body.
const MAX_BODY: usize = 8 * 1024 * 1024;

type Body = Either<Full<Bytes>, Paced>;

/// Serves on a listener until the future is dropped.
///
/// # Errors
/// A listener that can no longer accept.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let service = service_fn(|request| async {
                Ok::<_, Infallible>(handle(request).await.unwrap_or_else(empty))
            });
            // a client that goes away is no event here
            let _gone = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn handle(request: Request<Incoming>) -> Result<Response<Body>, StatusCode> {
    match *request.method() {
        Method::POST => post(request.into_body()).await,
        Method::GET => get(&request),
        Method::DELETE => Ok(empty(StatusCode::OK)),
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    }
}

async fn post(body: Incoming) -> Result<Response<Body>, StatusCode> {
    let limited = Limited::new(body, MAX_BODY);
    let body = limited
        .collect()
        .await
        .map_err(|_| StatusCode::BAD_REQUEST)?
        .to_bytes();
    let message: Message<'_> =
        serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    match message.answer() {
        Answer::None => Ok(empty(StatusCode::ACCEPTED)),
        Answer::Session(body) => {
            static SESSIONS: AtomicU64 = AtomicU64::new(1);
            let session = HeaderValue::from(SESSIONS.fetch_add(1, Ordering::Relaxed));
            let mut response = object(body);
            response.headers_mut().insert(SESSION, session);
            Ok(response)
        }
        Answer::Object(body) => Ok(object(body)),
        Answer::Later(paced) => {
            let (body, delay) = paced.into_object();
            tokio::time::sleep(delay).await;
            Ok(object(body))
        }
        Answer::Stream(paced) => Ok(stream(paced)),
    }
}

/// A stream of nothing, or the rest of one that was cut.
fn get(request: &Request<Incoming>) -> Result<Response<Body>, StatusCode> {
    match request.headers().get("last-event-id") {
        None => Ok(stream(Paced::silent())),
        Some(id) => {
            let id = id.to_str().map_err(|_| StatusCode::BAD_REQUEST)?;
            Ok(stream(Paced::behind(id).ok_or(StatusCode::BAD_REQUEST)?))
        }
    }
}

fn object(body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn stream(paced: Paced) -> Response<Body> {
    let mut response = Response::new(Either::Right(paced));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = status;
    response
}
