//! The two body wrappers: one counts what arrives, the other counts what leaves and closes the
//! record at its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use pin_project_lite::pin_project;
use vestibule_terms::{Outcome, Record};

use crate::record::access::Open;
use crate::record::current::Working;

pin_project! {
    /// A request body that counts its bytes.
    pub(crate) struct CountedRequest<B> {
        #[pin]
        inner: B,
        bytes: Arc<AtomicU64>,
    }
}

impl<B> CountedRequest<B> {
    pub(crate) fn new(inner: B, bytes: Arc<AtomicU64>) -> Self {
        Self { inner, bytes }
    }
}

impl<B: http_body::Body<Data = Bytes>> http_body::Body for CountedRequest<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.inner.poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            this.bytes.fetch_add(data_len(frame), Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A response body that closes the record when it ends, fails or is dropped.
pub(crate) struct RecordedBody {
    inner: Body,
    open: Option<Open>,
    record: Option<Record>,
}

impl RecordedBody {
    pub(crate) fn new(inner: Body, open: Open, record: Option<Record>) -> Self {
        let mut body = Self {
            inner,
            open: Some(open),
            record,
        };
        body.close_if_ended();
        body
    }

    /// The server does not poll a body to its `None` when it already knows that it has ended.
    fn close_if_ended(&mut self) {
        let headless = self.open.as_ref().is_some_and(Open::sends_no_body);
        if headless || self.inner.is_end_stream() {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let outcome = open.outcome_of_status();
            open.close(outcome);
        }
    }
}

impl http_body::Body for RecordedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let polled = {
            let _working = Working::on(&mut this.record);
            Pin::new(&mut this.inner).poll_frame(cx)
        };
        let frame = ready!(polled);
        match &frame {
            Some(Ok(frame)) => {
                if let Some(open) = &mut this.open {
                    open.sent(data_len(frame));
                }
                this.close_if_ended();
            }
            Some(Err(_)) => {
                if let Some(open) = this.open.take() {
                    open.close(Outcome::Internal);
                }
            }
            None => this.close(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn data_len(frame: &Frame<Bytes>) -> u64 {
    let len = frame.data_ref().map_or(0, Bytes::len);
    u64::try_from(len).unwrap_or(u64::MAX)
}
