//! Answers of the upstream.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};

use super::body::Pieces;
use super::stream::Stream;

pub(super) type Answer = Response<Pieces>;

pub(super) fn object(body: String) -> Answer {
    typed(
        Pieces::Whole(Some(Bytes::from(body))),
        HeaderValue::from_static("application/json"),
    )
}

pub(super) fn events(stream: Arc<Stream>, after: usize, most: Option<usize>) -> Answer {
    let (feed, pieces) = Pieces::fed();
    tokio::spawn(async move { stream.feed(feed, after, most).await });
    typed(pieces, HeaderValue::from_static("text/event-stream"))
}

fn typed(body: Pieces, kind: HeaderValue) -> Answer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

pub(super) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Pieces::Whole(None));
    *answer.status_mut() = status;
    answer
}
