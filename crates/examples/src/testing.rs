//! A client for the tests: one request at a time, answers as JSON or as events.

use std::net::SocketAddr;

use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::net::TcpListener;
use vestibule_frame::sse;

pub(crate) const BOTH: &str = "application/json, text/event-stream";

/// A port of our own.
pub(crate) async fn socket() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// One peer; every request is on a connection of its own, so that dropping an answer closes it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    url: String,
    client: Client<HttpConnector, Body>,
}

/// An answer whose body is still to come.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    events: sse::Parser,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            url: format!("http://{address}/mcp"),
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build_http(),
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        headers: &[(&str, &str)],
        body: String,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(&self.url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).unwrap();
        let (head, body) = self.client.request(request).await.unwrap().into_parts();
        Answer {
            status: head.status,
            headers: head.headers,
            body,
            events: sse::Parser::new(1 << 20),
        }
    }
}

impl Answer {
    pub(crate) fn is_stream(&self) -> bool {
        self.headers["content-type"] == "text/event-stream"
    }

    /// The whole body.
    pub(crate) async fn text(self) -> String {
        let body = self.body.collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    /// The one JSON message of the body.
    pub(crate) async fn json(self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json");
        serde_json::from_str(&self.text().await).unwrap()
    }

    /// The next message of the stream; `None` at its end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.events.next_event().unwrap() {
                let data = event.data.expect("every event is a message");
                return Some(serde_json::from_slice(&data).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.events.push(&frame.into_data().unwrap());
        }
    }
}
