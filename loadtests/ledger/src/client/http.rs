//! One request on a connection of its own: so each goes to whichever replica is next.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::sse::{Event, EventReader};

/// Until the head of an answer: longer than a replica is ever stopped.
const HEAD_WITHIN: Duration = Duration::from_secs(25);
/// A stream that is silent for longer has lost its peer: there are comments every 15 s.
const SILENCE: Duration = Duration::from_secs(20);
/// Bodies that are read whole.
const SMALL: usize = 1024 * 1024;

/// Everything went wrong that could: no answer, or the rest of it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// What is sent.
#[derive(Debug, Clone)]
pub(super) struct Outgoing<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) key: &'a str,
    pub(super) session: Option<&'a str>,
    pub(super) last_event_id: Option<&'a str>,
    pub(super) body: String,
}

/// An answer whose body is still to be read. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Opened {
    /// The client's own address, by which the balancer knows the connection.
    pub(super) local: SocketAddr,
    pub(super) status: u16,
    pub(super) session: Option<String>,
    pub(super) is_stream: bool,
    body: Incoming,
    reader: EventReader,
    ready: VecDeque<Event>,
    driver: JoinHandle<()>,
}

/// Sends a request and waits for the head of its answer. `connected` is told the client's address
/// before anything is sent.
pub(super) async fn send(
    door: SocketAddr,
    outgoing: Outgoing<'_>,
    connected: impl FnOnce(SocketAddr),
) -> Result<Opened, Broken> {
    let stream = TcpStream::connect(door).await.map_err(|_| Broken)?;
    let local = stream.local_addr().map_err(|_| Broken)?;
    stream.set_nodelay(true).map_err(|_| Broken)?;
    connected(local);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Broken)?;
    let driver = tokio::spawn(async move {
        // what breaks here is told by the request
        let _broken = connection.await;
    });
    let request = compose(door, &outgoing).map_err(|_| Broken)?;
    let sent = timeout(HEAD_WITHIN, sender.send_request(request)).await;
    match sent {
        Ok(Ok(response)) => Ok(Opened::new(local, response, driver)),
        Ok(Err(_)) | Err(_) => {
            driver.abort();
            Err(Broken)
        }
    }
}

fn compose(door: SocketAddr, outgoing: &Outgoing<'_>) -> http::Result<Request<Full<Bytes>>> {
    let accept = match outgoing.method {
        Method::GET => "text/event-stream",
        _ => "application/json, text/event-stream",
    };
    let mut request = Request::builder()
        .method(outgoing.method.clone())
        .uri(outgoing.path)
        .header(HOST, door.to_string())
        .header(ACCEPT, accept)
        .header(AUTHORIZATION, format!("Bearer {}", outgoing.key));
    if outgoing.method == Method::POST {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    if let Some(session) = outgoing.session {
        request = request
            .header("mcp-session-id", session)
            .header("mcp-protocol-version", "2025-11-25");
    }
    if let Some(last) = outgoing.last_event_id {
        request = request.header("last-event-id", last);
    }
    request.body(Full::new(Bytes::from(outgoing.body.clone())))
}

impl Opened {
    fn new(local: SocketAddr, response: Response<Incoming>, driver: JoinHandle<()>) -> Self {
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let is_stream =
            header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        Self {
            local,
            status: response.status().as_u16(),
            session: header("mcp-session-id"),
            is_stream,
            body: response.into_body(),
            reader: EventReader::default(),
            ready: VecDeque::new(),
            driver,
        }
    }

    /// Whether it said that the outcome of a resume is not known yet.
    pub(super) fn was_held(&self) -> bool {
        self.reader.was_held
    }

    /// The next event; none when the stream ended in good order.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Broken> {
        self.next_within(SILENCE).await
    }

    /// The same, with another patience.
    pub(super) async fn next_within(
        &mut self,
        patience: Duration,
    ) -> Result<Option<Event>, Broken> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let frame = timeout(patience, self.body.frame()).await;
            match frame.map_err(|_| Broken)? {
                None => return Ok(None),
                Some(Err(_)) => return Err(Broken),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.ready.extend(self.reader.push(data));
                    }
                }
            }
        }
    }

    /// The whole body of an answer that is no stream.
    pub(super) async fn whole(&mut self) -> Result<Vec<u8>, Broken> {
        let mut whole = Vec::new();
        while whole.len() < SMALL {
            let frame = timeout(SILENCE, self.body.frame()).await;
            match frame.map_err(|_| Broken)? {
                None => return Ok(whole),
                Some(Err(_)) => return Err(Broken),
                Some(Ok(frame)) => whole.extend(frame.data_ref().into_iter().flatten()),
            }
        }
        Err(Broken)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // else a stream that never ends would keep the connection
        self.driver.abort();
    }
}
