//! The layer as the pipeline uses it: one record whatever happens to the body.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::Value;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tracing_subscriber::fmt::MakeWriter;
use vestibule_terms::{Method, Outcome, Record, TenantId};

use crate::{Metrics, RecordLayer};

/// Collects log lines of this thread's subscriber.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

impl Lines {
    /// Access records written so far.
    fn access(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        String::from_utf8(bytes)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|line| line["target"] == "access")
            .map(|line| line["fields"].clone())
            .collect()
    }

    fn subscribe(&self) -> tracing::subscriber::DefaultGuard {
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_writer(self.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }
}

fn request(body: &'static str) -> Request<Full<Bytes>> {
    Request::post("/mcp").body(Full::from(body)).unwrap()
}

/// Two frames, so that a body can be left in the middle.
fn two_frames() -> Body {
    let frames = ["one", "two"].map(|text| {
        Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(text.as_bytes())))
    });
    Body::new(StreamBody::new(futures_util::stream::iter(frames)))
}

async fn answer(
    metrics: &Metrics,
    request: Request<Full<Bytes>>,
    respond: impl Fn(&Record) -> Response<Body> + Clone,
) -> Response<Body> {
    let service =
        RecordLayer::new(metrics.clone()).layer(service_fn(move |request: Request<Body>| {
            let respond = respond.clone();
            async move {
                let record = request.extensions().get::<Record>().unwrap().clone();
                request.into_body().collect().await.unwrap();
                Ok::<_, Infallible>(respond(&record))
            }
        }));
    service.oneshot(request).await.unwrap()
}

#[tokio::test]
async fn one_access_record_with_the_facts_and_both_byte_counts() {
    let (lines, metrics) = (Lines::default(), Metrics::new("1", "c"));
    let _guard = lines.subscribe();
    let response = answer(&metrics, request("hello"), |record| {
        record.set_tenant(TenantId::new("acme").unwrap());
        record.set_method(Method::ToolsCall);
        record.set_target(Box::from("search\n"));
        record.set_outcome(Outcome::ToolError);
        Response::new(two_frames())
    })
    .await;
    let id = response.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(lines.access().is_empty(), "the body is still open");
    response.into_body().collect().await.unwrap();

    let records = lines.access();
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!(record["request_id"], id);
    assert_eq!(record["tenant"], "acme");
    assert_eq!(record["method"], "tools/call");
    assert_eq!(record["target"], r"search\u{a}");
    assert_eq!(record["outcome"], "tool_error");
    assert_eq!(record["status"], 200);
    assert_eq!(record["bytes_in"], 5);
    assert_eq!(record["bytes_out"], 6);
    assert!(record["duration_ms"].is_f64());
    assert!(record.get("principal").is_none());
    let text = metrics.expose();
    assert!(
        text.contains(r#"outcome="tool_error",revision="none",server="_unknown",tenant="acme"} 1"#)
    );
}

#[tokio::test]
async fn a_body_dropped_before_its_end_is_cancelled() {
    let (lines, metrics) = (Lines::default(), Metrics::new("1", "c"));
    let _guard = lines.subscribe();
    let response = answer(&metrics, request(""), |_| Response::new(two_frames())).await;
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    let records = lines.access();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["outcome"], "cancelled");
    assert_eq!(records[0]["bytes_out"], 3);
}

#[tokio::test]
async fn a_body_dropped_after_the_outcome_was_known_keeps_it() {
    let (lines, metrics) = (Lines::default(), Metrics::new("1", "c"));
    let _guard = lines.subscribe();
    let response = answer(&metrics, request(""), |record| {
        record.set_outcome(Outcome::Ok);
        Response::new(two_frames())
    })
    .await;
    drop(response);
    assert_eq!(lines.access()[0]["outcome"], "ok");
}

#[tokio::test]
async fn a_request_dropped_before_its_answer_is_recorded_once() {
    let (lines, metrics) = (Lines::default(), Metrics::new("1", "c"));
    let _guard = lines.subscribe();
    let service = RecordLayer::new(metrics).layer(service_fn(|_request: Request<Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>()
    }));
    let mut answer = Box::pin(service.oneshot(request("x")));
    assert!(futures_util::poll!(answer.as_mut()).is_pending());
    drop(answer);
    let records = lines.access();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["outcome"], "cancelled");
    assert!(records[0].get("status").is_none());
}

#[tokio::test]
async fn bodies_nobody_polls_to_the_end_still_close_the_record() {
    let (lines, metrics) = (Lines::default(), Metrics::new("1", "c"));
    let _guard = lines.subscribe();
    let empty = answer(&metrics, request(""), |_| Response::new(Body::empty())).await;
    drop(empty);
    let head = Request::head("/mcp").body(Full::from("")).unwrap();
    let not_sent = answer(&metrics, head, |_| Response::new(Body::from("text"))).await;
    drop(not_sent);
    let mut whole = answer(&metrics, request(""), |_| Response::new(Body::from("text")))
        .await
        .into_body();
    whole.frame().await.unwrap().unwrap(); // a server stops here: the length is known
    drop(whole);
    let outcomes: Vec<_> = lines
        .access()
        .iter()
        .map(|r| r["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["ok", "ok", "ok"]);
}

#[tokio::test]
async fn refusals_are_counted_from_the_record_alone() {
    let metrics = Metrics::new("1", "c");
    for (outcome, reason) in [
        (Outcome::Rejected, "depth"),
        (Outcome::Unauthenticated, "missing"),
    ] {
        let response = answer(&metrics, request(""), move |record| {
            record.set_outcome(outcome);
            record.set_reason(reason);
            Response::new(Body::empty())
        })
        .await;
        drop(response);
    }
    let text = metrics.expose();
    assert!(text.contains(r#"rejected_frames_total{reason="depth"} 1"#));
    assert!(text.contains(r#"auth_failures_total{reason="missing",tenant="_unknown"} 1"#));
}

#[tokio::test]
async fn a_status_stands_for_the_outcome_where_no_layer_said_one() {
    let (lines, metrics) = (Lines::default(), Metrics::new("1", "c"));
    let _guard = lines.subscribe();
    for status in [StatusCode::BAD_REQUEST, StatusCode::INTERNAL_SERVER_ERROR] {
        let response = answer(&metrics, request(""), move |_| {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            response
        })
        .await;
        drop(response);
    }
    let outcomes: Vec<_> = lines
        .access()
        .iter()
        .map(|r| r["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["rejected", "internal"]);
}

/// T22: the caller's request id is neither kept nor seen by anybody below.
#[tokio::test]
async fn t22_the_callers_request_id_is_replaced_by_ours() {
    let service = RecordLayer::new(Metrics::new("1", "c")).layer(service_fn(
        |request: Request<Body>| async move {
            assert!(!request.headers().contains_key("x-request-id"));
            Ok::<_, Infallible>(Response::new(Body::empty()))
        },
    ));
    let ids = ["evil", "evil"].map(|theirs| {
        let mut request = request("");
        request
            .headers_mut()
            .insert("x-request-id", theirs.parse().unwrap());
        request
    });
    let mut seen = Vec::new();
    for request in ids {
        let response = service.clone().oneshot(request).await.unwrap();
        seen.push(
            response.headers()["x-request-id"]
                .to_str()
                .unwrap()
                .to_owned(),
        );
    }
    assert!(
        seen.iter()
            .all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()))
    );
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test(start_paused = true)]
async fn overhead_is_the_time_that_was_not_the_upstreams() {
    let metrics = Metrics::new("1", "c");
    let service =
        RecordLayer::new(metrics.clone()).layer(service_fn(|request: Request<Body>| async move {
            let record = request.extensions().get::<Record>().unwrap().clone();
            tokio::time::advance(std::time::Duration::from_micros(5_200)).await;
            record.add_upstream_time(std::time::Duration::from_millis(5));
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }));
    drop(service.oneshot(request("")).await.unwrap());
    let text = metrics.expose();
    assert!(
        text.contains(r#"overhead_seconds_bucket{method="none",le="0.0001"} 0"#),
        "{text}"
    );
    assert!(
        text.contains(r#"overhead_seconds_bucket{method="none",le="0.005"} 1"#),
        "{text}"
    );
}

#[tokio::test]
async fn the_record_is_the_first_stage_and_keeps_a_trace_that_is_on() {
    let record = Record::default();
    record.trace_stages();
    let mut request = request("");
    request.extensions_mut().insert(record.clone());
    drop(
        answer(&Metrics::new("1", "c"), request, |_| {
            Response::new(Body::empty())
        })
        .await,
    );
    assert_eq!(record.stages(), ["record"]);
}
