//! Requests to one target: redirects within its origin, one repetition when nothing was sent, and
//! the reading of refusals.

use std::sync::Mutex;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};
use vestibule_egress::{Client, EgressError, MAX_REDIRECTS, RedirectRefused, redirect_target};
use vestibule_frame::{Frame, Limits};

use crate::breaker::Breaker;
use crate::fault::Fault;
use crate::locked;
use crate::targets::Target;
use crate::wire::answer::Answer;
use crate::wire::body::Slices;

/// Largest body of a refusal that is looked at.
const REFUSAL_MAX: usize = 64 * 1024;
/// Longest time that reading a refusal may take.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);

/// One target over HTTP.
#[derive(Debug)]
pub(crate) struct Wire {
    client: Client,
    connect: Duration,
    url: Uri,
    headers: HeaderMap,
    max_response: usize,
    breaker: Mutex<Breaker>,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// 2xx.
    Success(Response<Body>),
    /// Anything else that is no redirect.
    Refused(Refusal),
}

/// An answer that is no success, as far as it says why.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Its status.
    pub(crate) status: StatusCode,
    /// Its Retry-After, when given in seconds.
    pub(crate) retry_after: Option<Duration>,
    /// The JSON-RPC message in its body, if that is what it holds.
    pub(crate) frame: Option<Frame>,
    /// Whether its body is JSON at all.
    pub(crate) is_json: bool,
}

/// The headers of every POST: exactly these media types, whatever a client accepts (HDR-02,
/// cases 133 and 135).
pub(crate) fn json_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    let both = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(header::ACCEPT, both);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers
}

// === impl Wire ===

impl Wire {
    /// Over `client` to `target`, whose URL is `url`.
    pub(crate) fn new(client: Client, target: &Target, url: &url::Url) -> Option<Self> {
        let mut headers = HeaderMap::new();
        // bodies are passed on as they come, so they must not be compressed (case 140)
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        );
        for (name, value) in &target.headers {
            let mut value = HeaderValue::from_str(value.expose()).ok()?;
            value.set_sensitive(true);
            headers.append(name.clone(), value);
        }
        let url = url.as_str().parse().ok()?;
        Some(Self {
            client,
            connect: target.timeouts.connect,
            url,
            headers,
            max_response: target.max_response,
            breaker: Mutex::default(),
        })
    }

    /// The largest answer or event that is read.
    pub(crate) fn max_response(&self) -> usize {
        self.max_response
    }

    /// Sends a request; 307 and 308 within the origin are followed with the body (HTR-10), and what
    /// was provably not sent is sent once more.
    pub(crate) async fn send(
        &self,
        method: &Method,
        headers: &HeaderMap,
        payload: &[Bytes],
    ) -> Result<Response<Body>, Fault> {
        let mut url = self.url.clone();
        for hops in 0..=MAX_REDIRECTS {
            let response = self.send_to(&url, method, headers, payload).await?;
            if !is_redirect(response.status()) {
                return Ok(response);
            }
            let location = response.headers().get(header::LOCATION);
            let location = location.and_then(|value| value.to_str().ok());
            url =
                redirect_target(response.status(), &url, location, hops).map_err(redirect_fault)?;
        }
        Err(Fault::Protocol("redirects"))
    }

    /// Sends a message and tells success from refusal; a refusal's body is read.
    pub(crate) async fn post(
        &self,
        headers: &HeaderMap,
        payload: &[Bytes],
    ) -> Result<Reply, Fault> {
        let response = self.send(&Method::POST, headers, payload).await?;
        Ok(Reply::of(response).await)
    }

    /// Sends a notification or a response: success is any 2xx.
    pub(crate) async fn deliver(
        &self,
        headers: &HeaderMap,
        payload: &[Bytes],
    ) -> Result<(), Refused> {
        match self.post(headers, payload).await? {
            Reply::Success(response) => {
                drain(response.into_body());
                Ok(())
            }
            Reply::Refused(refusal) => Err(Refused::Status(refusal)),
        }
    }

    async fn send_to(
        &self,
        url: &Uri,
        method: &Method,
        headers: &HeaderMap,
        payload: &[Bytes],
    ) -> Result<Response<Body>, Fault> {
        if !locked(&self.breaker).admits(Instant::now()) {
            return Err(Fault::NotSent("connect"));
        }
        let mut sent = self.send_once(url, method, headers, payload).await;
        if sent.as_ref().is_err_and(repeats) {
            sent = self.send_once(url, method, headers, payload).await;
        }
        self.note(sent.as_ref().err());
        sent.map_err(|error| egress_fault(&error))
    }

    /// Whether there was a connection, for those who come next.
    fn note(&self, error: Option<&EgressError>) {
        let mut breaker = locked(&self.breaker);
        match error {
            None | Some(EgressError::Broken { .. }) => breaker.connected(),
            Some(EgressError::Connect(_) | EgressError::Tls(_) | EgressError::Timeout) => {
                breaker.failed(Instant::now());
            }
            Some(EgressError::Denied { .. } | EgressError::Malformed(_)) => {}
        }
    }

    async fn send_once(
        &self,
        url: &Uri,
        method: &Method,
        headers: &HeaderMap,
        payload: &[Bytes],
    ) -> Result<Response<Body>, EgressError> {
        let body = if payload.is_empty() {
            Body::empty()
        } else {
            Body::new(Slices::new(payload))
        };
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() = url.clone();
        let all = request.headers_mut();
        *all = headers.clone();
        for (name, value) in &self.headers {
            all.append(name.clone(), value.clone());
        }
        Ok(self
            .client
            .request(request, self.connect)
            .await?
            .map(Body::new))
    }
}

/// Why a notification or a response was not taken.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It did not get there, or nobody knows.
    Fault(Fault),
    /// It was refused.
    Status(Refusal),
}

impl Refused {
    /// Either way, what it comes to.
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Refused::Fault(fault) => fault,
            Refused::Status(refusal) => refusal.fault(),
        }
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Refused::Fault(fault)
    }
}

fn is_redirect(status: StatusCode) -> bool {
    status.is_redirection() && status != StatusCode::NOT_MODIFIED
}

/// Whether a new attempt on a new connection makes sense: nothing was sent, and no rule refuses.
fn repeats(error: &EgressError) -> bool {
    match error {
        EgressError::Connect(_) | EgressError::Tls(_) => true,
        EgressError::Broken { sent, .. } => !sent,
        EgressError::Denied { .. } | EgressError::Timeout | EgressError::Malformed(_) => false,
    }
}

fn egress_fault(error: &EgressError) -> Fault {
    tracing::debug!(%error, "request to an upstream failed");
    match error {
        EgressError::Denied { .. } => Fault::NotSent("egress_denied"),
        EgressError::Connect(_) => Fault::NotSent("connect"),
        EgressError::Tls(_) => Fault::NotSent("tls"),
        EgressError::Timeout => Fault::NotSent("connect_timeout"),
        EgressError::Malformed(_) => Fault::NotSent("malformed"),
        EgressError::Broken { sent: false, .. } => Fault::NotSent("connection"),
        EgressError::Broken { sent: true, .. } => Fault::Broken,
    }
}

fn redirect_fault(refused: RedirectRefused) -> Fault {
    match refused {
        RedirectRefused::Origin(origin) => Fault::Redirected(origin),
        RedirectRefused::Status(_) | RedirectRefused::TooMany | RedirectRefused::Malformed => {
            Fault::Protocol("redirect")
        }
    }
}

// === impl Reply ===

impl Reply {
    async fn of(response: Response<Body>) -> Reply {
        if response.status().is_success() {
            return Reply::Success(response);
        }
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let body = timeout(REFUSAL_PATIENCE, read_some(response.into_body())).await;
        let body = body.ok().flatten().unwrap_or_default();
        let limits = Limits::default();
        let is_json = vestibule_frame::json::validate(&body, &limits).is_ok();
        let frame = Frame::parse(body, &limits).ok();
        Reply::Refused(Refusal {
            status,
            retry_after,
            frame,
            is_json,
        })
    }

    /// The answer of a success, by its media type.
    pub(crate) fn into_answer(self, max: usize) -> Result<Result<Answer, Refusal>, Fault> {
        match self {
            Reply::Success(response) => Answer::new(response, max).map(Ok),
            Reply::Refused(refusal) => Ok(Err(refusal)),
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// What this status means when the body says nothing better.
    pub(crate) fn fault(&self) -> Fault {
        match self.status.as_u16() {
            401 | 403 => Fault::Unauthorized,
            429 | 503 => Fault::Busy(self.retry_after),
            status if status >= 500 => Fault::Status(status),
            _ => Fault::Protocol("http_status"),
        }
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// The body, or as much of it as is looked at.
async fn read_some(mut body: Body) -> Option<Bytes> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else {
            continue;
        };
        if read.len() + data.len() > REFUSAL_MAX {
            return None;
        }
        read.extend_from_slice(&data);
    }
    Some(read.freeze())
}

/// Lets a body come to its end, so that its connection can be used again; what is long or slow is
/// dropped, and its connection with it.
pub(crate) fn drain(mut body: Body) {
    use futures_util::FutureExt;
    // most bodies have ended by now
    if let Some(None | Some(Err(_))) = body.frame().now_or_never() {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(timeout(DRAIN_PATIENCE, async move {
            let mut left = REFUSAL_MAX;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                let Some(rest) = left.checked_sub(length) else {
                    return;
                };
                left = rest;
            }
        }));
    }
}

/// How long the end of a body is waited for.
const DRAIN_PATIENCE: Duration = Duration::from_millis(250);
