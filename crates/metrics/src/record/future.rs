//! The future: what happens when the answer's head is there.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use http::{HeaderValue, Response};
use pin_project_lite::pin_project;
use vestibule_terms::{Outcome, Record};

use crate::record::access::Open;
use crate::record::body::RecordedBody;
use crate::record::current::Working;
use crate::record::request_id;

pin_project! {
    /// Future of [`RecordService`](crate::RecordService). Dropping it before it is ready closes
    /// the record as `cancelled`.
    #[derive(Debug)]
    pub struct RecordFuture<F> {
        #[pin]
        answer: F,
        open: Option<Open>,
        header: HeaderValue,
        record: Option<Record>,
    }
}

impl<F> RecordFuture<F> {
    pub(crate) fn new(answer: F, open: Open, header: HeaderValue, record: Option<Record>) -> Self {
        Self {
            answer,
            open: Some(open),
            header,
            record,
        }
    }
}

impl<F, E> Future for RecordFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = Result<Response<Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let polled = {
            let _working = Working::on(this.record);
            this.answer.poll(cx)
        };
        let answer = ready!(polled);
        let open = this.open.take();
        let mut response = match answer {
            Ok(response) => response,
            Err(error) => {
                if let Some(open) = open {
                    open.close(Outcome::Internal);
                }
                return Poll::Ready(Err(error));
            }
        };
        response
            .headers_mut()
            .insert(request_id::HEADER.clone(), this.header.clone());
        let Some(mut open) = open else {
            return Poll::Ready(Ok(response));
        };
        open.answered(&response);
        let record = this.record.take();
        Poll::Ready(Ok(
            response.map(|body| Body::new(RecordedBody::new(body, open, record)))
        ))
    }
}
