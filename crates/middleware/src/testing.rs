//! What the tests of this room share: an inner service that says what it was given, and requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use http::{Extensions, HeaderMap, Request, Response};
use tower::{Layer, ServiceExt};
use vestibule_frame::body::FrameBody;
use vestibule_terms::plan::{ServerKind, ServerPlan, Visibility};
use vestibule_terms::{Record, ServerId, TenantId};

use crate::{Admitted, Stage};

/// The head of the request that came through, if one did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Option<(HeaderMap, Extensions)>>>);

impl Seen {
    pub(crate) fn came_through(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        self.0.lock().unwrap().as_ref().unwrap().0.clone()
    }

    pub(crate) fn fact<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        let seen = self.0.lock().unwrap();
        seen.as_ref()
            .and_then(|(_, facts)| facts.get::<T>())
            .cloned()
    }

    /// An inner service that answers 200 and remembers.
    pub(crate) fn service(&self) -> impl Stage<Future: Send> + Clone + Send + Sync + 'static {
        let seen = self.clone();
        tower::service_fn(move |request: Request<FrameBody>| {
            let (head, _) = request.into_parts();
            *seen.0.lock().unwrap() = Some((head.headers, head.extensions));
            async { Ok::<_, Infallible>(Response::new(Body::from("through"))) }
        })
    }
}

/// What became of one request.
pub(crate) struct Outcome {
    pub(crate) response: Response<Body>,
    pub(crate) record: Record,
    pub(crate) seen: Seen,
}

impl Outcome {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn reason(&self) -> Option<&'static str> {
        self.record.reason().copied()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }
}

/// Sends one request through `layer`.
pub(crate) async fn through<L, S>(layer: &L, request: Request<FrameBody>) -> Outcome
where
    L: Layer<Admitted, Service = S>,
    S: Stage,
{
    let seen = Seen::default();
    let inner = Admitted::new(seen.service());
    let record = Record::default();
    record.trace_stages();
    let mut request = request;
    request.extensions_mut().insert(record.clone());
    let mut service = layer.layer(inner);
    let response = service.ready().await.unwrap().call(request).await.unwrap();
    Outcome {
        response,
        record,
        seen,
    }
}

/// A request with an empty body; `head` is a list of header names and values.
pub(crate) fn request(method: &str, uri: &str, head: &[(&str, &str)]) -> Request<FrameBody> {
    with_body(method, uri, head, "")
}

/// A request with a body.
pub(crate) fn with_body(
    method: &str,
    uri: &str,
    head: &[(&str, &str)],
    body: &'static str,
) -> Request<FrameBody> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in head {
        request = request.header(*name, *value);
    }
    request
        .body(FrameBody::new(Body::from(body), 1 << 20))
        .unwrap()
}

/// A plan of an empty server.
pub(crate) fn plan(tenant: &str, server: &str) -> ServerPlan {
    ServerPlan {
        visibility: Visibility::Everything,
        ..ServerPlan::new(
            TenantId::new(tenant).unwrap(),
            ServerId::new(server).unwrap(),
            ServerKind::Federated(Vec::new()),
        )
    }
}
