//! What goes wrong on the way, and what the caller reads of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::Response;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use vestibule_terms::{Deadline, Method};
use vestibule_upstream::EraChoice;

use crate::world::{
    Server, World, call, empty, http_target, json_answer, list, modern_discover, reason, tool,
};

fn pinned(url: &str) -> World {
    let mut target = http_target(url);
    target.era = EraChoice::Modern;
    World::new(target)
}

/// A server that closes each connection after it has read a request.
async fn hangs_up() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut some = [0; 4096];
            let _read = stream.read(&mut some).await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (url, requests)
}

/// SSE-13, case 130: a lost tool call is not repeated, a lost list is, once.
#[tokio::test]
async fn sse_13_a_lost_tool_call_is_never_sent_again() {
    let (url, requests) = hangs_up().await;
    let error = pinned(&url).error(tool("t")).await;
    assert_eq!(
        (error.code, reason(&error).as_str()),
        (-31001, "outcome_unknown")
    );
    assert_eq!(requests.load(Ordering::SeqCst), 1);

    let (url, requests) = hangs_up().await;
    let error = pinned(&url).error(list()).await;
    assert_eq!(
        (error.code, reason(&error).as_str()),
        (-31001, "connection_lost")
    );
    assert_eq!(requests.load(Ordering::SeqCst), 2);
}

/// SSE-13: a stream that breaks in the middle has lost its call too.
#[tokio::test]
async fn sse_13_a_stream_that_breaks_has_an_unknown_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut some = [0; 4096];
        let _read = stream.read(&mut some).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(b"8\r\ndata: {\"\r\n").await.unwrap();
    });
    let error = pinned(&url).error(tool("t")).await;
    assert_eq!(reason(&error), "outcome_unknown");
}

/// Case 22 of the fault list: nobody listens. The gauge says so.
#[tokio::test]
async fn a_refused_connection_is_unavailable_and_the_gauge_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let world = World::new(http_target(&url));
    let error = world.error(tool("t")).await;
    assert_eq!((error.code, reason(&error).as_str()), (-31001, "connect"));
    let text = world.metrics.expose();
    assert!(
        text.contains("vestibule_upstream_up{tenant=\"t\",upstream=\"up\"} 0"),
        "{text}"
    );
}

/// Case 73: an upstream that cannot be reached is not waited for by one call after the other, and
/// it is found again when it is there.
#[tokio::test]
async fn case_73_an_upstream_that_comes_back_is_found_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let world = pinned(&format!("http://{address}/mcp"));
    for _ in 0..20 {
        assert_eq!(world.code(tool("t")).await, -31001);
    }
    let server = Server::start_at(address, |seen| async move {
        json_answer(200, &seen.result(json!({})))
    })
    .await;
    let back = async {
        while let vestibule_exchange::Final::Error(error) = world.end(tool("t")).await {
            assert_eq!(reason(&error), "connect");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), back)
        .await
        .expect("it is found again");
    assert_eq!(server.log().len(), 1);
}

/// STA-25, STA-29: statuses of an upstream become errors of ours.
#[tokio::test]
async fn sta_25_statuses_become_errors_of_ours() {
    let server = Server::start(|seen| async move {
        let status = seen.body["params"]["name"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        empty(status)
    })
    .await;
    let world = pinned(&server.url);
    for (status, code) in [
        ("401", -31008),
        ("403", -31008),
        ("429", -31001),
        ("500", -31001),
        ("502", -31001),
        ("503", -31001),
        ("400", -31003),
        ("404", -31003),
        ("405", -31003),
        ("406", -31003),
    ] {
        assert_eq!(world.code(tool(status)).await, code, "{status}");
    }
    assert_eq!(server.log().len(), 10, "tool calls are not repeated");
}

/// STA-28: a list is tried again after Retry-After, a tool call is not.
#[tokio::test]
async fn sta_28_a_list_is_tried_again_after_retry_after() {
    let asked = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen| {
        let turn = asked.fetch_add(1, Ordering::SeqCst);
        async move {
            if turn == 0 {
                return Response::builder()
                    .status(429)
                    .header("retry-after", "0")
                    .body(Body::empty())
                    .unwrap();
            }
            json_answer(200, &seen.result(json!({})))
        }
    })
    .await;
    pinned(&server.url).message(list()).await;
    assert_eq!(server.log().len(), 2);
}

/// HTR-10, case 138: 307 and 308 within the origin are followed with the body, at most three.
#[tokio::test]
async fn htr_10_redirects_within_the_origin_are_followed_with_the_body() {
    let server = Server::start(|seen| async move {
        let hop = |status: u16, to: &str| {
            Response::builder()
                .status(status)
                .header("location", to)
                .body(Body::empty())
                .unwrap()
        };
        match seen.path.as_str() {
            "/mcp" => hop(307, "/mcp/"),
            "/mcp/" => hop(308, "/there"),
            "/there" => json_answer(200, &seen.result(json!({}))),
            "/loop" => hop(307, "/loop"),
            _ => hop(303, "/there"),
        }
    })
    .await;
    pinned(&server.url).message(tool("t")).await;
    let log = server.log();
    assert_eq!(log.len(), 3);
    assert!(
        log.iter()
            .all(|seen| seen.raw == log[0].raw && seen.http == http::Method::POST)
    );
    let other = |path: &str| pinned(&server.url.replace("/mcp", path));
    assert_eq!(other("/loop").code(tool("t")).await, -31003);
    assert_eq!(server.log().len(), 3 + 4);
    assert_eq!(other("/see-other").code(tool("t")).await, -31003);
    assert_eq!(server.log().len(), 3 + 4 + 1);
}

/// HTR-10: another origin is named, and nothing is sent there.
#[tokio::test]
async fn htr_10_nothing_is_sent_to_another_origin() {
    let other = Server::start(|_| async move { empty(200) }).await;
    let to = other.url.clone();
    let server = Server::start(move |_| {
        let to = to.clone();
        async move {
            Response::builder()
                .status(307)
                .header("location", to)
                .body(Body::empty())
                .unwrap()
        }
    })
    .await;
    let error = pinned(&server.url).error(tool("t")).await;
    assert_eq!(error.code, -31003);
    assert!(
        error.message.contains(other.url.trim_end_matches("/mcp")),
        "{}",
        error.message
    );
    assert!(other.log().is_empty());
}

/// LIF-09, LIF-10: silence ends a call with -31002.
#[tokio::test]
async fn lif_09_silence_ends_a_call() {
    let server = Server::start(|seen| async move {
        if seen.method() == "server/discover" {
            return modern_discover(&seen);
        }
        std::future::pending().await
    })
    .await;
    let world = World::http(&server);
    let mut outbound = tool("t");
    outbound.deadline = Deadline::starting_now(Duration::from_millis(50), Duration::from_secs(60));
    assert_eq!(world.code(outbound).await, -31002);
    let mut outbound = tool("t");
    outbound.deadline = Deadline::starting_now(Duration::from_secs(60), Duration::from_millis(50));
    assert_eq!(world.code(outbound).await, -31002);
    let text = world.metrics.expose();
    assert!(
        text.contains("upstream_up{tenant=\"t\",upstream=\"up\"} 1"),
        "a slow call is no lost upstream: {text}"
    );
}

/// Case 27 of the fault list: neither a body nor an event is read beyond the cap.
#[tokio::test]
async fn an_answer_beyond_the_cap_is_refused() {
    let server = Server::start(|seen| async move {
        let result = seen.result(json!({ "text": "x".repeat(5000) }));
        if seen.body["params"]["name"] == "sse" {
            return crate::world::sse(crate::world::event(&result));
        }
        json_answer(200, &result)
    })
    .await;
    let mut target = http_target(&server.url);
    (target.era, target.max_response) = (EraChoice::Modern, 4096);
    let world = World::new(target);
    for name in ["json", "sse"] {
        let error = world
            .error(call(Method::ToolsCall, json!({ "name": name })))
            .await;
        assert_eq!(
            (error.code, reason(&error).as_str()),
            (-31003, "too_large"),
            "{name}"
        );
    }
}
