//! The service: what happens when a request arrives.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};

use axum::body::Body;
use http::{Request, Response};
use tower::{BoxError, Service};
use vestibule_terms::Record;

use crate::record::access::Open;
use crate::record::body::CountedRequest;
use crate::record::current::Working;
use crate::record::future::RecordFuture;
use crate::record::request_id;
use crate::registry::Metrics;

/// See the [module](crate::record).
#[derive(Debug, Clone)]
pub struct RecordService<S> {
    inner: S,
    metrics: Metrics,
}

impl<S> RecordService<S> {
    pub(crate) fn new(inner: S, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }
}

impl<S, B> Service<Request<B>> for RecordService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = RecordFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        head.headers.remove(&request_id::HEADER);
        // a test of the pipeline hands in a record whose trace of stages is on
        let record = head.extensions.remove::<Record>().unwrap_or_default();
        record.enter("record");
        let (id, header) = request_id::mint();
        record.set_request_id(id);
        head.extensions.insert(record.clone());

        let bytes_in = Arc::new(AtomicU64::new(0));
        let body = Body::new(CountedRequest::new(body, Arc::clone(&bytes_in)));
        let open = Open::new(self.metrics.clone(), record.clone(), bytes_in, &head.method);
        let mut record = Some(record);
        let answer = {
            let _working = Working::on(&mut record);
            self.inner.call(Request::from_parts(head, body))
        };
        RecordFuture::new(answer, open, header, record)
    }
}
