//! Reading an answer to its end, and judging whether it is one.

use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::events::{Event, EventReader};
use crate::measure::Received;

/// Answers up to this size are parsed whole; of larger ones only both ends are looked at, because
/// the generator shares its processors with what it measures.
const PARSED: usize = 4 * 1024;
/// How much of each end that is.
const END: usize = 256;
/// An answer larger than this ends the call.
const LARGEST: usize = 64 * 1024 * 1024;

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No connection.
    #[error("connect")]
    Connect(#[source] std::io::Error),
    /// The connection broke, or what came was not HTTP.
    #[error("broken")]
    Broken(#[source] hyper::Error),
    /// Another status than 200.
    #[error("status {}", .0.as_u16())]
    Status(StatusCode),
    /// A JSON-RPC error.
    #[error("error in the answer")]
    Error,
    /// No response to this request: another id, no result, or a stream that ended early.
    #[error("no answer")]
    NoAnswer,
    /// Too much of it.
    #[error("too large")]
    TooLarge,
    /// It took longer than `--timeout`.
    #[error("timeout")]
    Timeout,
    /// The server opened no session.
    #[error("no session")]
    NoSession,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Reads an answer to call `id`.
///
/// # Errors
/// Everything that is not a result for this call.
pub async fn read(
    response: Response<Incoming>,
    id: u64,
    scratch: &mut Vec<u8>,
) -> Result<Received, Failure> {
    if response.status() != StatusCode::OK {
        return Err(Failure::Status(response.status()));
    }
    if is_stream(&response) {
        read_stream(response.into_body(), id).await
    } else {
        read_object(response.into_body(), id, scratch).await
    }
}

/// True for `text/event-stream`.
pub fn is_stream<B>(response: &Response<B>) -> bool {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .map(http::HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"))
}

async fn read_object(
    mut body: Incoming,
    id: u64,
    scratch: &mut Vec<u8>,
) -> Result<Received, Failure> {
    scratch.clear();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Failure::Broken)?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if scratch.len() + data.len() > LARGEST {
            return Err(Failure::TooLarge);
        }
        scratch.extend_from_slice(data);
    }
    judge(scratch, id)?;
    Ok(Received {
        bytes: u64::try_from(scratch.len()).unwrap_or(u64::MAX),
        events: 0,
    })
}

async fn read_stream(mut body: Incoming, id: u64) -> Result<Received, Failure> {
    let mut reader = EventReader::default();
    let mut received = Received::default();
    let mut last = Event::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Failure::Broken)?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        received.bytes += u64::try_from(data.len()).unwrap_or(u64::MAX);
        reader.push(data, |event| {
            if !event.data.is_empty() {
                received.events += 1;
                last = event;
            }
        });
    }
    judge(&last.data, id)?;
    Ok(received)
}

/// Whether these bytes are a result for call `id`.
///
/// # Errors
/// An error response, or anything else.
pub fn judge(bytes: &[u8], id: u64) -> Result<(), Failure> {
    if bytes.len() > PARSED {
        let front = bytes
            .first_chunk::<END>()
            .map_or(bytes, |front| front.as_slice());
        let back = bytes
            .last_chunk::<END>()
            .map_or(bytes, |back| back.as_slice());
        let wanted = format!("\"id\":{id}");
        let has = |text: &str| holds(front, text) || holds(back, text);
        return if has(&wanted) && has("\"result\":") {
            Ok(())
        } else {
            Err(Failure::NoAnswer)
        };
    }
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(|_| Failure::NoAnswer)?;
    let is_ours = envelope.id.is_some_and(|got| got.get() == id.to_string());
    match (is_ours, envelope.result, envelope.error) {
        (true, Some(_), None) => Ok(()),
        (_, _, Some(_)) => Err(Failure::Error),
        (_, Some(_) | None, None) => Err(Failure::NoAnswer),
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> String {
        judge(text.as_bytes(), 7).map_or_else(|failure| failure.to_string(), |()| "good".to_owned())
    }

    #[test]
    fn only_a_result_with_the_right_id_is_an_answer() {
        assert_eq!(verdict(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#), "good");
        assert_eq!(
            verdict(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#),
            "no answer"
        );
        assert_eq!(
            verdict(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#),
            "no answer"
        );
        assert_eq!(
            verdict(r#"{"jsonrpc":"2.0","id":7,"error":{}}"#),
            "error in the answer"
        );
        assert_eq!(
            verdict(r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#),
            "no answer"
        );
        assert_eq!(verdict("<html>"), "no answer");
        assert_eq!(verdict(""), "no answer");
    }

    #[test]
    fn of_a_large_answer_both_ends_are_looked_at() {
        let text = "x".repeat(PARSED);
        let in_front = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"t":"{text}"}}}}"#);
        let behind = format!(r#"{{"result":{{"t":"{text}"}},"jsonrpc":"2.0","id":7}}"#);
        let other = format!(r#"{{"jsonrpc":"2.0","id":9,"result":{{"t":"{text}"}}}}"#);
        assert_eq!(verdict(&in_front), "good");
        assert_eq!(verdict(&behind), "good");
        assert_eq!(verdict(&other), "no answer");
    }
}
