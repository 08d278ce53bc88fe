//! Sessions of upstreams with a handshake: who shares them, how they are lost and ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use vestibule_exchange::{Closing, Connector, LogLevel, Outbound, Sharing};
use vestibule_terms::{Deadline, Method};

use crate::world::{
    Seen, Server, World, call, client_session, draft, empty, json_answer, legacy_frame, list, next,
    reason, tool,
};

/// A server with a new session at each `initialize`, and the number of the session as its answer.
async fn sessions() -> Server {
    let made = Arc::new(AtomicUsize::new(0));
    Server::start(move |seen| {
        let made = Arc::clone(&made);
        async move {
            if seen.method() == "initialize" {
                let session = format!("s{}", made.fetch_add(1, Ordering::SeqCst));
                return legacy_frame(&seen, "2025-11-25", Some(&session)).unwrap();
            }
            legacy_frame(&seen, "2025-11-25", None).unwrap_or_else(|| {
                json_answer(
                    200,
                    &seen.result(json!({ "session": seen.header("mcp-session-id") })),
                )
            })
        }
    })
    .await
}

fn of(sharing: Sharing) -> Outbound {
    Outbound {
        sharing,
        ..tool("t")
    }
}

/// T43, cases 92 and 93: principals never share a session, a client session keeps its own.
#[tokio::test]
async fn t43_an_upstream_session_belongs_to_one_principal_or_client_session() {
    let server = sessions().await;
    let world = World::http(&server);
    let mut used = Vec::new();
    for sharing in [
        Sharing::Principal(Arc::from("a")),
        Sharing::Principal(Arc::from("b")),
        Sharing::Session(client_session("x")),
        Sharing::Session(client_session("y")),
    ] {
        let first = world.message(of(sharing.clone())).await["result"]["session"].clone();
        let second = world.message(of(sharing)).await["result"]["session"].clone();
        assert_eq!(first, second);
        used.push(first.as_str().unwrap().to_owned());
    }
    assert_eq!(used.iter().collect::<HashSet<_>>().len(), 4, "{used:?}");
}

/// GET-09: the end of a client session ends its upstream session, and no other.
#[tokio::test]
async fn get_09_closing_a_client_session_deletes_its_upstream_session() {
    let server = sessions().await;
    let world = World::http(&server);
    let mine = world
        .message(of(Sharing::Session(client_session("x"))))
        .await;
    world
        .message(of(Sharing::Session(client_session("y"))))
        .await;
    world
        .upstreams
        .close(client_session("x"), Closing::Here(vec![]))
        .await;
    let deletes: Vec<Seen> = server
        .log()
        .into_iter()
        .filter(|seen| seen.http == http::Method::DELETE)
        .collect();
    assert_eq!(deletes.len(), 1);
    assert_eq!(
        deletes[0].header("mcp-session-id"),
        mine["result"]["session"].as_str()
    );
    let anew = world
        .message(of(Sharing::Session(client_session("x"))))
        .await;
    assert_ne!(anew["result"]["session"], mine["result"]["session"]);
    world.upstreams.shutdown(false).await;
    let deletes = server
        .log()
        .iter()
        .filter(|seen| seen.http == http::Method::DELETE)
        .count();
    assert_eq!(deletes, 4, "catalog, x twice, y");
}

/// Case 117, SES-08: an upstream that issues no session id is served all the same.
#[tokio::test]
async fn case_117_an_upstream_without_session_ids_is_used_without() {
    let server = Server::start(|seen| async move {
        if seen.http == http::Method::DELETE {
            return empty(405);
        }
        legacy_frame(&seen, "2025-06-18", None)
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    let world = World::http(&server);
    world
        .message(of(Sharing::Session(client_session("x"))))
        .await;
    world
        .upstreams
        .close(client_session("x"), Closing::Here(vec![]))
        .await;
    assert!(
        server
            .log()
            .iter()
            .all(|seen| seen.header("mcp-session-id").is_none())
    );
    assert!(
        server
            .log()
            .iter()
            .all(|seen| seen.http != http::Method::DELETE)
    );
}

/// SES-04, STA-26, case 113: many calls that meet the end of a session open one new session, and
/// each is sent again once: 404 proves that it did not run.
#[tokio::test]
async fn case_113_a_lost_session_is_opened_anew_once_for_all_calls() {
    let (made, lost) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let state = (Arc::clone(&made), Arc::clone(&lost));
    let server = Server::start(move |seen| {
        let (made, lost) = (Arc::clone(&state.0), Arc::clone(&state.1));
        async move {
            if seen.method() == "initialize" {
                let session = format!("s{}", made.fetch_add(1, Ordering::SeqCst));
                return legacy_frame(&seen, "2025-11-25", Some(&session)).unwrap();
            }
            let old = matches!(seen.header("mcp-session-id"), Some("s0" | "s1"));
            if lost.load(Ordering::SeqCst) && old {
                return empty(404);
            }
            legacy_frame(&seen, "2025-11-25", None)
                .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
        }
    })
    .await;
    let world = Arc::new(World::http(&server));
    world.message(tool("t")).await;
    lost.store(true, Ordering::SeqCst);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let world = Arc::clone(&world);
        calls.spawn(async move { world.message(tool("t")).await });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    assert_eq!(
        made.load(Ordering::SeqCst),
        3,
        "catalog, principal, and its replacement"
    );
}

/// Case 113: an upstream that answers 404 to everything gets no loop of handshakes.
#[tokio::test]
async fn case_113_a_session_that_is_always_lost_is_given_up() {
    let server = Server::start(|seen| async move {
        legacy_frame(&seen, "2025-11-25", Some("s")).unwrap_or_else(|| empty(404))
    })
    .await;
    let error = World::http(&server).error(tool("t")).await;
    assert_eq!(
        (error.code, reason(&error).as_str()),
        (-31001, "session_lost")
    );
    assert_eq!(server.count("tools/call"), 2);
    assert_eq!(server.count("initialize"), 3);
}

/// After a session was lost its subscriptions are made again.
#[tokio::test]
async fn ses_04_subscriptions_are_renewed_on_a_new_session() {
    let lost = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&lost);
    let mut server = Server::start(move |seen| {
        let lost = Arc::clone(&state);
        async move {
            if seen.method() == "tools/call" && lost.swap(false, Ordering::SeqCst) {
                return empty(404);
            }
            legacy_frame(&seen, "2025-11-25", Some("s"))
                .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
        }
    })
    .await;
    let world = World::http(&server);
    for uri in ["a:1", "a:2"] {
        world
            .message(call(Method::ResourcesSubscribe, json!({ "uri": uri })))
            .await;
    }
    world
        .message(call(Method::ResourcesUnsubscribe, json!({ "uri": "a:1" })))
        .await;
    lost.store(true, Ordering::SeqCst);
    world.message(tool("t")).await;
    server.next_method("tools/call").await;
    let renewed = server.next_method("resources/subscribe").await;
    assert_eq!(renewed.body["params"], json!({ "uri": "a:2" }));
    assert_eq!(server.count("resources/subscribe"), 3);
}

/// CAN-01, T42, case 84: a dropped call is cancelled under our id, in its own session.
#[tokio::test]
async fn case_84_a_dropped_call_is_cancelled_under_our_id() {
    let mut server = Server::start(|seen| async move {
        match legacy_frame(&seen, "2025-11-25", Some("s")) {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    })
    .await;
    let world = World::http(&server);
    let mut events = world.events(tool("t")).await;
    let sent = tokio::select! {
        sent = server.next_method("tools/call") => sent,
        event = next(&mut events) => panic!("{event:?}"),
    };
    drop(events);
    let cancelled = server.next_method("notifications/cancelled").await;
    assert_eq!(cancelled.body["params"]["requestId"], sent.body["id"]);
    assert_ne!(sent.body["id"], 101);
    assert_eq!(cancelled.header("mcp-session-id"), Some("s"));
}

/// LIF-10, CAN-01: a call that takes too long is cancelled too. CAN-02: `initialize` is not.
#[tokio::test]
async fn lif_10_a_timeout_cancels_the_call_but_never_initialize() {
    let mut server = Server::start(|seen| async move {
        match legacy_frame(&seen, "2025-11-25", Some("s")) {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    })
    .await;
    let world = World::http(&server);
    let mut outbound = tool("t");
    outbound.deadline = Deadline::starting_now(Duration::from_millis(200), Duration::from_secs(60));
    assert_eq!(world.code(outbound).await, -31002);
    server.next_method("notifications/cancelled").await;

    let server = Server::start(|seen| async move {
        if seen.method() == "initialize" {
            std::future::pending::<()>().await;
        }
        legacy_frame(&seen, "2025-11-25", Some("s")).unwrap()
    })
    .await;
    let mut target = crate::world::http_target(&server.url);
    target.timeouts.idle = Duration::from_millis(50);
    let world = World::new(target);
    assert_eq!(world.code(tool("t")).await, -31002);
    assert_eq!(server.count("notifications/cancelled"), 0);
}

/// A finished call is not cancelled.
#[tokio::test]
async fn can_04_a_finished_call_is_not_cancelled() {
    let server = sessions().await;
    let world = World::http(&server);
    drop(world.events(list()).await);
    world.message(list()).await;
    world.upstreams.shutdown(false).await;
    assert_eq!(server.count("notifications/cancelled"), 0);
}

/// The level that a client wants is set before its call, when it differs.
#[tokio::test]
async fn the_log_level_is_set_before_the_call_that_wants_it() {
    let server = sessions().await;
    let world = World::http(&server);
    let wants = |level, sharing| Outbound {
        log_level: level,
        ..of(sharing)
    };
    let private = Sharing::Session(client_session("x"));
    for level in [
        None,
        Some(LogLevel::Warning),
        Some(LogLevel::Warning),
        Some(LogLevel::Error),
    ] {
        world.message(wants(level, private.clone())).await;
    }
    // a shared session only becomes more talkative: each call filters for itself
    let shared = Sharing::Principal(Arc::from("p"));
    for level in [LogLevel::Warning, LogLevel::Error, LogLevel::Debug] {
        world.message(wants(Some(level), shared.clone())).await;
    }
    let set: Vec<String> = server
        .log()
        .iter()
        .filter(|seen| seen.method() == "logging/setLevel")
        .map(|seen| seen.body["params"]["level"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(set, ["warning", "error", "warning", "debug"]);
}

/// `roots/list_changed` goes to the private sessions that were told of it, and to no other.
#[tokio::test]
async fn roots_changes_go_to_the_private_sessions_that_were_told_of_them() {
    let mut server = sessions().await;
    let world = World::http(&server);
    let with = |name: &str, caps: &str| {
        let capabilities = vestibule_exchange::Capabilities::parse(caps.as_bytes());
        let sharing = Sharing::Session(client_session(name));
        Outbound {
            capabilities: Arc::new(capabilities),
            ..of(sharing)
        }
    };
    let mine = world
        .message(with("x", r#"{"roots":{"listChanged":true}}"#))
        .await;
    world.message(with("y", r#"{"roots":{}}"#)).await;
    let changed = draft(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    world
        .upstreams
        .notify(client_session("y"), changed.clone())
        .await;
    world.upstreams.notify(client_session("x"), changed).await;
    let told = server.next_method("notifications/roots/list_changed").await;
    assert_eq!(
        told.header("mcp-session-id"),
        mine["result"]["session"].as_str()
    );
    assert_eq!(server.count("notifications/roots/list_changed"), 1);
}

/// An upstream that names an unknown session with 400 and words is treated like one that says 404.
#[tokio::test]
async fn sta_26_a_400_that_names_the_session_opens_a_new_one() {
    let asked = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen| {
        let asked = Arc::clone(&asked);
        async move {
            if seen.method() == "tools/call" && asked.fetch_add(1, Ordering::SeqCst) == 1 {
                let error = json!({ "code": -32000, "message": "Bad Request: No valid session ID provided" });
                return json_answer(400, &json!({ "jsonrpc": "2.0", "id": null, "error": error }));
            }
            legacy_frame(&seen, "2025-11-25", Some("s"))
                .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
        }
    })
    .await;
    let world = World::http(&server);
    world.message(tool("t")).await;
    world.message(tool("t")).await;
    assert_eq!(server.count("initialize"), 3);
}
