//! Reads the body of a POST, once, up to its cap, and scans it: the [`vestibule_frame::Payload`]
//! every later stage reads. The first stage that touches the body; whoever sent it has been let in.
//!
//! A body that is not there when the plan's silence limit is over, or comes too slowly before, is given
//! up (400). Whether a batch is
//! allowed depends on the session, which this layer does not know.

mod layer;
mod service;

use vestibule_frame::FrameError;
use vestibule_frame::body::BodyError;
use vestibule_terms::Reject;

pub use layer::FrameLayer;
pub use service::FrameService;

/// What the scanner said, as a refusal with the id it could still read (FRM-21).
fn refuse(error: &FrameError) -> (Reject, Option<Vec<u8>>) {
    let refusal = Reject::Frame {
        status: error.reason.http_status(),
        code: error.reason.code(),
        reason: error.reason.label(),
        message: error.reason.to_string(),
    };
    (refusal, error.id.as_ref().map(|id| id.as_bytes().to_vec()))
}

/// What the body said.
fn broken(error: &BodyError) -> Reject {
    match error {
        BodyError::TooLarge { cap } => Reject::BodyTooLarge { limit: *cap },
        BodyError::Broken(_) => Reject::BodyUnreadable,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::body::Body;
    use futures_util::{StreamExt as _, stream};
    use http::Request;
    use vestibule_frame::body::FrameBody;
    use vestibule_frame::{Limits, Payload};
    use vestibule_terms::Deadline;

    use super::*;
    use crate::testing::{plan, through, with_body};

    fn post(body: &'static str) -> Request<FrameBody> {
        let mut request = with_body("POST", "/mcp", &[], body);
        request.extensions_mut().insert(Arc::new(plan("t", "s")));
        request
    }

    #[tokio::test]
    async fn a_scanned_message_is_a_fact_of_the_request() {
        let request = post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let outcome = through(&FrameLayer::new(Limits::default()), request).await;
        assert_eq!(outcome.status(), 200);
        let payload = outcome.seen.fact::<Payload>().unwrap();
        assert!(matches!(payload, Payload::Single(_)));
        assert_eq!(outcome.record.stages(), ["frame"]);
    }

    #[tokio::test]
    async fn a_get_has_no_body_to_scan() {
        let request = with_body("GET", "/mcp", &[], "not json");
        let outcome = through(&FrameLayer::new(Limits::default()), request).await;
        assert_eq!(outcome.status(), 200);
        assert!(outcome.seen.fact::<Payload>().is_none());
    }

    /// STA-13, FRM-02, FRM-21: broken JSON is -32700 without an id; a bad message keeps its id.
    #[tokio::test]
    async fn sta_13_bad_bodies_are_400_with_the_id_where_it_was_read() {
        for (body, code, id) in [
            ("{\"jsonrpc\":\"2.0\",\"id\":1,", -32700, None),
            ("[]", -32600, None),
            (
                r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#,
                -32600,
                Some("a"),
            ),
        ] {
            let outcome = through(&FrameLayer::new(Limits::default()), post(body)).await;
            assert_eq!(outcome.status(), 400, "{body}");
            assert_eq!(outcome.record.code(), Some(&code), "{body}");
            assert!(!outcome.seen.came_through());
            let text = FrameBody::new(outcome.response.into_body(), 4096)
                .read()
                .await
                .unwrap();
            let answer: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(answer.get("id").and_then(|id| id.as_str()), id, "{body}");
        }
    }

    /// Case 74: a chunked body over the cap is 413 naming the limit.
    #[tokio::test]
    async fn case_74_a_body_over_its_cap_is_413() {
        let chunks = stream::iter((0..100).map(|_| Ok::<_, std::io::Error>("          ")));
        let body = FrameBody::new(Body::from_stream(chunks), 64);
        let request = post("").map(|_| body);
        let outcome = through(&FrameLayer::new(Limits::default()), request).await;
        assert_eq!(outcome.status(), 413);
    }

    /// T24: a body that stops coming is given up when the request's silence limit is over.
    #[tokio::test(start_paused = true)]
    async fn t24_a_stalled_body_is_given_up() {
        let stalled = Body::from_stream(stream::pending::<Result<&'static str, std::io::Error>>());
        let mut request = post("").map(|_| FrameBody::new(stalled, 64));
        let second = Duration::from_secs(1);
        request
            .extensions_mut()
            .insert(Deadline::starting_now(second, second));
        let outcome = through(&FrameLayer::new(Limits::default()), request).await;
        assert_eq!(outcome.status(), 400);
        assert_eq!(outcome.reason(), Some("body_unreadable"));
    }

    /// A message of 40 KiB, in pieces of this size, one each second.
    fn drip(size: usize) -> Request<FrameBody> {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#,
            "y".repeat(40 * 1024)
        );
        let pieces: Vec<String> = text
            .as_bytes()
            .chunks(size)
            .map(|piece| String::from_utf8_lossy(piece).into_owned())
            .collect();
        let slow = stream::iter(pieces).then(|piece| async {
            tokio::time::sleep(Duration::from_secs(1)).await; // of paused time
            Ok::<_, std::io::Error>(piece)
        });
        let mut request = post("").map(|_| FrameBody::new(Body::from_stream(slow), 1 << 20));
        let minute = Duration::from_secs(60);
        let deadline = Deadline::starting_now(minute, minute);
        request.extensions_mut().insert(deadline);
        request
    }

    /// T24: a body may be slow, but not for ever: after ten seconds a KiB must come each second.
    #[tokio::test(start_paused = true)]
    async fn t24_a_body_that_drips_is_given_up() {
        for (size, taken, seconds) in [
            (1, false, 11),
            (500, false, 20),
            (1_100, true, 38),
            (10_000, true, 5),
        ] {
            let start = tokio::time::Instant::now();
            let outcome = through(&FrameLayer::new(Limits::default()), drip(size)).await;
            assert_eq!(outcome.status(), if taken { 200 } else { 400 }, "{size}");
            assert_eq!(start.elapsed().as_secs(), seconds, "{size}");
        }
    }

    /// T24: the silence limit holds for a body of any rate.
    #[tokio::test(start_paused = true)]
    async fn t24_a_body_must_come_within_the_silence_limit() {
        let mut request = drip(1_100);
        let short = Duration::from_secs(15);
        let deadline = Deadline::starting_now(short, short);
        request.extensions_mut().insert(deadline);
        let start = tokio::time::Instant::now();
        let outcome = through(&FrameLayer::new(Limits::default()), request).await;
        assert_eq!(outcome.status(), 400);
        assert_eq!(start.elapsed().as_secs(), 15);
    }
}
