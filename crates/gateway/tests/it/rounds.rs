//! Stateless upstreams that want answers before they go on, and clients with sessions: asked on the
//! stream of their call, whatever they are over and whichever process is there (translation rules, 6.2).

use serde_json::{Value, json};
use vestibule_testkit::redis::RedisServer;
use vestibule_testkit::{Answer, RawRequest, Recorded, RecordingUpstream};

use crate::harness::Gateway;
use crate::peers::{
    CAPABILITIES, LEGACY, Session, listed, modern_upstream, request, tenant, text_result,
};
use crate::process::Served;
use crate::replicas::replicated;
use crate::restart::{Client, house_of, id, kill, next, rest, stop};
use crate::talk::{self, at, open_tenant, soon};

const STATE: &str = "s\u{00e9}\"1";

/// The questions of a tool of that name, one round after the other.
fn rounds_of(tool: &str) -> Vec<Value> {
    let form = json!({ "message": "Name?", "requestedSchema": { "type": "object", "properties": { "n": { "type": "number" } } } });
    let message = json!({ "role": "user", "content": { "type": "text", "text": "hi" } });
    let sampling = json!({ "messages": [message], "maxTokens": 5 });
    let page = json!({ "mode": "url", "message": "Go", "url": "https://example.com/a" });
    let of = |method: &str, params: &Value| json!({ "method": method, "params": params });
    match tool {
        "sample" => vec![json!({ "k": of("sampling/createMessage", &sampling) })],
        "form" => vec![json!({ "k": of("elicitation/create", &form) })],
        "page" => vec![
            json!({ "k": of("elicitation/create", &form), "r": { "method": "roots/list" } }),
            json!({ "k": of("elicitation/create", &page) }),
        ],
        _ => vec![],
    }
}

/// What the upstream says to a request; it keeps nothing between two of them.
fn said(request: &Recorded) -> Option<Answer> {
    let json = request.json();
    let params = &json["params"];
    let name = params["name"].as_str().or(params["uri"].as_str())?;
    let rounds = rounds_of(name.trim_start_matches("x:"));
    let round = match params["requestState"].as_str() {
        Some(state) => state.strip_prefix(STATE).unwrap().parse::<usize>().unwrap(),
        None => 0,
    };
    let mut result = match request.rpc_method().as_str() {
        "tools/call" => text_result("done"),
        "resources/read" => {
            json!({ "contents": [{ "uri": name, "text": "done" }], "ttlMs": 60_000, "cacheScope": "public" })
        }
        _ => return None,
    };
    result["resultType"] = json!("complete");
    if let Some(questions) = rounds.get(round) {
        let state = format!("{STATE}{}", round + 1);
        result = json!({ "resultType": "input_required", "inputRequests": questions, "requestState": state });
    }
    Some(Answer::result(request, &result))
}

pub(crate) async fn asking() -> RecordingUpstream {
    let capabilities = json!({ "tools": {}, "resources": {} });
    modern_upstream(capabilities, |request| {
        said(request).or_else(|| listed(request, &["sample", "form", "page"]))
    })
    .await
}

pub(crate) fn able() -> Value {
    json!({ "roots": { "listChanged": true }, "sampling": {}, "elicitation": { "form": {}, "url": {} } })
}

/// What a user says to a question of that method.
pub(crate) fn reply_to(question: &Value) -> Value {
    let result = match question["method"].as_str().unwrap() {
        "roots/list" => json!({ "roots": [{ "uri": "file:///a" }] }),
        "sampling/createMessage" => {
            json!({ "role": "assistant", "content": { "type": "text", "text": "é" }, "model": "m" })
        }
        _ if question["params"]["mode"] == "url" => json!({ "action": "accept" }),
        _ => json!({ "action": "accept", "content": { "n": 1.5 } }),
    };
    json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })
}

/// The rounds of a call as its upstream has seen them.
pub(crate) fn check_rounds(upstream: &RecordingUpstream, tool: &str) {
    let calls = upstream.calls("tools/call");
    assert_eq!(calls.len(), rounds_of(tool).len() + 1);
    let mut ids: Vec<String> = calls.iter().map(|call| call.rpc_id().to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), calls.len(), "an id of its own each");
    for (round, call) in calls.iter().enumerate() {
        let params = &call.json()["params"];
        assert_eq!(params["name"], tool);
        assert_eq!(params["arguments"], json!({ "a": 1 }));
        let state = (round > 0).then(|| format!("{STATE}{round}"));
        assert_eq!(params["requestState"].as_str(), state.as_deref());
        let asked = round
            .checked_sub(1)
            .and_then(|round| rounds_of(tool).get(round).cloned());
        let expected = asked.map(|asked| {
            let asked = asked.as_object().unwrap().iter();
            asked
                .map(|(key, question)| (key.clone(), reply_to(question)["result"].clone()))
                .collect::<Value>()
        });
        assert_eq!(params.get("inputResponses"), expected.as_ref());
    }
}

/// XT-130, XT-131, XT-015, CAP-06, 18: what a client of each revision can be asked is declared with every
/// request; it is asked on the stream of its call, and each round of the upstream is a request of its own.
#[tokio::test]
async fn xt_130_every_revision_is_asked_what_it_can_be() {
    let forms = json!({ "form": {}, "url": {} });
    for (revision, tool, elicits) in [
        ("2025-03-26", "sample", None),
        ("2025-06-18", "form", Some(json!({ "form": {} }))),
        (LEGACY, "page", Some(forms)),
    ] {
        let upstream = asking().await;
        let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
        let session = Session::of(&gateway, "/mcp/t/up", revision, able(), None).await;
        let params = json!({ "name": tool, "arguments": { "a": 1 } });
        let mut client = session.begin(&request(7, "tools/call", &params)).await;
        for questions in rounds_of(tool) {
            for _ in questions.as_object().unwrap() {
                let asked = client.next().await;
                assert_eq!(session.post(&reply_to(&asked)).await.status, 202, "{asked}");
            }
        }
        let mut rest = client.rest().await;
        let end = rest.pop().unwrap();
        assert_eq!(end["id"], 7, "{end}");
        assert_eq!(end["result"]["content"][0]["text"], "done");
        assert!(end["result"].get("resultType").is_none());
        let completed = rest
            .iter()
            .map(|message| message["method"].as_str().unwrap());
        let expected = (tool == "page").then_some("notifications/elicitation/complete");
        assert_eq!(completed.collect::<Vec<_>>(), Vec::from_iter(expected));
        check_rounds(&upstream, tool);
        for call in upstream.calls("tools/call") {
            let declared = call.json()["params"]["_meta"][CAPABILITIES].clone();
            assert_eq!(declared["roots"], json!({}), "{declared}");
            assert_eq!(declared["sampling"], json!({}));
            assert_eq!(declared.get("elicitation"), elicits.as_ref());
        }
    }
}

/// XT-141, HDR-01: a client that takes no stream cannot be asked, and its upstream knows.
#[tokio::test]
async fn xt_141_nothing_is_declared_for_a_client_that_takes_no_stream() {
    let upstream = asking().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", able()).await;
    let call = request(7, "tools/call", &json!({ "name": "form" }));
    let post = RawRequest::new("POST", "/mcp/t/up")
        .field("Host", "127.0.0.1")
        .field("Content-Type", "application/json")
        .field("Accept", "application/json")
        .body(call.to_string());
    let answer = gateway.ask(session.dress(post)).await.answer();
    assert_eq!(answer["error"]["code"], -31003, "XT-145: {answer}");
    let sent = upstream.call("tools/call").await;
    assert_eq!(sent.json()["params"]["_meta"][CAPABILITIES], json!({}));
}

/// XT-142: what a read is answered after rounds is for this call alone.
#[tokio::test]
async fn xt_142_a_read_with_rounds_is_not_kept() {
    let upstream = asking().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", able()).await;
    for call in 1..=2_usize {
        let read = request(call as u64, "resources/read", &json!({ "uri": "x:form" }));
        let mut client = session.begin(&read).await;
        let asked = client.next().await;
        assert_eq!(session.post(&reply_to(&asked)).await.status, 202);
        assert_eq!(client.next().await["result"]["contents"][0]["text"], "done");
        assert_eq!(upstream.calls("resources/read").len(), 2 * call);
    }
}

/// ELI-14, XT-501: through a credential that all share nobody is sent to a page.
#[tokio::test]
async fn xt_501_a_page_through_a_shared_credential_is_refused() {
    let page = json!({ "mode": "url", "message": "Go", "url": "https://example.com/a" });
    let upstream = modern_upstream(json!({ "tools": {} }), move |request| {
        let asked = json!({ "k": { "method": "elicitation/create", "params": page } });
        let result = json!({ "resultType": "input_required", "inputRequests": asked });
        (request.rpc_method() == "tools/call").then(|| Answer::result(request, &result))
    })
    .await;
    let credential = "auth: { headers: { X-Key: shared } }";
    let reach = format!("{}, {credential}", at(&upstream.url()));
    let gateway = Gateway::start(&open_tenant(&[("up", reach)], ""));
    let session = Session::open(&gateway, "/mcp/t/up", able()).await;
    let answer = session.call(2, "tools/call", json!({ "name": "t" })).await;
    assert_eq!(answer["error"]["code"], -31008, "{answer}");
    assert_eq!(answer["error"]["data"]["reason"], "shared_credential");
    assert!(!answer.to_string().contains("example.com"));
}

/// Ends the process that asks, and finds the call going on through another one.
async fn asked_again(
    upstream: &RecordingUpstream,
    first: Served,
    end: impl AsyncFnOnce(Served),
    second: impl AsyncFnOnce() -> Served,
) {
    let client = Client::able(&first, &able()).await;
    let call = client.post(&request(
        7,
        "tools/call",
        &json!({ "name": "page", "arguments": { "a": 1 } }),
    ));
    let mut connection = first.connect().await;
    connection.open(&call).await.unwrap();
    let priming = next(&mut connection).await;
    let (one, two) = (next(&mut connection).await, next(&mut connection).await);
    assert_eq!(
        first.ask(&client.post(&reply_to(&one.json()))).await.status,
        202
    );
    end(first).await;
    let second = second().await;
    assert_eq!(
        second
            .ask(&client.post(&reply_to(&two.json())))
            .await
            .status,
        202
    );
    let mut connection = second.connect().await;
    connection.open(&client.resume(id(&two))).await.unwrap();
    let asked = soon("the next round", crate::replicas::DEATH, async {
        loop {
            match connection.next_event().await {
                Ok(event) => return event.expect("another event"),
                Err(waited) => assert!(waited.to_string().contains("waited"), "{waited}"),
            }
        }
    })
    .await;
    assert_eq!(asked.json()["params"]["mode"], "url");
    assert_eq!(
        second
            .ask(&client.post(&reply_to(&asked.json())))
            .await
            .status,
        202
    );
    let done = next(&mut connection).await.json();
    assert_eq!(done["method"], "notifications/elicitation/complete");
    let end = next(&mut connection).await;
    assert_eq!(end.json()["result"]["content"][0]["text"], "done");
    assert!(connection.next_event().await.unwrap().is_none());
    let all = rest(&second, &client.resume(id(&priming))).await;
    assert_eq!(all.len(), 5, "every event once: {all:?}");
    check_rounds(upstream, "page");
}

/// XT-136, S6: the process that asks is killed between two rounds; what was answered to it and what is
/// answered elsewhere goes to the upstream in one request, and nobody is asked twice.
#[tokio::test]
async fn xt_136_rounds_go_on_when_their_replica_is_killed() {
    let upstream = asking().await;
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let up = open_tenant(&[("up", at(&upstream.url()))], "stream_after: 20ms");
    let (_folder, file) = replicated(&redis, &up);
    let (a, b) = tokio::join!(Served::start(&file), Served::start(&file));
    asked_again(&upstream, a, kill, async || b).await;
}

/// XT-136, EL-27: the same for the one process that keeps its state on disk.
#[tokio::test]
async fn xt_136_rounds_go_on_after_a_restart() {
    let upstream = asking().await;
    let (_folder, file) = house_of(&at(&upstream.url()), "");
    let first = Served::start(&file).await;
    asked_again(&upstream, first, kill, async || Served::start(&file).await).await;
}

/// XT-136, XT-546: the same for one that stops, where payloads are sealed.
#[tokio::test]
async fn xt_136_rounds_go_on_when_their_replica_stops() {
    let upstream = asking().await;
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let head = "    auth: none\n    store_encryption: true";
    let up = [("up", at(&upstream.url()))];
    let sealed = talk::tenant("t", head, &up, "stream_after: 20ms");
    let (_folder, file) = replicated(&redis, &sealed);
    let (a, b) = tokio::join!(Served::start(&file), Served::start(&file));
    asked_again(&upstream, a, stop, async || b).await;
}

/// XT-136, XT-542, EL-18: an answer to a replica that does not ask reaches the one that does, once.
#[tokio::test]
async fn xt_136_an_answer_to_another_replica_reaches_the_call() {
    let upstream = asking().await;
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let up = open_tenant(&[("up", at(&upstream.url()))], "stream_after: 20ms");
    let (_folder, file) = replicated(&redis, &up);
    let (a, b) = tokio::join!(Served::start(&file), Served::start(&file));
    let client = Client::able(&a, &able()).await;
    let params = json!({ "name": "page", "arguments": { "a": 1 } });
    let call = client.post(&request(7, "tools/call", &params));
    let mut connection = a.connect().await;
    connection.open(&call).await.unwrap();
    let _priming = next(&mut connection).await;
    for _ in 0..3 {
        let asked = next(&mut connection).await.json();
        for replica in [&b, &a] {
            let answer = replica.ask(&client.post(&reply_to(&asked))).await;
            assert_eq!(answer.status, 202, "{asked}");
        }
    }
    let done = next(&mut connection).await.json();
    assert_eq!(done["method"], "notifications/elicitation/complete");
    let end = next(&mut connection).await.json();
    assert_eq!(end["result"]["content"][0]["text"], "done");
    check_rounds(&upstream, "page");
}
