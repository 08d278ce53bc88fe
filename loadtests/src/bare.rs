//! The least a reverse proxy on hyper can do: the floor that a gateway is compared with.
//!
//! With the scan it reads every message whole, validates it as the gateway does, and passes on the
//! bytes it read; without, bodies flow through. It has no timeouts, no limits on connections, no
//! records and no policy, so nobody should run it for anything else.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use vestibule_frame::sse::Parser;
use vestibule_frame::{Frame as Message, Limits};

use crate::answer::is_stream;
use crate::target::Target;

/// Largest message that is scanned.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type ProxyBody = UnsyncBoxBody<Bytes, BoxError>;

struct Proxy {
    client: Client<HttpConnector, ProxyBody>,
    upstream: Target,
    scan: bool,
}

/// Serves on a listener until the future is dropped.
///
/// # Errors
/// A listener that can no longer accept.
pub async fn serve(listener: TcpListener, upstream: Target, scan: bool) -> std::io::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let proxy = Arc::new(Proxy {
        client,
        upstream,
        scan,
    });
    loop {
        let (stream, _peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let proxy = Arc::clone(&proxy);
                async move {
                    let passed = proxy.pass(request).await;
                    Ok::<_, Infallible>(passed.unwrap_or_else(|_why| bad_gateway()))
                }
            });
            // a client that goes away is no event here
            let _gone = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Proxy {
    async fn pass(&self, request: Request<Incoming>) -> Result<Response<ProxyBody>, BoxError> {
        let (mut head, body) = request.into_parts();
        head.uri = Uri::builder()
            .scheme("http")
            .authority(self.upstream.host.as_bytes())
            .path_and_query(head.uri.path_and_query().map_or("/", |path| path.as_str()))
            .build()?;
        head.headers.remove(CONNECTION);
        head.headers.remove(TRANSFER_ENCODING);
        head.headers.insert(HOST, self.upstream.host.clone());
        let body = if self.scan {
            scanned(body).await?
        } else {
            through(body)
        };
        let response = self.client.request(Request::from_parts(head, body)).await?;
        let is_events = is_stream(&response);
        let (mut head, body) = response.into_parts();
        head.headers.remove(CONNECTION);
        head.headers.remove(TRANSFER_ENCODING);
        let body = match (self.scan, is_events) {
            (false, _) => through(body),
            (true, true) => Events {
                body,
                parser: Parser::new(MAX_MESSAGE),
            }
            .boxed_unsync(),
            (true, false) => scanned(body).await?,
        };
        Ok(Response::from_parts(head, body))
    }
}

fn through(body: Incoming) -> ProxyBody {
    body.map_err(BoxError::from).boxed_unsync()
}

/// A body that is read whole and is one good message, or empty.
async fn scanned(body: Incoming) -> Result<ProxyBody, BoxError> {
    let bytes = Limited::new(body, MAX_MESSAGE).collect().await?.to_bytes();
    if !bytes.is_empty() {
        Message::parse(bytes.clone(), &Limits::default())?;
    }
    Ok(Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync())
}

/// A stream whose events are scanned as they complete and whose bytes are passed on as they come.
struct Events {
    body: Incoming,
    parser: Parser,
}

impl Body for Events {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)?) else {
            return Poll::Ready(None);
        };
        if let Some(data) = frame.data_ref() {
            self.parser.push(data);
            while let Some(event) = self.parser.next_event()? {
                if let Some(message) = event.data {
                    Message::parse(message, &Limits::default())?;
                }
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

fn bad_gateway() -> Response<ProxyBody> {
    let empty = Full::default().map_err(|never: Infallible| match never {});
    let mut response = Response::new(empty.boxed_unsync());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
