use http::Method as Verb;
use serde_json::json;
use vestibule_exchange::Events;
use vestibule_store::Caps;
use vestibule_terms::accept::Accepts;
use vestibule_terms::{Outcome, Principal, Record, Revision, ServerId};

use super::{Below, RESULT, error, quick};
use crate::testing::{House, Item, call, initialize, result};

const D: Revision = Revision::R2025_11_25;

/// LIF-02, SES-01, HDR-06, XT-010: the answer to initialize.
#[tokio::test]
async fn lif_02_initialize_describes_the_server_and_opens_a_session() {
    let got = quick().post(&[], &initialize("2025-11-25", "{}")).await;
    assert_eq!(got.status(), 200);
    assert_eq!(got.header("mcp-session-id").unwrap().len(), 43);
    let body = got.json().await;
    let expected = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {
            "logging": {}, "prompts": {"listChanged": true}, "tools": {"listChanged": true},
            "resources": {"subscribe": true, "listChanged": true}, "completions": {},
        },
        "serverInfo": {"name": "vestibule", "version": "1.2.3"},
        "instructions": "Say \"please\".",
    });
    assert_eq!(body, json!({"jsonrpc": "2.0", "id": 0, "result": expected}));
}

/// CAP-10: 2024-11-05 has no completions flag.
#[tokio::test]
async fn cap_10_the_oldest_revision_has_no_completions_flag() {
    let body = quick()
        .post(&[], &initialize("2024-11-05", "{}"))
        .await
        .json()
        .await;
    assert_eq!(body["result"]["protocolVersion"], "2024-11-05");
    assert!(body["result"]["capabilities"].get("completions").is_none());
}

/// VER-01, case 146: known versions are echoed, everything else gets the newest legacy one.
#[tokio::test]
async fn case_146_versions_are_negotiated_never_refused() {
    let mut house = quick();
    for (asked, given) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2026-07-28", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let got = house
            .post(&[("mcp-protocol-version", "x")], &initialize(asked, "{}"))
            .await;
        assert_eq!(got.status(), 200, "{asked}");
        assert_eq!(
            got.json().await["result"]["protocolVersion"],
            given,
            "{asked}"
        );
    }
    let bare = r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#;
    assert_eq!(house.post(&[], bare).await.status(), 200);
    house.plan.revisions = vec![Revision::R2025_03_26, Revision::R2025_06_18];
    let body = house
        .post(&[], &initialize("2025-11-25", "{}"))
        .await
        .json()
        .await;
    assert_eq!(body["result"]["protocolVersion"], "2025-06-18");
}

/// LIF-07: initialize again on a live session is refused; a dead or foreign id is ignored.
#[tokio::test]
async fn lif_07_a_live_session_is_not_opened_again() {
    let house = quick();
    let id = house.open(D, "{}").await;
    let again = initialize("2025-11-25", "{}");
    let got = house.in_session(&id, &again).await;
    assert_eq!((got.status().as_u16(), got.code().await), (400, -32600));
    assert_eq!(house.delete(&[("mcp-session-id", &id)]).await.status(), 204);
    for stale in [id.as_str(), "x"] {
        let got = house.in_session(stale, &again).await;
        assert_eq!(got.status(), 200);
        assert_ne!(got.header("mcp-session-id"), Some(stale));
    }
}

/// STA-05, STA-06, case 109, case 111: no id 400, a dead or unknown one 404 on everything.
#[tokio::test]
async fn case_109_unknown_sessions_are_404_on_every_verb() {
    let house = quick();
    let dead = house.open(D, "{}").await;
    house.delete(&[("mcp-session-id", &dead)]).await;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for id in ["dead", dead.as_str()] {
        for body in [call("1", "").as_str(), note, response] {
            let got = house.in_session(id, body).await;
            assert_eq!(got.status(), 404, "{body}");
            let error = got.json().await;
            assert_eq!(error["error"]["code"], -32600);
            let echoed = error.get("id").is_some();
            assert_eq!(
                echoed,
                body.contains("tools/call"),
                "the id of requests: {error}"
            );
        }
        assert_eq!(house.get(&[("mcp-session-id", id)]).await.status(), 404);
        assert_eq!(house.delete(&[("mcp-session-id", id)]).await.status(), 404);
    }
    for body in [call("1", "").as_str(), note, response] {
        assert_eq!(house.post(&[], body).await.status(), 400, "{body}");
    }
}

/// SES-02, case 95: a session id is worth nothing to another caller or on another server.
#[tokio::test]
async fn case_95_a_session_belongs_to_its_caller_and_server() {
    let mut house = quick();
    let id = house.open(D, "{}").await;
    let own = house.principal.clone();
    house.principal = Principal {
        subject: "mallory".into(),
        ..own.clone()
    };
    assert_eq!(house.in_session(&id, &call("1", "")).await.status(), 404);
    assert_eq!(house.delete(&[("mcp-session-id", &id)]).await.status(), 404);
    house.principal = own;
    let server = house.plan.server.clone();
    house.plan.server = ServerId::new("other").unwrap();
    assert_eq!(house.in_session(&id, &call("1", "")).await.status(), 404);
    house.plan.server = server;
    assert_eq!(house.in_session(&id, &call("1", "")).await.status(), 200);
}

/// STA-18: a stale id under a modern header is 405, never "session gone".
#[tokio::test]
async fn sta_18_a_stale_id_under_a_modern_header_is_405() {
    let house = quick();
    let headers = [
        ("mcp-session-id", "stale"),
        ("mcp-protocol-version", "2026-07-28"),
    ];
    assert_eq!(house.get(&headers).await.status(), 405);
    assert_eq!(house.delete(&headers).await.header("allow"), Some("POST"));
    let id = house.open(D, "{}").await;
    let headers = [
        ("mcp-session-id", id.as_str()),
        ("mcp-protocol-version", "2026-07-28"),
    ];
    assert_eq!(house.get(&headers).await.status(), 200);
}

/// GET-08, SES-03, STA-21, case 65: DELETE cancels the calls and takes everything down.
#[tokio::test(start_paused = true)]
async fn get_08_delete_ends_calls_streams_and_upstream_sessions() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, "{}").await;
    let mut stream = house.get(&[("mcp-session-id", &id)]).await;
    assert!(stream.next().await.is_some(), "priming");
    let (session, body) = (id.clone(), call("1", ""));
    let (called, deleted) = tokio::join!(house.in_session(&session, &body), async {
        super::settle().await;
        assert_eq!(house.supervisor().calls(), 1);
        house.delete(&[("mcp-session-id", &id)]).await
    });
    assert_eq!(deleted.status(), 204);
    assert!(called.rest().await.is_empty());
    super::settle().await;
    assert!(below.is_dropped(0));
    assert!(stream.rest().await.is_empty(), "and its streams end");
    assert_eq!(house.back.taken(), ["close"]);
    assert_eq!(house.supervisor().sessions(), 0);
    let metrics = house.metrics.expose();
    assert!(metrics.contains(r#"vestibule_sessions{revision="2025-11-25",tenant="acme"} 0"#));
    assert!(
        !metrics.contains(r#"vestibule_streams{kind="get",tenant="acme"} 1"#),
        "{metrics}"
    );
}

/// Case 63, SES-03: over the cap the oldest idle session ends, and with it what it held.
#[tokio::test]
async fn case_63_sessions_are_capped_and_the_evicted_ones_taken_down() {
    let caps = Caps {
        per_principal: 2,
        per_tenant: 10,
    };
    let house = House::with_caps(|_| Events::ready(result(RESULT)), caps);
    let first = house.open(D, "{}").await;
    house.keep(&first, "up").await;
    for _ in 0..5 {
        house.open(D, "{}").await;
    }
    assert_eq!(house.in_session(&first, &call("1", "")).await.status(), 404);
    assert_eq!(house.supervisor().sessions(), 2);
    let closed = house.back.taken();
    assert_eq!(closed, ["close up", "close", "close", "close"], "GET-09");
    let caps = Caps {
        per_principal: 0,
        per_tenant: 10,
    };
    let house = House::with_caps(|_| Events::ready(result(RESULT)), caps);
    let got = house.post(&[], &initialize("2025-11-25", "{}")).await;
    assert_eq!(got.status(), 429);
    assert_eq!(
        got.json().await["error"]["data"]["limit"],
        "principal.sessions"
    );
}

/// Case 66, SES-03: a day of silence ends a session; an open stream keeps it (XT-518).
#[tokio::test(start_paused = true)]
async fn case_66_idle_sessions_live_for_a_day() {
    let house = quick();
    let idle = house.open(D, "{}").await;
    let listening = house.open(D, "{}").await;
    let _stream = house.get(&[("mcp-session-id", &listening)]).await;
    tokio::time::advance(std::time::Duration::from_secs(23 * 3600)).await;
    house.supervisor().sweep_sessions().await;
    assert_eq!(house.supervisor().sessions(), 2);
    tokio::time::advance(std::time::Duration::from_secs(3601)).await;
    house.supervisor().sweep_sessions().await;
    assert_eq!(house.in_session(&idle, &call("1", "")).await.status(), 404);
    assert_eq!(
        house.in_session(&listening, &call("1", "")).await.status(),
        200
    );
}

/// A server that cannot be described is an error and opens no session.
#[tokio::test]
async fn an_error_to_initialize_opens_no_session() {
    let house = House::raw(|_| Events::ready(error(-31001)), Caps::default());
    let got = house.post(&[], &initialize("2025-11-25", "{}")).await;
    assert_eq!(
        (got.status().as_u16(), got.header("mcp-session-id")),
        (200, None)
    );
    assert_eq!(got.code().await, -31001);
    assert_eq!(house.supervisor().sessions(), 0);
}

/// Case 116: an id is minted and stored, and who never sends it back is served all the same.
#[tokio::test]
async fn case_116_optional_sessions_serve_clients_that_forget_their_id() {
    let mut house = House::new(|call| {
        assert!(call.session.is_none() && call.capabilities.is_empty());
        Events::ready(result(RESULT))
    });
    house.plan.sessions_optional = true;
    let got = house.post(&[], &initialize("2025-06-18", "{}")).await;
    assert!(got.header("mcp-session-id").is_some());
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(house.post(&[], note).await.status(), 202);
    let body = house.post(&[], &call("1", "")).await.json().await;
    assert_eq!(body["result"]["content"][0]["text"], "hi");
    assert!(body["result"].get("resultType").is_none());
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    assert_eq!(
        house.post(&[], ping).await.json().await["result"],
        json!({})
    );
    let unknown = r#"{"jsonrpc":"2.0","id":"p","method":"server/discover"}"#;
    let got = house.post(&[], unknown).await;
    assert_eq!((got.status().as_u16(), got.code().await), (200, -32601));
}

/// Case 85 for clients without a session: the connection breaks, the call goes on.
#[tokio::test(start_paused = true)]
async fn case_85_a_call_without_a_session_outlives_its_connection() {
    let below = Below::default();
    let mut house = below.house();
    house.plan.sessions_optional = true;
    for waits in [1, 5] {
        let body = call("1", "");
        let asking = house.post(&[], &body);
        let patience = std::time::Duration::from_secs(waits);
        drop(tokio::time::timeout(patience, asking).await);
        super::settle().await;
        let index = below.calls() - 1;
        assert!(!below.is_dropped(index), "after {waits} s");
        assert!(below.end(index));
        super::settle().await;
        assert!(below.is_dropped(index));
    }
}

/// SES-01: the session id comes with an SSE answer too; no id and no priming before a version is
/// agreed (case 124).
#[tokio::test]
async fn case_124_initialize_as_a_stream_is_one_plain_event() {
    let mut house = quick();
    house.accepts = Accepts {
        json: false,
        ..Accepts::ANY
    };
    let got = house.post(&[], &initialize("2025-11-25", "{}")).await;
    assert!(got.header("mcp-session-id").is_some() && got.is_stream());
    let items = got.rest().await;
    assert!(matches!(items.as_slice(), [Item::Event(None, _)]));
}

/// The record of a session's request.
#[tokio::test]
async fn the_record_of_a_session_request_is_filled() {
    let house = House::new(|_| Events::ready(error(-32602)));
    let id = house.open(Revision::R2025_06_18, "{}").await;
    let body = call("1", "");
    let request = house.request(Verb::POST, &[("mcp-session-id", &id)], Some(&body));
    let record = request.extensions().get::<Record>().unwrap().clone();
    assert_eq!(house.send(request).await.status(), 200);
    assert_eq!(record.revision(), Some(&Revision::R2025_06_18));
    assert_eq!(record.code(), Some(&-32602));
    assert_eq!(record.outcome(), Some(&Outcome::RpcError));
}
