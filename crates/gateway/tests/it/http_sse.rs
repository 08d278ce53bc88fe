//! Clients of HTTP+SSE, the transport of 2024-11-05, on the same URL as every other client.

use std::time::Duration;

use serde_json::{Value, json};
use vestibule_testkit::{RawClient, RawRequest, RawResponse};

use crate::auth::key;
use crate::harness::Gateway;
use crate::process::{Folder, Served, configuration};
use crate::rounds;
use crate::talk::{
    META, SESSIONS, Session, Upstream, assert_refused, at, get, modern_call, open_tenant, post,
    progress, response, soon, tenant, text,
};

const UP: &str = "/mcp/t/up";
const OLDEST: &str = "2024-11-05";
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;

/// Whom a client talks to.
enum Peer<'a> {
    Here(&'a Gateway),
    Process(&'a Served),
}

impl Peer<'_> {
    async fn connect(&self) -> RawClient {
        match self {
            Peer::Here(gateway) => gateway.connect().await,
            Peer::Process(served) => served.connect().await,
        }
    }

    async fn ask(&self, request: &RawRequest) -> RawResponse {
        self.connect().await.ask(request).await.unwrap()
    }
}

/// A client: its stream, and where it posts.
struct Client<'a> {
    peer: Peer<'a>,
    stream: RawClient,
    address: String,
    key: Option<String>,
}

impl<'a> Client<'a> {
    async fn connect(peer: Peer<'a>, target: &str, key: Option<&str>) -> Self {
        let mut stream = peer.connect().await;
        let key = key.map(|key| format!("Bearer {key}"));
        let request = bearing(get(target), key.as_deref());
        let head = stream.open(&request).await.unwrap();
        assert!(head.start.contains(" 200 "), "{}", head.start);
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        let first = stream.next_event().await.unwrap().expect("an event");
        assert_eq!(
            (first.event.as_deref(), &first.id),
            (Some("endpoint"), &None)
        );
        let address = first.data.expect("an address");
        assert!(address.starts_with(&format!("{target}?sse=")), "{address}");
        Self {
            peer,
            stream,
            address,
            key,
        }
    }

    /// The same, with its session open.
    async fn open(peer: Peer<'a>, target: &str, revision: &str, key: Option<&str>) -> Self {
        Self::able(peer, target, revision, (key, &json!({}))).await
    }

    /// The same, of a client that can be asked.
    async fn able(
        peer: Peer<'a>,
        target: &str,
        revision: &str,
        (key, capabilities): (Option<&str>, &Value),
    ) -> Self {
        let mut client = Self::connect(peer, target, key).await;
        client.say(&initialize_with(revision, capabilities)).await;
        let opened = client.next().await;
        assert_eq!(opened["result"]["protocolVersion"], revision, "{opened}");
        client.say(READY).await;
        client
    }

    fn request(&self, body: &str) -> RawRequest {
        bearing(post(&self.address, body.to_owned()), self.key.as_deref())
    }

    async fn post(&self, body: &str) -> RawResponse {
        self.peer.ask(&self.request(body)).await
    }

    async fn say(&self, body: &str) {
        let answer = self.post(body).await;
        assert_eq!((answer.status, &answer.body[..]), (202, &b""[..]), "{body}");
    }

    /// The next message.
    async fn next(&mut self) -> Value {
        let event = self.stream.next_event().await.unwrap().expect("an event");
        assert_eq!(
            (event.event.as_deref(), &event.id),
            (Some("message"), &None)
        );
        event.json()
    }

    fn id(&self) -> &str {
        self.address.split_once("?sse=").unwrap().1
    }
}

fn bearing(request: RawRequest, key: Option<&str>) -> RawRequest {
    match key {
        Some(key) => request.field("Authorization", key),
        None => request,
    }
}

fn initialize(revision: &str) -> String {
    initialize_with(revision, &json!({}))
}

fn initialize_with(revision: &str, capabilities: &Value) -> String {
    let client = json!({ "name": "old", "version": "1" });
    let params =
        json!({ "protocolVersion": revision, "capabilities": capabilities, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string()
}

fn call(id: u64, tool: &str) -> String {
    let meta = json!({ "progressToken": "p" });
    let params = json!({ "name": tool, "arguments": { "a": id }, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

/// Two keys on one closed tenant, whose callers may have one call in flight.
fn closed(upstream: &Upstream) -> String {
    let (one, two) = (key("one", "S"), key("two", "T"));
    let head = format!(
        "    auth: {{ keys: true }}\n    keys:\n      one: {{ secret: \"{one}\", subject: alice }}\n      two: {{ secret: \"{two}\", subject: bob }}"
    );
    tenant("t", &head, &[("up", upstream.reach())], "")
}

/// HSE-01, HSE-02, HSE-03, case 145: at every address a client finds its way, whatever the upstream
/// speaks, and every message of the server is an event of its stream.
#[tokio::test]
async fn hse_03_an_old_client_initializes_lists_and_calls() {
    for upstream in [Upstream::modern().await, Upstream::legacy().await] {
        let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
        for (target, name) in [
            ("/mcp/t", "up__echo"),
            ("/mcp/t/", "up__echo"),
            ("/mcp/t/up", "echo"),
        ] {
            let mut client = Client::open(Peer::Here(&gateway), target, OLDEST, None).await;
            client
                .say(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)
                .await;
            let listed = client.next().await;
            let tools = listed["result"]["tools"].as_array().unwrap();
            assert!(tools.iter().any(|tool| tool["name"] == name), "{listed}");
            client.say(&call(2, name)).await;
            let called = client.next().await;
            assert_eq!((&called["id"], text(&called)), (&json!(2), r#"{"a":2}"#));
            assert_eq!(called["result"].get("resultType"), None, "FRM-22");
        }
    }
}

/// HSE-03: progress comes before the response it belongs to, and calls do not wait for each other.
#[tokio::test]
async fn hse_03_calls_run_side_by_side_on_one_stream() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let mut client = Client::open(Peer::Here(&gateway), UP, OLDEST, None).await;
    client.say(&call(1, "stream")).await;
    let (request, stream) = upstream.opened().await;
    client.say(&call(2, "echo")).await;
    assert_eq!(client.next().await["id"], 2);
    for value in 1..=3 {
        let message = progress(&request, value);
        stream.message(&message).await.unwrap();
    }
    stream.message(&response(&request, "done")).await.unwrap();
    for value in 1..=3 {
        let told = client.next().await;
        assert_eq!(
            told["params"],
            json!({ "progressToken": "p", "progress": value })
        );
    }
    assert_eq!(text(&client.next().await), "done");
}

/// XT-543, HSE-01: three transports on one URL at the same time, none in the way of another.
#[tokio::test]
async fn xt_543_every_transport_is_served_on_one_url() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let mut old = Client::open(Peer::Here(&gateway), UP, OLDEST, None).await;
    let session = Session::open(&gateway, UP, SESSIONS[0]).await;
    let mut standalone = gateway.connect().await;
    standalone.open(&session.get()).await.unwrap();
    let stateless = gateway
        .ask(modern_call(UP, "echo", &json!({ "a": 1 })))
        .await;
    assert_eq!(text(&stateless.json()), r#"{"a":1}"#);
    let stateful = gateway
        .ask(session.call(3, "echo", &json!({ "a": 3 })))
        .await;
    assert_eq!(text(&stateful.answer()), r#"{"a":3}"#);
    old.say(&call(2, "echo")).await;
    assert_eq!(text(&old.next().await), r#"{"a":2}"#);
    // a message of the address is of its session, whatever else it says of itself
    let list = format!(r#"{{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{{{META}}}}}"#);
    let dressed = old
        .request(&list)
        .field("MCP-Protocol-Version", "2026-07-28")
        .field("Mcp-Session-Id", &session.id);
    assert_eq!(gateway.ask(dressed).await.status, 202);
    assert_eq!(old.next().await["id"], 4);
}

/// HSE-08: newer revisions on the old transport; 2025-03-26 brings its batches.
#[tokio::test]
async fn hse_08_newer_revisions_may_be_negotiated() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let batch = format!("[{},{}]", call(1, "echo"), call(2, "echo"));
    for revision in SESSIONS {
        let mut client = Client::open(Peer::Here(&gateway), UP, revision, None).await;
        if revision != "2025-03-26" {
            assert_refused("FRM-18", &client.post(&batch).await, 400, -32600);
            continue;
        }
        client.say(&batch).await;
        let mut ids = [0; 2];
        for id in &mut ids {
            *id = client.next().await["id"].as_u64().unwrap();
        }
        ids.sort_unstable();
        assert_eq!(ids, [1, 2], "each response is a message of its own");
    }
}

/// HSE-06, AUT-01, T38: the id in the address is no credential; every request shows its own, and an
/// address is of use to nobody else.
#[tokio::test]
async fn hse_06_the_address_is_no_credential() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&closed(&upstream));
    let anonymous = gateway.ask(get(UP)).await;
    assert_refused("no key", &anonymous, 401, -32600);
    let (one, two) = (key("one", "S"), key("two", "T"));
    let mut client = Client::open(Peer::Here(&gateway), UP, OLDEST, Some(&one)).await;
    let bare = gateway.ask(post(&client.address, PING)).await;
    assert_refused("no key", &bare, 401, -32600);
    let other = format!("Bearer {two}");
    let stolen = bearing(post(&client.address, PING), Some(&other));
    let stolen = assert_refused("T38", &gateway.ask(stolen).await, 404, -32600);
    assert_eq!(stolen["id"], "p");
    let elsewhere = format!("/mcp/t?sse={}", client.id());
    let elsewhere = bearing(post(&elsewhere, PING), client.key.as_deref());
    assert_refused("T39", &gateway.ask(elsewhere).await, 404, -32600);
    let header = bearing(post(UP, PING), client.key.as_deref());
    let header = header.field("Mcp-Session-Id", client.id());
    assert_refused("HSE-06", &gateway.ask(header).await, 404, -32600);
    client.say(PING).await;
    assert_eq!(client.next().await["id"], "p");
}

/// STA-19, STA-24, case 145: what is wrong with a request itself is its answer.
#[tokio::test]
async fn sta_24_what_is_wrong_with_a_post_is_its_answer() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let mut client = Client::open(Peer::Here(&gateway), UP, OLDEST, None).await;
    assert_refused("STA-24", &client.post("{").await, 400, -32700);
    assert_refused("FRM-01", &client.post(r#"{"id":1}"#).await, 400, -32600);
    let typed = client.request(PING).without("Content-Type");
    assert_refused("HDR-04", &gateway.ask(typed).await, 415, -32600);
    for id in ["", "x", &"A".repeat(43), &client.id().to_lowercase()] {
        let answer = gateway.ask(post(&format!("{UP}?sse={id}"), PING)).await;
        let refused = assert_refused("STA-24", &answer, 404, -32600);
        assert_eq!(refused["id"], "p");
    }
    for verb in ["GET", "DELETE"] {
        let request = RawRequest::new(verb, &client.address).field("Host", "127.0.0.1");
        let answer = gateway
            .ask(request.field("Accept", "text/event-stream"))
            .await;
        assert_eq!(answer.status, 405, "{verb}");
    }
    for id in [1, 2] {
        client.say(&call(id, "nothing")).await;
        let refused = client.next().await;
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(id), &json!(-32602))
        );
    }
}

/// HSE-05: when the connection closes the address is unknown at once, what runs is cancelled after
/// five seconds, and upstreams see it.
#[tokio::test]
async fn hse_05_closing_the_connection_ends_the_session() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::start(&open_tenant(&[("up", upstream.reach())], ""));
    let client = Client::open(Peer::Here(&gateway), UP, OLDEST, None).await;
    client.say(&call(1, "stream")).await;
    let (_request, stream) = upstream.opened().await;
    let gauge = || {
        let shown = gateway.app.metrics().expose();
        let line = |name: &str| {
            let lines = shown.lines();
            let mut found = lines.filter(|line| line.starts_with(name));
            found.next().unwrap_or_default().to_owned()
        };
        let streams = line(r#"vestibule_streams{kind="sse""#);
        (streams, line(r#"vestibule_sessions{revision="2024-11-05""#))
    };
    assert!(
        gauge().0.ends_with(" 1") && gauge().1.ends_with(" 1"),
        "{:?}",
        gauge()
    );
    let Client {
        stream: connection,
        address,
        ..
    } = client;
    let closed = tokio::time::Instant::now();
    drop(connection);
    let late = soon("the end of the address", Duration::from_secs(2), async {
        loop {
            let answer = gateway.ask(post(&address, PING)).await;
            if answer.status != 202 {
                return answer;
            }
        }
    });
    assert_refused("HSE-05", &late.await, 404, -32600);
    assert!(gauge().0.ends_with(" 0"), "{:?}", gauge());
    upstream.peer.call("notifications/cancelled").await;
    let after = closed.elapsed();
    assert!(after >= Duration::from_secs(4), "{after:?}");
    assert!(after < Duration::from_secs(8), "{after:?}");
    soon(
        "the end of the upstream's stream",
        Duration::from_secs(5),
        stream.gone(),
    )
    .await;
    assert!(gauge().1.ends_with(" 0"), "{:?}", gauge());
    assert_refused(
        "HSE-05",
        &gateway.ask(post(&address, PING)).await,
        404,
        -32600,
    );
}

/// HSE-03, T26: a call counts in flight until its response, not until its POST is answered; a
/// session's stream counts as a stream.
#[tokio::test]
async fn hse_03_calls_count_in_flight_until_their_response() {
    let upstream = Upstream::modern().await;
    let budget = "burst: 100000, in_flight: 10000, streams: 1000";
    let tenants = closed(&upstream).replace(
        &format!("principal: {{ rate: 100000/s, {budget}"),
        "principal: { rate: 100000/s, burst: 100000, in_flight: 1, streams: 1",
    );
    assert!(tenants.contains("in_flight: 1,"), "{tenants}");
    let gateway = Gateway::start(&tenants);
    let one = key("one", "S");
    let mut client = Client::open(Peer::Here(&gateway), UP, OLDEST, Some(&one)).await;
    let second = gateway.ask(bearing(get(UP), client.key.as_deref())).await;
    let second = assert_refused("T26", &second, 429, -31005);
    assert_eq!(second["error"]["data"]["limit"], "principal.streams");
    client.say(&call(1, "stream")).await;
    let (request, stream) = upstream.opened().await;
    let refused = assert_refused("case 77", &client.post(&call(2, "echo")).await, 429, -31005);
    assert_eq!(refused["error"]["data"]["limit"], "principal.in_flight");
    stream.message(&response(&request, "done")).await.unwrap();
    assert_eq!(text(&client.next().await), "done");
    let served = soon("a free place", Duration::from_secs(5), async {
        while client.post(&call(3, "echo")).await.status != 202 {}
        client.next().await
    });
    assert_eq!(served.await["id"], 3);
}

/// SES-06, T69: a call has a record of its own with how it ended, and the id in the address is
/// written nowhere.
#[tokio::test]
async fn t69_the_id_in_the_address_is_not_logged() {
    let upstream = Upstream::modern().await;
    let folder = Folder::new();
    let tenants = open_tenant(&[("up", upstream.reach())], "");
    let file = folder.write("sse.yaml", &configuration("", &tenants));
    let mut served = Served::start(&file).await;
    let mut client = Client::open(Peer::Process(&served), UP, OLDEST, None).await;
    let failing = call(1, "fail").replace(r#""a":1"#, r#""code":7,"message":"x""#);
    let posted = client.post(&failing).await;
    assert_eq!(client.next().await["error"]["code"], 7);
    let id = posted.head.field("x-request-id").unwrap().to_owned();
    let said = format!(r#""request_id":"{id}""#);
    let lines = [
        served.program.stderr.nth_with(&said, 0).await,
        served.program.stderr.nth_with(&said, 1).await,
    ];
    let mut records = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    records.sort_by_key(|record| record["status"].as_u64());
    let [of_call, of_post] = records;
    assert_eq!(
        (&of_post["status"], &of_post["outcome"]),
        (&json!(202), &json!("ok"))
    );
    for (field, value) in [
        ("method", json!("tools/call")),
        ("target", json!("fail")),
        ("revision", json!(OLDEST)),
        ("outcome", json!("rpc_error")),
        ("code", json!(7)),
    ] {
        assert_eq!(of_call[field], value, "{field}: {of_call}");
    }
    let wrong = format!("{UP}?sse={}x", client.id());
    let refused = client.peer.ask(&post(&wrong, PING)).await;
    assert_eq!(refused.status, 404);
    let secret = client.id().to_owned();
    drop(client);
    served.program.signal("TERM");
    served.program.ended(Duration::from_secs(10)).await;
    for line in served.program.stderr.whole().await {
        assert!(!line.contains(&secret), "{line}");
    }
}

/// Case 69, SSE-03: when the process stops, an idle stream ends at once and says when to come back,
/// one with calls ends after their responses.
#[tokio::test]
async fn case_69_streams_end_after_their_responses() {
    let upstream = Upstream::modern().await;
    let folder = Folder::new();
    let tenants = open_tenant(&[("up", upstream.reach())], "");
    let timing = "shutdown: { delay: 0s, grace: 20s }";
    let file = folder.write("sse.yaml", &configuration(timing, &tenants));
    let mut served = Served::start(&file).await;
    let mut idle = Client::open(Peer::Process(&served), UP, OLDEST, None).await;
    let mut busy = Client::open(Peer::Process(&served), UP, OLDEST, None).await;
    busy.say(&call(1, "stream")).await;
    let (request, stream) = upstream.opened().await;
    served.program.signal("TERM");
    let told = idle.stream.next_event().await.unwrap().expect("a retry");
    assert!((2000..=5000).contains(&told.retry.unwrap()), "{told:?}");
    assert_eq!(idle.stream.next_event().await.unwrap(), None);
    stream.message(&response(&request, "last")).await.unwrap();
    assert_eq!(text(&busy.next().await), "last");
    let told = busy.stream.next_event().await.unwrap().expect("a retry");
    assert!(told.retry.is_some(), "{told:?}");
    assert_eq!(busy.stream.next_event().await.unwrap(), None);
    drop((idle, busy));
    let status = served.program.ended(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(0), "{:#?}", served.program.stderr.all());
}

/// HSE-05, EL-27: a session does not outlive the process that had its connection, also when the
/// store does.
#[tokio::test]
async fn hse_05_a_session_does_not_outlive_its_process() {
    let upstream = Upstream::modern().await;
    let folder = Folder::new();
    let tenants = open_tenant(&[("up", upstream.reach())], "");
    let text = configuration("", &tenants).replace("path: none", "path: ./kept");
    let file = folder.write("sse.yaml", &text);
    let mut served = Served::start(&file).await;
    let client = Client::open(Peer::Process(&served), UP, OLDEST, None).await;
    let kept = client
        .peer
        .ask(&crate::talk::initialize(UP, SESSIONS[0]))
        .await;
    let kept = kept.head.field("mcp-session-id").unwrap().to_owned();
    let address = client.address.clone();
    drop(client);
    served.program.signal("KILL");
    served.program.ended(Duration::from_secs(5)).await;

    let served = Served::start(&file).await;
    for body in [PING.to_owned(), initialize(OLDEST)] {
        let answer = served.ask(&post(&address, body)).await;
        assert_refused("HSE-05", &answer, 404, -32600);
    }
    let other = post(UP, PING).field("Mcp-Session-Id", &kept);
    assert_eq!(served.ask(&other).await.status, 200);
    let metrics = served.page("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(
        !metrics.contains(r#"vestibule_sessions{revision="2024-11-05""#),
        "{metrics}"
    );
    assert!(metrics.contains(r#"vestibule_sessions{revision="2025-11-25",tenant="t"} 1"#));
    let mut again = Client::open(Peer::Process(&served), UP, OLDEST, None).await;
    again.say(PING).await;
    assert_eq!(again.next().await["id"], "p");
}

/// XT-130, XT-143, HSE-03: an old client is asked on its one stream; when that breaks in a round the call
/// ends with its session, and the upstream hears nothing more.
#[tokio::test]
async fn xt_130_an_old_client_is_asked_on_its_stream() {
    let upstream = rounds::asking().await;
    let gateway = Gateway::start(&open_tenant(&[("up", at(&upstream.url()))], ""));
    let open = async || {
        let able = rounds::able();
        Client::able(Peer::Here(&gateway), UP, OLDEST, (None, &able)).await
    };
    let mut client = open().await;
    let call = |id: u64| {
        let params = json!({ "name": "sample", "arguments": { "a": 1 } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
    };
    client.say(&call(7)).await;
    let asked = client.next().await;
    assert_eq!(asked["method"], "sampling/createMessage");
    client.say(&rounds::reply_to(&asked).to_string()).await;
    let end = client.next().await;
    assert_eq!((&end["id"], text(&end)), (&json!(7), "done"));
    rounds::check_rounds(&upstream, "sample");
    let mut client = open().await;
    client.say(&call(8)).await;
    let asked = client.next().await;
    let (address, reply) = (client.address.clone(), rounds::reply_to(&asked));
    drop(client.stream);
    soon("the session is gone", Duration::from_secs(20), async {
        while gateway.ask(post(&address, PING.to_owned())).await.status != 404 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let late = gateway.ask(post(&address, reply.to_string())).await;
    assert_eq!(late.status, 404);
    assert_eq!(upstream.calls("tools/call").len(), 3);
}
