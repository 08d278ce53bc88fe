//! Lists are answered as one JSON object, not as a stream of one event: a
//! server with nothing to say on the way has no use for a stream, and both
//! forms of answer should occur in what the fixture serves.

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::Response,
};
use futures_util::StreamExt;
use serde_json::Value;

use crate::sse::SseReader;

/// Requests and lists are far smaller.
const LIMIT: usize = 1 << 20;

/// Turns the stream that answers a list into the JSON of its one message.
pub(super) async fn lists(request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    let body = collect(body).await;
    let is_list = serde_json::from_slice::<Value>(&body)
        .ok()
        .and_then(|message| {
            message["method"]
                .as_str()
                .map(|method| method.ends_with("/list"))
        })
        .unwrap_or_default();
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    let streams = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if is_list && streams {
        plain(response).await
    } else {
        response
    }
}

async fn plain(response: Response) -> Response {
    let (mut head, body) = response.into_parts();
    let text = collect(body).await;
    let messages: Vec<String> = SseReader::default()
        .push(&text)
        .into_iter()
        .filter_map(|event| event.data)
        .filter(|data| !data.is_empty())
        .collect();
    let [answer] = messages.as_slice() else {
        return Response::from_parts(head, Body::from(text));
    };
    let kind = HeaderValue::from_static("application/json");
    head.headers.insert(header::CONTENT_TYPE, kind);
    Response::from_parts(head, Body::from(answer.clone()))
}

async fn collect(body: Body) -> Bytes {
    let mut whole = Vec::new();
    let mut chunks = body.into_data_stream();
    while let Some(Ok(chunk)) = chunks.next().await {
        if whole.len() + chunk.len() <= LIMIT {
            whole.extend_from_slice(&chunk);
        }
    }
    Bytes::from(whole)
}
