//! Questions of upstreams with sessions to clients with sessions: put once, to the right client, on
//! the stream of the call, under an id of the gateway's; answered once, under the upstream's own.

use serde_json::{Value, json};
use vestibule_testkit::recording::AnswerStream;
use vestibule_testkit::{Answer, Recorded, RecordingUpstream};

use crate::harness::Gateway;
use crate::peers::{
    Session, Stream, Streams, legacy_upstream, listed, notification, reply, request, streams,
    tenant, text_result,
};

/// An upstream whose tools answer on streams that the test writes.
async fn asking() -> (RecordingUpstream, Streams) {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({ "tools": {} }), move |request: &Recorded| {
        let call = request.rpc_method() == "tools/call";
        call.then(|| opens.answer(request))
            .or_else(|| listed(request, &["t"]))
    })
    .await;
    (upstream, streams)
}

fn able() -> Value {
    json!({ "elicitation": {}, "sampling": {}, "roots": { "listChanged": true } })
}

fn form(message: &str) -> Value {
    json!({ "message": message, "requestedSchema": { "type": "object", "properties": { "ok": { "type": "boolean" } } } })
}

/// The message that carried this id upstream, once it is there.
async fn answered(upstream: &RecordingUpstream, id: &Value) -> Recorded {
    let mut seen = 0;
    loop {
        let request = upstream.nth(seen).await;
        seen += 1;
        if request.rpc_method().is_empty() && request.method == "POST" && &request.rpc_id() == id {
            return request;
        }
    }
}

fn answers(upstream: &RecordingUpstream) -> Vec<Recorded> {
    let all = upstream.requests().into_iter();
    all.filter(|request| request.method == "POST" && request.rpc_method().is_empty())
        .collect()
}

async fn finish(sent: &Recorded, stream: AnswerStream, mut client: Stream, id: u64) {
    stream
        .message(&reply(sent, &text_result("end")))
        .await
        .unwrap();
    drop(stream);
    let last = client.rest().await.pop().unwrap();
    assert_eq!(last["id"], id, "{last}");
    assert_eq!(last["result"]["content"][0]["text"], "end");
}

/// XT-160, XT-164, SSE-07, ELI-09, ROO-01, SAM-01: every kind of question crosses on the stream of
/// its call with an id of the gateway's own, and its answer goes back byte for byte with the
/// upstream's, on the upstream session that asked. A second answer is accepted and dropped.
#[tokio::test]
async fn xt_160_questions_cross_and_answers_come_back() {
    let (upstream, streams) = asking().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t", able()).await;
    let mut client = session
        .begin(&request(7, "tools/call", &json!({ "name": "up__t" })))
        .await;
    let (sent, stream) = streams.next().await;
    let sampling = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "\u{00e9}" } }], "maxTokens": 5, "includeContext": "thisServer" });
    let questions = [
        (
            json!("q1"),
            "elicitation/create",
            form("Sure?"),
            r#"{"action":"accept","content":{"ok":true,"n":1.0}}"#,
        ),
        (
            json!(7),
            "sampling/createMessage",
            sampling,
            r#"{"role":"assistant","content":{"type":"text","text":"\u00e9"},"model":"m"}"#,
        ),
        (
            json!(0),
            "roots/list",
            json!({}),
            r#"{"roots":[{"uri":"file:///a"}]}"#,
        ),
    ];
    let mut ids = Vec::new();
    for (id, method, params, result) in questions {
        let question = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        stream.message(&question).await.unwrap();
        let asked = client.next().await;
        assert_eq!(asked["method"], method, "{asked}");
        if method == "elicitation/create" {
            assert_eq!(asked["params"]["message"], "[up] Sure?");
        }
        ids.push(asked["id"].to_string());
        for _ in 0..2 {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
                asked["id"]
            );
            let answer = gateway.ask(session.message(&Value::Null).body(body)).await;
            assert_eq!((answer.status, answer.body.len()), (202, 0));
        }
        let back = answered(&upstream, &id).await;
        let text = String::from_utf8(back.body.to_vec()).unwrap();
        assert!(text.contains(result), "{text}");
        assert_eq!(back.field("mcp-session-id"), sent.field("mcp-session-id"));
        assert_eq!(
            back.field("mcp-protocol-version"),
            sent.field("mcp-protocol-version")
        );
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    finish(&sent, stream, client, 7).await;
    assert_eq!(answers(&upstream).len(), 3, "{:?}", answers(&upstream));
}

/// Case 87, XT-160, cases 53, 55: two clients of one upstream, equal ids everywhere: each is asked
/// for its own call only, and each answer reaches its own upstream session.
#[tokio::test]
async fn case_87_questions_reach_the_client_whose_call_they_belong_to() {
    let (upstream, streams) = asking().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let one = Session::open(&gateway, "/mcp/t/up", able()).await;
    let two = Session::open(&gateway, "/mcp/t/up", able()).await;
    let call = request(1_000, "tools/call", &json!({ "name": "t" }));
    let mut one_client = one.begin(&call).await;
    let (one_sent, one_stream) = streams.next().await;
    let mut two_client = two.begin(&call).await;
    let (two_sent, two_stream) = streams.next().await;
    assert_ne!(
        one_sent.field("mcp-session-id"),
        two_sent.field("mcp-session-id")
    );
    assert_ne!(one_sent.rpc_id(), two_sent.rpc_id());
    for (stream, message) in [(&one_stream, "for one"), (&two_stream, "for two")] {
        let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": form(message) });
        stream.message(&question).await.unwrap();
    }
    let one_asked = one_client.next().await;
    let two_asked = two_client.next().await;
    assert_eq!(one_asked["params"]["message"], "for one");
    assert_eq!(two_asked["params"]["message"], "for two");
    // the wrong client answers: nothing reaches anybody
    let forged = json!({ "jsonrpc": "2.0", "id": one_asked["id"], "result": { "action": "accept", "content": { "who": "forged" } } });
    let also_own = one_asked["id"] == two_asked["id"];
    if !also_own {
        assert_eq!(two.post(&forged).await.status, 202);
    }
    for (session, asked, who) in [(&two, &two_asked, "two"), (&one, &one_asked, "one")] {
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept", "content": { "who": who } } });
        assert_eq!(session.post(&answer).await.status, 202);
    }
    while answers(&upstream).len() < 2 {
        tokio::task::yield_now().await;
    }
    for answer in answers(&upstream) {
        let who = answer.json()["result"]["content"]["who"].clone();
        let expected = if answer.field("mcp-session-id") == one_sent.field("mcp-session-id") {
            "one"
        } else {
            "two"
        };
        assert_eq!(who, expected);
    }
    finish(&one_sent, one_stream, one_client, 1_000).await;
    finish(&two_sent, two_stream, two_client, 1_000).await;
}

/// XT-160: two upstreams of one client ask with equal ids; their answers do not meet.
#[tokio::test]
async fn xt_160_equal_ids_of_two_upstreams_do_not_collide() {
    let ((a, a_streams), (b, b_streams)) = (asking().await, asking().await);
    let gateway = Gateway::start(&tenant(&[("a", &a.url()), ("b", &b.url())]));
    let session = Session::open(&gateway, "/mcp/t", able()).await;
    let mut asked = Vec::new();
    let mut open = Vec::new();
    for (id, name, streams) in [(2, "a__t", &a_streams), (3, "b__t", &b_streams)] {
        let mut client = session
            .begin(&request(id, "tools/call", &json!({ "name": name })))
            .await;
        let (sent, stream) = streams.next().await;
        let question = json!({ "jsonrpc": "2.0", "id": "same", "method": "elicitation/create", "params": form("?") });
        stream.message(&question).await.unwrap();
        let message = client.next().await;
        let from = name.split('_').next().unwrap();
        assert_eq!(message["params"]["message"], format!("[{from}] ?"));
        asked.push(message["id"].clone());
        open.push((sent, stream, client, id));
    }
    assert_ne!(asked[0], asked[1]);
    for (id, who) in [(&asked[1], "b"), (&asked[0], "a")] {
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "accept", "content": { "who": who } } });
        assert_eq!(session.post(&answer).await.status, 202);
    }
    for (upstream, who) in [(&a, "a"), (&b, "b")] {
        let back = answered(upstream, &json!("same")).await;
        assert_eq!(back.json()["result"]["content"]["who"], who);
    }
    for (sent, stream, client, id) in open {
        finish(&sent, stream, client, id).await;
    }
}

/// CAP-04, ELI-01, ROO-03, XT-116, XT-521: what the client did not declare is refused towards the
/// upstream by an error, never by an answer that no user gave; the call goes on.
#[tokio::test]
async fn xt_116_undeclared_questions_are_refused_upstream() {
    let (upstream, streams) = asking().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let client = session
        .begin(&request(2, "tools/call", &json!({ "name": "t" })))
        .await;
    let (sent, stream) = streams.next().await;
    let opening = upstream.calls("initialize").pop().unwrap();
    assert_eq!(opening.json()["params"]["capabilities"], json!({}));
    for (id, method, params, code) in [
        ("e", "elicitation/create", form("?"), -32602),
        (
            "s",
            "sampling/createMessage",
            json!({ "messages": [], "maxTokens": 1 }),
            -32602,
        ),
        ("r", "roots/list", json!({}), -32601),
        ("x", "tools/call", json!({ "name": "t" }), -32601),
        ("t", "tasks/get", json!({ "taskId": "t" }), -32601),
    ] {
        let question = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        stream.message(&question).await.unwrap();
        let back = answered(&upstream, &json!(id)).await;
        let got = back.json()["error"]["code"].as_i64();
        // where the capability is not there at all the method is unknown (ELI-01)
        let fits = got == Some(code) || (code == -32602 && got == Some(-32601));
        assert!(fits, "{method}: {:?}", back.json());
    }
    stream
        .message(&reply(&sent, &text_result("end")))
        .await
        .unwrap();
    drop(stream);
    let answer = client.response().await.answer();
    assert_eq!(
        answer["result"]["content"][0]["text"], "end",
        "no question reached the client"
    );
}

/// ERR-10, AMB-17: an error of the client is relayed as it is.
#[tokio::test]
async fn err_10_a_clients_refusal_is_relayed_as_it_is() {
    let (upstream, streams) = asking().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", able()).await;
    let mut client = session
        .begin(&request(2, "tools/call", &json!({ "name": "t" })))
        .await;
    let (sent, stream) = streams.next().await;
    let question = json!({ "jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } });
    stream.message(&question).await.unwrap();
    let asked = client.next().await;
    let refusal = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": { "code": -1, "message": "User rejected", "data": { "a": 1 } } });
    assert_eq!(session.post(&refusal).await.status, 202);
    let back = answered(&upstream, &json!("s")).await;
    assert_eq!(back.json()["error"], refusal["error"]);
    finish(&sent, stream, client, 2).await;
}

/// XT-163, CAN-01: an upstream that withdraws its question withdraws it from the client, under the
/// id that the client knows; a late answer is accepted and goes nowhere.
#[tokio::test]
async fn xt_163_a_withdrawn_question_is_withdrawn_from_the_client() {
    let (upstream, streams) = asking().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", able()).await;
    let mut client = session
        .begin(&request(2, "tools/call", &json!({ "name": "t" })))
        .await;
    let (sent, stream) = streams.next().await;
    let question =
        json!({ "jsonrpc": "2.0", "id": 5, "method": "elicitation/create", "params": form("?") });
    stream.message(&question).await.unwrap();
    let asked = client.next().await;
    let cancel = notification(
        "notifications/cancelled",
        &json!({ "requestId": 5, "reason": "r" }),
    );
    stream.message(&cancel).await.unwrap();
    let cancelled = client.next().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    let late = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "accept" } });
    assert_eq!(session.post(&late).await.status, 202);
    finish(&sent, stream, client, 2).await;
    assert!(answers(&upstream).is_empty());
}

/// Translation rules 4 (attribution): a question on the upstream session's standalone stream, while
/// one call of that session is open, reaches the client of that session, and is answered there.
#[tokio::test]
async fn xt_054_questions_on_the_standalone_stream_reach_their_session() {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(json!({ "tools": {} }), move |request: &Recorded| {
        let wanted = request.method == "GET" || request.rpc_method() == "tools/call";
        wanted.then(|| opens.answer(request))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", able()).await;
    let mut client = session
        .begin(&request(2, "tools/call", &json!({ "name": "t" })))
        .await;
    let (mut get, mut call) = (None, None);
    while get.is_none() || call.is_none() {
        let (request, stream) = streams.next().await;
        if request.method == "GET" {
            get = Some(stream);
        } else {
            call = Some((request, stream));
        }
    }
    let (get, (sent, stream)) = (get.unwrap(), call.unwrap());
    let question =
        json!({ "jsonrpc": "2.0", "id": "g", "method": "elicitation/create", "params": form("?") });
    get.message(&question).await.unwrap();
    let asked = client.next().await;
    assert_eq!(asked["params"]["message"], "?");
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "decline" } });
    assert_eq!(session.post(&answer).await.status, 202);
    let back = answered(&upstream, &json!("g")).await;
    assert_eq!(back.json()["result"], json!({ "action": "decline" }));
    finish(&sent, stream, client, 2).await;
}

/// ROO-01, 8.4: the client's roots/list_changed reaches the private upstream sessions that were told
/// that it may come.
#[tokio::test]
async fn roo_01_changed_roots_are_told_to_private_sessions() {
    let upstream = legacy_upstream(json!({ "tools": {} }), |request: &Recorded| {
        (request.rpc_method() == "tools/call").then(|| Answer::result(request, &text_result("x")))
    })
    .await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", able()).await;
    session.call(2, "tools/call", json!({ "name": "t" })).await;
    let own = upstream.call("tools/call").await;
    let changed = notification("notifications/roots/list_changed", &json!({}));
    assert_eq!(session.post(&changed).await.status, 202);
    let told = upstream.call("notifications/roots/list_changed").await;
    assert_eq!(told.field("mcp-session-id"), own.field("mcp-session-id"));
}

/// XT-165: a client that reports progress about a question reports it to the upstream's own token.
#[tokio::test]
async fn xt_165_progress_about_a_question_is_relayed_upstream() {
    let (upstream, streams) = asking().await;
    let gateway = Gateway::start(&tenant(&[("up", &upstream.url())]));
    let session = Session::open(&gateway, "/mcp/t/up", able()).await;
    let mut client = session
        .begin(&request(2, "tools/call", &json!({ "name": "t" })))
        .await;
    let (sent, stream) = streams.next().await;
    let mut params = form("?");
    params["_meta"]["progressToken"] = json!("theirs");
    let question =
        json!({ "jsonrpc": "2.0", "id": 5, "method": "elicitation/create", "params": params });
    stream.message(&question).await.unwrap();
    let asked = client.next().await;
    let token = asked["params"]["_meta"]["progressToken"].clone();
    assert!(!token.is_null(), "{asked}");
    let progress = notification(
        "notifications/progress",
        &json!({ "progressToken": token, "progress": 1 }),
    );
    assert_eq!(session.post(&progress).await.status, 202);
    let told = upstream.call("notifications/progress").await;
    assert_eq!(told.json()["params"]["progressToken"], "theirs");
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "cancel" } });
    session.post(&answer).await;
    answered(&upstream, &json!(5)).await;
    finish(&sent, stream, client, 2).await;
}
