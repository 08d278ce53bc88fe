//! The order of the pipeline: what `pipeline.rs` says, what the page draws and what a request does.

use axum::body::Body;
use http::Request;
use serde_json::json;
use tower::ServiceExt;
use vestibule::pipeline::STAGES;
use vestibule_terms::Record;
use vestibule_testkit::RecordingUpstream;
use vestibule_testkit::recording::{Answer, modern_basics};

use crate::harness::{Gateway, one_upstream};

/// The list in `docs/ARCHITECTURE.md`: the first line after its marker, names in backticks.
fn drawn() -> Vec<String> {
    let page = include_str!("../../../../docs/ARCHITECTURE.md");
    let (_, after) = page.split_once("<!-- stages:").unwrap();
    let line = after.lines().nth(1).unwrap();
    line.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_page_draws_the_stages_of_the_pipeline() {
    assert_eq!(drawn(), STAGES);
}

/// AUT-22: a request passes the stages in exactly the order of the list.
#[tokio::test]
async fn aut_22_a_request_passes_every_stage_in_order() {
    let upstream = RecordingUpstream::start(|request| {
        modern_basics(request, &json!({ "tools": {} })).unwrap_or_else(|| {
            Answer::result(request, &json!({ "resultType": "complete", "content": [] }))
        })
    })
    .await
    .unwrap();
    let gateway = Gateway::start(&one_upstream(&upstream.url()));
    let record = Record::default();
    record.trace_stages();
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let mut request = Request::post("/mcp/t/up")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "x")
        .body(Body::from(body))
        .unwrap();
    request.extensions_mut().insert(record.clone());
    let response = gateway.app.front().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(record.stages(), STAGES);
}
