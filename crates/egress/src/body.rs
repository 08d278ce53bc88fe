//! The body of an answer, whichever client brought it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use crate::plain::PlainBody;

/// An answer's body. Dropping it before its end gives the request up.
pub struct EgressBody(Source);

enum Source {
    Plain(PlainBody),
    Pooled(Incoming),
}

impl EgressBody {
    pub(crate) fn plain(body: PlainBody) -> Self {
        Self(Source::Plain(body))
    }

    pub(crate) fn pooled(body: Incoming) -> Self {
        Self(Source::Pooled(body))
    }
}

impl fmt::Debug for EgressBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EgressBody")
    }
}

impl HttpBody for EgressBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Source::Plain(body) => Pin::new(body).poll_frame(context),
            Source::Pooled(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Plain(body) => body.is_end_stream(),
            Source::Pooled(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Plain(body) => body.size_hint(),
            Source::Pooled(body) => body.size_hint(),
        }
    }
}
