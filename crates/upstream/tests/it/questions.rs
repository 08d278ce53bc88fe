//! Questions of upstreams with a handshake, and the way of their answers.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use vestibule_exchange::{Capabilities, Connector, Event, Final, Outbound, Question, Sharing};
use vestibule_terms::Method;

use crate::world::{
    Server, World, call, client_session, draft, empty, event, json_answer, legacy_frame, next, tool,
};

/// A server whose streams are written by the test: one for tool calls, one for GET.
struct Scripted {
    server: Server,
    post: mpsc::Sender<String>,
    get: mpsc::Sender<String>,
}

fn fed(from: mpsc::Receiver<String>) -> Response<Body> {
    let stream = futures_util::stream::unfold(from, |mut from| async move {
        let text = from.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), from))
    });
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(Body::from_stream(stream))
        .unwrap()
}

async fn scripted() -> Scripted {
    let (post, from_post) = mpsc::channel(16);
    let (get, from_get) = mpsc::channel(16);
    let from = Arc::new((Mutex::new(Some(from_post)), Mutex::new(Some(from_get))));
    let server = Server::start(move |seen| {
        let from = Arc::clone(&from);
        async move {
            if seen.http == http::Method::GET {
                return from.1.lock().await.take().map_or_else(|| empty(409), fed);
            }
            if seen.body["params"]["name"] == "asks" {
                return from.0.lock().await.take().map_or_else(|| empty(500), fed);
            }
            legacy_frame(&seen, "2025-11-25", Some("s"))
                .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
        }
    })
    .await;
    Scripted { server, post, get }
}

fn elicits() -> Arc<Capabilities> {
    Arc::new(Capabilities {
        elicit_form: true,
        ..Capabilities::default()
    })
}

fn asks(sharing: Sharing) -> Outbound {
    Outbound {
        sharing,
        capabilities: elicits(),
        ..tool("asks")
    }
}

fn principal() -> Sharing {
    Sharing::Principal(Arc::from("p"))
}

fn elicitation(id: Value) -> String {
    event(
        &json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": { "message": "?" } }),
    )
}

async fn question(events: &mut vestibule_exchange::Events) -> Question {
    match next(events).await {
        Event::Question(question) => question,
        event => panic!("{event:?}"),
    }
}

fn accept(question: &Question) -> vestibule_frame::Draft {
    let id: Value = serde_json::from_slice(question.from.id.as_bytes()).unwrap();
    draft(&json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "accept" } }))
}

/// A question on a call's stream is that call's; its answer goes back once, under the upstream's id.
#[tokio::test]
async fn a_question_on_a_calls_stream_is_answered_under_the_upstreams_id_once() {
    let mut upstream = scripted().await;
    let world = World::http(&upstream.server);
    let mut events = world.events(asks(principal())).await;
    upstream.post.send(elicitation(json!(0))).await.unwrap();
    let asked = question(&mut events).await;
    assert_eq!(asked.method, Method::ElicitationCreate);
    let shown: Value = serde_json::from_slice(&asked.message.to_bytes()).unwrap();
    assert_eq!(shown["params"]["message"], "?");
    world
        .upstreams
        .answer(asked.from.clone(), accept(&asked))
        .await
        .unwrap();
    let answered = upstream
        .server
        .next(|seen| seen.body["result"]["action"] == "accept")
        .await;
    assert_eq!(answered.body["id"], json!(0));
    assert_eq!(answered.header("mcp-session-id"), Some("s"));
    let again = world
        .upstreams
        .answer(asked.from.clone(), accept(&asked))
        .await;
    assert_eq!(again.unwrap_err().code, -31004);
    let sent = upstream
        .server
        .log()
        .into_iter()
        .rfind(|seen| seen.method() == "tools/call")
        .unwrap();
    upstream
        .post
        .send(event(&sent.result(json!({}))))
        .await
        .unwrap();
    assert!(matches!(
        next(&mut events).await,
        Event::Final(Final::Message(_))
    ));
}

/// A question whose call is over, or that another tenant's name is put on, cannot be answered.
#[tokio::test]
async fn a_question_ends_with_its_call() {
    let upstream = scripted().await;
    let world = World::http(&upstream.server);
    let mut events = world.events(asks(principal())).await;
    upstream.post.send(elicitation(json!("q"))).await.unwrap();
    let asked = question(&mut events).await;
    let mut forged = asked.from.clone();
    forged.tenant = vestibule_terms::TenantId::new("other").unwrap();
    assert!(
        world
            .upstreams
            .answer(forged, accept(&asked))
            .await
            .is_err()
    );
    drop(events);
    assert!(
        world
            .upstreams
            .answer(asked.from.clone(), accept(&asked))
            .await
            .is_err()
    );
    assert!(
        upstream
            .server
            .log()
            .iter()
            .all(|seen| seen.body["result"].is_null())
    );
}

/// The upstream withdraws its question.
#[tokio::test]
async fn a_withdrawn_question_cannot_be_answered() {
    let upstream = scripted().await;
    let world = World::http(&upstream.server);
    let mut events = world.events(asks(principal())).await;
    upstream.post.send(elicitation(json!(7))).await.unwrap();
    let asked = question(&mut events).await;
    let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    upstream.post.send(event(&cancelled)).await.unwrap();
    let Event::QuestionWithdrawn(withdrawn) = next(&mut events).await else {
        panic!("no withdrawal")
    };
    let frame = withdrawn.frame();
    let id = frame.member(frame.params().unwrap(), "requestId").unwrap();
    assert_eq!(
        frame.text(id),
        asked.from.id.as_bytes(),
        "in the id that was handed out"
    );
    assert!(
        world
            .upstreams
            .answer(asked.from.clone(), accept(&asked))
            .await
            .is_err()
    );
}

/// What was not declared is refused, and so is a question where none may be asked.
#[tokio::test]
async fn undeclared_and_misplaced_questions_are_refused() {
    let mut upstream = scripted().await;
    let world = World::http(&upstream.server);
    let outbound = Outbound {
        sharing: principal(),
        capabilities: elicits(),
        ..call(Method::CompletionComplete, json!({ "name": "asks" }))
    };
    let mut events = world.events(outbound).await;
    let ask =
        |id: &str, method: &str| event(&json!({ "jsonrpc": "2.0", "id": id, "method": method }));
    let text = ask("a", "sampling/createMessage")
        + &ask("b", "tasks/get")
        + &ask("c", "ping")
        + &ask("d", "elicitation/create");
    upstream.post.send(text).await.unwrap();
    drop(upstream.post);
    assert!(matches!(
        next(&mut events).await,
        Event::Final(Final::Error(_))
    ));
    for (id, code) in [("a", -32601), ("b", -32601), ("d", -32602)] {
        let refused = upstream
            .server
            .log()
            .into_iter()
            .find(|seen| seen.body["id"] == id);
        let refused = match refused {
            Some(refused) => refused,
            None => upstream.server.next(|seen| seen.body["id"] == id).await,
        };
        assert_eq!(refused.body["error"]["code"], code, "{id}");
    }
}

/// Attribution: on the GET stream a question belongs to the one call that may be asked about.
#[tokio::test]
async fn a_question_on_the_get_stream_is_given_to_the_only_call() {
    let mut upstream = scripted().await;
    let world = World::http(&upstream.server);
    let mut events = world.events(asks(principal())).await;
    let sent = tokio::select! {
        sent = upstream.server.next_method("tools/call") => sent,
        event = next(&mut events) => panic!("{event:?}"),
    };
    upstream.get.send(elicitation(json!(1))).await.unwrap();
    let asked = question(&mut events).await;
    world
        .upstreams
        .answer(asked.from.clone(), accept(&asked))
        .await
        .unwrap();
    upstream
        .post
        .send(event(&sent.result(json!({}))))
        .await
        .unwrap();
    assert!(matches!(
        next(&mut events).await,
        Event::Final(Final::Message(_))
    ));
    // with no call open it belongs to nobody
    upstream.get.send(elicitation(json!(2))).await.unwrap();
    let refused = upstream.server.next(|seen| seen.body["id"] == 2).await;
    assert_eq!(refused.body["error"]["code"], -32602);
    let roots = json!({ "jsonrpc": "2.0", "id": 3, "method": "roots/list" });
    upstream.get.send(event(&roots)).await.unwrap();
    let refused = upstream.server.next(|seen| seen.body["id"] == 3).await;
    assert_eq!(refused.body["error"]["code"], -32601);
}

/// The silence of an upstream that waits for the client is no time-out.
#[tokio::test]
async fn lif_09_waiting_for_the_client_is_not_silence() {
    let mut upstream = scripted().await;
    let world = World::http(&upstream.server);
    let mut outbound = asks(Sharing::Session(client_session("c")));
    outbound.deadline = vestibule_terms::Deadline::starting_now(
        std::time::Duration::from_millis(300),
        std::time::Duration::from_secs(30),
    );
    let mut events = world.events(outbound).await;
    upstream.post.send(elicitation(json!(1))).await.unwrap();
    let asked = question(&mut events).await;
    // longer than the idle limit: the only way to see that nothing ends is to wait
    let waited =
        tokio::time::timeout(std::time::Duration::from_millis(700), next(&mut events)).await;
    assert!(waited.is_err());
    world
        .upstreams
        .answer(asked.from.clone(), accept(&asked))
        .await
        .unwrap();
    upstream
        .server
        .next(|seen| seen.body["result"]["action"] == "accept")
        .await;
    let Event::Final(Final::Error(error)) = next(&mut events).await else {
        panic!("it goes on")
    };
    assert_eq!(error.code, -31002, "after the answer silence counts again");
}
