//! One caller: a connection, and in the legacy era the session that was opened on it.
//!
//! A connection that failed is opened anew with the next call, with a new session, and the failed
//! call is counted; nothing is retried.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::answer::{self, Failure};
use crate::mcp::{Era, Messages, SESSION};
use crate::measure::Received;
use crate::plan::Plan;

/// A caller.
#[derive(Debug)]
pub struct User {
    plan: Arc<Plan>,
    messages: Arc<Messages>,
    sender: Option<SendRequest<Full<Bytes>>>,
    session: Option<HeaderValue>,
    next_id: u64,
    scratch: Vec<u8>,
}

// === impl User ===

impl User {
    /// A caller who has not come yet.
    pub fn new(plan: Arc<Plan>) -> Self {
        let messages = Arc::clone(&plan.messages);
        Self {
            plan,
            messages,
            sender: None,
            session: None,
            next_id: 1,
            scratch: Vec::new(),
        }
    }

    /// A caller whose calls are streams that stay open.
    pub fn holding(plan: Arc<Plan>) -> Self {
        let messages = Arc::clone(&plan.holding);
        Self {
            messages,
            ..Self::new(plan)
        }
    }

    /// Connects and, in the legacy era, opens a session, where that has not happened.
    ///
    /// # Errors
    /// No connection, or a handshake that failed.
    pub async fn arrive(&mut self) -> Result<(), Failure> {
        let is_open = self
            .sender
            .as_ref()
            .is_some_and(|sender| !sender.is_closed());
        if !is_open {
            self.sender = Some(connect(&self.plan).await?);
        }
        if self.messages.era() == Era::Legacy && self.session.is_none() {
            let opened = tokio::time::timeout(self.plan.timeout, self.handshake()).await;
            opened.map_err(|_| Failure::Timeout)??;
        }
        Ok(())
    }

    async fn handshake(&mut self) -> Result<(), Failure> {
        let headers = self.messages.opening_headers();
        let body = self.messages.initialize();
        let response = self.send(Method::POST, headers, body).await?;
        let session = response.headers().get(SESSION).cloned();
        answer::read(response, 0, &mut self.scratch).await?;
        self.session = Some(session.ok_or(Failure::NoSession)?);
        let headers = self.messages.headers(self.session.as_ref());
        let body = self.messages.initialized();
        let response = self.send(Method::POST, headers, body).await?;
        if !response.status().is_success() {
            return Err(Failure::Status(response.status()));
        }
        drain(response).await
    }

    /// One `tools/call`, read to the end of its answer.
    ///
    /// # Errors
    /// Whatever kept it from a result; the connection is then given up.
    pub async fn call(&mut self) -> Result<Received, Failure> {
        let timeout = self.plan.timeout;
        let outcome = match tokio::time::timeout(timeout, self.call_in_time()).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(Failure::Timeout),
        };
        if outcome.is_err() {
            self.sender = None;
            self.session = None;
        }
        outcome
    }

    async fn call_in_time(&mut self) -> Result<Received, Failure> {
        self.arrive().await?;
        let (id, response) = self.start_call().await?;
        answer::read(response, id, &mut self.scratch).await
    }

    /// Sends a `tools/call` and returns its id and the head of its answer.
    ///
    /// # Errors
    /// A connection that broke.
    pub async fn start_call(&mut self) -> Result<(u64, Response<Incoming>), Failure> {
        let id = self.next_id;
        self.next_id += 1;
        let headers = self.messages.headers(self.session.as_ref());
        let response = self
            .send(Method::POST, headers, self.messages.call(id))
            .await?;
        Ok((id, response))
    }

    /// Opens a GET stream in this caller's session, behind `last_event` when there is one. The
    /// stream takes the connection.
    ///
    /// # Errors
    /// A connection that broke, or another answer than a stream.
    pub async fn listen(
        &mut self,
        last_event: Option<&str>,
    ) -> Result<Response<Incoming>, Failure> {
        let mut headers = self.messages.headers(self.session.as_ref());
        headers.remove(http::header::CONTENT_TYPE);
        headers.insert(
            http::header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        if let Some(id) = last_event {
            let value = HeaderValue::from_str(id).map_err(|_| Failure::NoAnswer)?;
            headers.insert("last-event-id", value);
        }
        let response = self.send(Method::GET, headers, Bytes::new()).await?;
        if response.status().is_success() && answer::is_stream(&response) {
            return Ok(response);
        }
        Err(Failure::Status(response.status()))
    }

    /// Drops the connection and keeps the session: what a caller does whose network went away.
    pub fn hang_up(&mut self) {
        self.sender = None;
    }

    /// Ends the session, so that a run leaves nothing behind at the server.
    pub async fn leave(mut self) {
        if self.session.is_none() || self.arrive().await.is_err() {
            return;
        }
        let headers = self.messages.headers(self.session.as_ref());
        let ended = async {
            let response = self.send(Method::DELETE, headers, Bytes::new()).await?;
            drain(response).await
        };
        // whether the server knows an end of sessions (405 if not) is not what is measured
        let _ended = tokio::time::timeout(std::time::Duration::from_secs(1), ended).await;
    }

    async fn send(
        &mut self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let sender = match &mut self.sender {
            Some(sender) => sender,
            empty @ None => empty.insert(connect(&self.plan).await?),
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.plan.target.path.clone();
        *request.headers_mut() = headers;
        sender.ready().await.map_err(Failure::Broken)?;
        sender.send_request(request).await.map_err(Failure::Broken)
    }
}

/// Opens a connection; a task drives it until the sender is dropped.
async fn connect(plan: &Plan) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let opened = tokio::time::timeout(plan.timeout, TcpStream::connect(plan.target.address)).await;
    let stream = opened
        .map_err(|_| Failure::Timeout)?
        .map_err(Failure::Connect)?;
    stream.set_nodelay(true).map_err(Failure::Connect)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(Failure::Broken)?;
    tokio::spawn(async move {
        // what breaks here is reported by the request that was under way
        let _broken = connection.await;
    });
    Ok(sender)
}

async fn drain(response: Response<Incoming>) -> Result<(), Failure> {
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame.map_err(Failure::Broken)?;
    }
    Ok(())
}
