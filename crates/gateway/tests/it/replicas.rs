//! Several processes over one Redis: any of them serves any request of a session, and what one of
//! them held when it was killed the others go on with.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use vestibule_testkit::binaries::binary;
use vestibule_testkit::redis::RedisServer;
use vestibule_testkit::scripted_stdio::Script;
use vestibule_testkit::sse::SseEvent;
use vestibule_testkit::{PATIENCE, RawClient, RawRequest, Recorded, RecordingUpstream};

use crate::peers::{Streams, legacy_upstream, notification, reply, streams, text_result};
use crate::process::{Folder, Served};
use crate::restart::{Client, Flight, house_of, id, kill, next, progresses, rest, stop};
use crate::stdio;
use crate::talk::{
    SESSIONS, Upstream, at, get, initialize, modern_call, open_tenant, response, soon, tenant, text,
};
use crate::upstream_streams::resumable;

const UP: &str = "/mcp/t/up";
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// How long is waited until somebody is sure that a replica is dead and goes on with what it did, on a
/// machine that is busy with other tests; that it takes 15 s at most is what the ledger measures.
pub(crate) const DEATH: Duration = Duration::from_secs(60);

/// The next event of a stream whose owner has to be found dead first.
async fn in_time(client: &mut RawClient) -> SseEvent {
    loop {
        match client.next_event().await {
            Ok(event) => return event.expect("another event"),
            Err(waited) => assert!(waited.to_string().contains("waited"), "{waited}"),
        }
    }
}

/// A Redis and a configuration that names it; `None` where there is no Redis to be had.
struct House {
    redis: RedisServer,
    file: PathBuf,
    _folder: Folder,
}

/// What every replica is started with.
pub(crate) fn replicated(redis: &RedisServer, tenants: &str) -> (Folder, PathBuf) {
    let folder = Folder::new();
    let file = folder.write("vestibule.yaml", &configuration(redis, tenants));
    (folder, file)
}

fn configuration(redis: &RedisServer, tenants: &str) -> String {
    format!(
        "listen: {{ address: \"127.0.0.1:0\" }}
admin: {{ address: \"127.0.0.1:0\" }}
telemetry: {{ log: json }}
shutdown: {{ delay: 0s, grace: 100ms }}
store: {{ kind: redis, url: \"{}\" }}
sealing: {{ keys: [{{ id: k1, secret: {KEY} }}] }}
tenants:
{tenants}",
        redis.url()
    )
}

impl House {
    fn build(reach: String, more: &str) -> Option<Self> {
        let redis = RedisServer::start()?;
        let tenant = open_tenant(&[("up", reach)], &format!("stream_after: 20ms{more}"));
        let (folder, file) = replicated(&redis, &tenant);
        Some(Self {
            redis,
            file,
            _folder: folder,
        })
    }

    async fn replica(&self) -> Served {
        Served::start(&self.file).await
    }
}

/// SES-02, SES-03: every verb of a session works on every replica, and its end is known to all.
#[tokio::test]
async fn ses_03_every_verb_of_a_session_works_on_every_replica() {
    let upstream = Upstream::legacy().await;
    let Some(house) = House::build(upstream.reach(), "") else {
        return;
    };
    let (a, b, c) = tokio::join!(house.replica(), house.replica(), house.replica());
    let client = Client::open(&a).await;
    for replica in [&a, &b, &c] {
        assert_eq!(text(&client.echo(replica).await.answer()), "{}");
    }
    // each replica looks at the upstream once for itself; the calls share one session
    assert_eq!(upstream.peer.calls("initialize").len(), 3 + 1);
    let mut listening = b.connect().await;
    let head = listening.open(&client.dressed(get(UP))).await.unwrap();
    assert!(head.start.contains(" 200 "), "{}", head.start);
    let foreign = RawRequest::new("GET", UP)
        .field("Host", "127.0.0.1")
        .field("Accept", "text/event-stream")
        .field(
            "Mcp-Session-Id",
            client.session.chars().rev().collect::<String>(),
        );
    assert_eq!(c.ask(&foreign).await.status, 404);
    let delete = client.dressed(RawRequest::new("DELETE", UP).field("Host", "127.0.0.1"));
    assert_eq!(c.ask(&delete).await.status, 204);
    while let Ok(Some(_)) = listening.next_event().await {}
    for replica in [&c, &b, &a] {
        soon("404 everywhere", PATIENCE, async {
            while client.echo(replica).await.status != 404 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// The gauge of sessions is the store's on every replica, whoever opened and ended them (contract,
/// metrics).
#[tokio::test]
async fn ses_03_every_replica_shows_the_sessions_of_the_store() {
    let upstream = Upstream::legacy().await;
    let Some(house) = House::build(upstream.reach(), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let shown = async |live: usize| {
        let line = format!(r#"vestibule_sessions{{revision="2025-11-25",tenant="t"}} {live}"#);
        for replica in [&a, &b] {
            soon(&line, PATIENCE, async {
                loop {
                    let page = replica.page("/metrics").await;
                    let page = String::from_utf8_lossy(&page.body).into_owned();
                    if page.lines().any(|found| found == line) {
                        return;
                    }
                    assert!(!page.contains("tenant=\"t\"} -"), "{page}");
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    };
    let clients = [Client::open(&a).await, Client::open(&a).await];
    shown(2).await;
    for (client, left) in clients.iter().zip([1, 0]) {
        let delete = RawRequest::new("DELETE", UP).field("Host", "127.0.0.1");
        assert_eq!(b.ask(&client.dressed(delete)).await.status, 204);
        shown(left).await;
    }
}

/// RES-03, EL-11, EL-17: a stream goes on, on another replica, while the one that runs the call
/// lives: what was missed, then what comes, then the end, under the ids that were given before.
#[tokio::test]
async fn res_03_a_stream_is_resumed_on_another_replica() {
    let upstream = Upstream::modern().await;
    let Some(house) = House::build(upstream.reach(), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let client = Client::open(&a).await;
    let (mut flight, priming) = Flight::primed(&a, &upstream, &client.call(7, "stream")).await;
    for value in 1..=3 {
        flight.progress(value).await;
        next(&mut flight.client).await;
    }
    let mut other = b.connect().await;
    other.open(&client.resume(id(&priming))).await.unwrap();
    let mut had = vec![];
    for _ in 0..3 {
        had.push(next(&mut other).await);
    }
    while let Ok(Some(_)) = flight.client.next_event().await {}
    for value in 4..=6 {
        flight.progress(value).await;
        had.push(next(&mut other).await);
    }
    assert_eq!(progresses(&had), [1, 2, 3, 4, 5, 6]);
    let answer = response(&flight.request, "done");
    flight.upstream.message(&answer).await.unwrap();
    let end = next(&mut other).await;
    assert_eq!(text(&end.json()), "done");
    assert!(other.next_event().await.unwrap().is_none());
    for replica in [&a, &b] {
        let events = rest(replica, &client.resume(id(&priming))).await;
        assert_eq!(events.len(), 7);
        assert_eq!(id(&events[6]), id(&end), "the ids are the same everywhere");
        assert_eq!(replica.ask(&client.resume(id(&end))).await.status, 405);
    }
}

/// Begins a call on `first`, ends that, and finds the call going on through `second`.
async fn goes_on(
    (upstream, streams): (&RecordingUpstream, &Streams),
    first: Served,
    end: impl AsyncFnOnce(Served),
    second: impl AsyncFnOnce() -> Served,
) {
    let client = Client::open(&first).await;
    let mut connection = first.connect().await;
    connection.send(&client.call(7, "t").bytes()).await.unwrap();
    let (sent, stream) = streams.next().await;
    let token = sent.json()["params"]["_meta"]["progressToken"].clone();
    let step = |value: u32| {
        let params = json!({ "progressToken": token, "progress": value });
        notification("notifications/progress", &params).to_string()
    };
    stream.event("e1", &step(1)).await.unwrap();
    connection.head().await.unwrap();
    let priming = next(&mut connection).await;
    let mut had = vec![next(&mut connection).await];
    end(first).await;
    let second = second().await;
    let mut connection = second.connect().await;
    connection.open(&client.resume(id(&had[0]))).await.unwrap();
    let taken_up = async {
        let resumes = |request: &Recorded| request.field("last-event-id").is_some();
        while !upstream.requests().iter().any(resumes) {
            tokio::task::yield_now().await;
        }
    };
    soon("the call is taken up", DEATH, taken_up).await;
    let (resumed, stream) = streams.next().await;
    assert_eq!(resumed.field("last-event-id"), Some("e1"));
    let session = "mcp-session-id";
    assert_eq!(resumed.field(session), sent.field(session));
    for value in 2..=4 {
        let event = format!("e{value}");
        stream.event(&event, &step(value)).await.unwrap();
        had.push(next(&mut connection).await);
    }
    let answer = reply(&sent, &text_result("end")).to_string();
    stream.event("e5", &answer).await.unwrap();
    let end = next(&mut connection).await;
    assert_eq!(text(&end.json()), "end");
    assert_eq!(end.json()["id"], 7);
    assert!(connection.next_event().await.unwrap().is_none());
    assert_eq!(progresses(&had), [1, 2, 3, 4]);
    let all = rest(&second, &client.resume(id(&priming))).await;
    assert_eq!(all.len(), 5);
    assert_eq!(
        upstream.calls("tools/call").len(),
        1,
        "nothing is run again"
    );
    assert_eq!(upstream.calls("initialize").len(), 2 + 1);
    assert!(upstream.calls("notifications/cancelled").is_empty());
}

/// EL-14, EL-15: the replica that runs a call is killed. Where the upstream numbers its events the
/// call goes on elsewhere, on the same upstream session, and nothing is lost, repeated or run again.
#[tokio::test]
async fn el_15_a_call_goes_on_when_its_replica_is_killed() {
    let (upstream, streams) = resumable().await;
    let Some(house) = House::build(at(&upstream.url()), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    goes_on((&upstream, &streams), a, kill, async || b).await;
}

/// EL-15, EL-27: the same for the one process that keeps its state on disk.
#[tokio::test]
async fn el_15_a_call_goes_on_after_a_restart() {
    let (upstream, streams) = resumable().await;
    let (_folder, file) = house_of(&at(&upstream.url()), "");
    let first = Served::start(&file).await;
    let second = async || Served::start(&file).await;
    goes_on((&upstream, &streams), first, kill, second).await;
}

/// EL-15, drain: a call that outlasts the grace of a stop goes on elsewhere, as if its replica had
/// been killed but sooner, and the upstream is told of no cancellation. Also where payloads are sealed
/// (T53).
#[tokio::test]
async fn el_15_a_call_goes_on_when_its_replica_stops() {
    let (upstream, streams) = resumable().await;
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let head = "    auth: none\n    store_encryption: true";
    let up = [("up", at(&upstream.url()))];
    let (_folder, file) = replicated(&redis, &tenant("t", head, &up, "stream_after: 20ms"));
    let (a, b) = tokio::join!(Served::start(&file), Served::start(&file));
    goes_on((&upstream, &streams), a, stop, async || b).await;
}

/// EL-15, EL-27: the same for the one process that keeps its state on disk.
#[tokio::test]
async fn el_15_a_call_goes_on_after_a_stop_and_a_start() {
    let (upstream, streams) = resumable().await;
    let shutdown = "shutdown: { delay: 0s, grace: 100ms }";
    let (_folder, file) = house_of(&at(&upstream.url()), shutdown);
    let first = Served::start(&file).await;
    let second = async || Served::start(&file).await;
    goes_on((&upstream, &streams), first, stop, second).await;
}

/// EL-14, EL-15: where the upstream does not number its events the client is told so once, within
/// the time it takes to be sure that the replica is dead.
#[tokio::test]
async fn el_15_a_call_that_cannot_go_on_gets_exactly_one_error() {
    let upstream = Upstream::modern().await;
    let Some(house) = House::build(upstream.reach(), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let client = Client::open(&a).await;
    let (mut flight, _) = Flight::primed(&a, &upstream, &client.call(7, "stream")).await;
    flight.progress(1).await;
    let last = next(&mut flight.client).await;
    kill(a).await;
    let mut connection = b.connect().await;
    connection.open(&client.resume(id(&last))).await.unwrap();
    let event = tokio::time::timeout(DEATH, in_time(&mut connection))
        .await
        .unwrap();
    assert!(connection.next_event().await.unwrap().is_none());
    let end = event.json();
    assert_eq!(
        (end["id"].clone(), end["error"]["code"].clone()),
        (json!(7), json!(-31004))
    );
    assert_eq!(end["error"]["data"]["reason"], "outcome_unknown");
    assert_eq!(b.ask(&client.resume(id(&event))).await.status, 405);
    assert_eq!(upstream.calls(), 1, "nothing is run again");
    assert_eq!(text(&client.echo(&b).await.answer()), "{}");
}

/// CAN-01: a call is cancelled wherever the cancellation arrives.
#[tokio::test]
async fn can_01_a_call_is_cancelled_from_another_replica() {
    let upstream = Upstream::modern().await;
    let Some(house) = House::build(upstream.reach(), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let client = Client::open(&a).await;
    let (mut flight, _) = Flight::primed(&a, &upstream, &client.call(7, "stream")).await;
    let params = json!({ "requestId": 7 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    assert_eq!(b.ask(&client.post(&cancel)).await.status, 202);
    soon(
        "the upstream's connection ends",
        PATIENCE,
        flight.upstream.gone(),
    )
    .await;
    assert!(
        flight.client.next_event().await.unwrap().is_none(),
        "CAN-03"
    );
}

/// CAN-01, EL-15: a cancellation that comes while the replica that ran the call is dead, and nobody has
/// taken it over, has its effect when somebody does.
#[tokio::test]
async fn can_01_a_call_is_cancelled_while_nobody_runs_it() {
    let (upstream, streams) = resumable().await;
    let Some(house) = House::build(at(&upstream.url()), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let client = Client::open(&a).await;
    let mut connection = a.connect().await;
    connection.send(&client.call(7, "t").bytes()).await.unwrap();
    let (sent, stream) = streams.next().await;
    let token = sent.json()["params"]["_meta"]["progressToken"].clone();
    let step = json!({ "progressToken": token, "progress": 1 });
    let step = notification("notifications/progress", &step).to_string();
    stream.event("e1", &step).await.unwrap();
    connection.head().await.unwrap();
    let _priming = next(&mut connection).await;
    let last = next(&mut connection).await;
    kill(a).await;
    let params = json!({ "requestId": 7 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    assert_eq!(b.ask(&client.post(&cancel)).await.status, 202);
    let told = async {
        while upstream.calls("notifications/cancelled").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    soon("the upstream is told", DEATH, told).await;
    let cancelled = upstream.calls("notifications/cancelled").remove(0);
    assert_eq!(cancelled.json()["params"]["requestId"], sent.rpc_id());
    let mut connection = b.connect().await;
    let head = connection.open(&client.resume(id(&last))).await.unwrap();
    if head.start.contains(" 200 ") {
        assert!(connection.next_event().await.unwrap().is_none(), "CAN-03");
    } else {
        assert!(head.start.contains(" 405 "), "{}", head.start);
    }
    assert_eq!(upstream.calls("tools/call").len(), 1);
}

/// GET-03, GET-05: what an upstream says outside of calls reaches the client's stream on whichever
/// replica that is, once.
#[tokio::test]
async fn get_03_a_standalone_stream_on_another_replica_gets_what_is_published() {
    let (opens, streams) = streams();
    let upstream = legacy_upstream(
        json!({ "tools": { "listChanged": true }, "logging": {} }),
        move |request: &Recorded| {
            let wanted = request.method == "GET" || request.rpc_method() == "tools/call";
            wanted.then(|| opens.answer(request))
        },
    )
    .await;
    let Some(house) = House::build(at(&upstream.url()), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let client = Client::open(&a).await;
    let mut calling = a.connect().await;
    calling.send(&client.call(1, "t").bytes()).await.unwrap();
    let (get_stream, call_stream) = {
        let (first, second) = (streams.next().await, streams.next().await);
        if first.0.method == "GET" {
            (first.1, second)
        } else {
            (second.1, first)
        }
    };
    let answer = reply(&call_stream.0, &text_result("end"));
    call_stream.1.message(&answer).await.unwrap();
    let mut listening = b.connect().await;
    listening.open(&client.dressed(get(UP))).await.unwrap();
    let _priming = next(&mut listening).await;
    for number in 0..5 {
        let params = json!({ "level": "error", "data": number });
        let message = notification("notifications/message", &params);
        get_stream.message(&message).await.unwrap();
        // a replica that begins to listen says first that something may have been missed
        let mut event = next(&mut listening).await.json();
        while event["method"] != "notifications/message" {
            let method = event["method"].as_str().unwrap_or_default();
            assert!(method.ends_with("/list_changed"), "{event}");
            event = next(&mut listening).await.json();
        }
        assert_eq!(event["params"]["data"], number);
    }
}

/// EL-18: an upstream asks through one replica, the client answers through another; the upstream
/// gets the answer once, under its own id.
#[tokio::test]
async fn el_18_a_question_is_answered_on_another_replica() {
    let (upstream, streams) = resumable().await;
    let Some(house) = House::build(at(&upstream.url()), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let client = Client::able(&a, &json!({ "elicitation": {} })).await;
    let mut calling = a.connect().await;
    calling.send(&client.call(1, "t").bytes()).await.unwrap();
    let (sent, stream) = streams.next().await;
    let asks = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
        "params": { "message": "?", "requestedSchema": { "type": "object", "properties": {} } } });
    stream.message(&asks).await.unwrap();
    calling.head().await.unwrap();
    let _priming = next(&mut calling).await;
    let question = next(&mut calling).await.json();
    let answer =
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } });
    for replica in [&b, &a, &b] {
        assert_eq!(replica.ask(&client.post(&answer)).await.status, 202);
    }
    stream
        .message(&reply(&sent, &text_result("end")))
        .await
        .unwrap();
    assert_eq!(text(&next(&mut calling).await.json()), "end");
    let answers = upstream.requests();
    let answers = answers
        .iter()
        .filter(|request| request.method == "POST" && request.rpc_method().is_empty());
    let ids: Vec<Value> = answers.map(Recorded::rpc_id).collect();
    assert_eq!(ids, [json!("q")], "one answer");
}

/// Whether any value in the store has that text in it.
const SEARCH: &str = "for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, all = redis.call('TYPE', key).ok, {}
  if kind == 'stream' then all = redis.call('XRANGE', key, '-', '+') end
  if kind == 'hash' then all = redis.call('HVALS', key) end
  if kind == 'string' then all = { redis.call('GET', key) } end
  local function has(value)
    if type(value) == 'string' then return string.find(value, ARGV[1], 1, true) end
    for _, part in ipairs(value) do if has(part) then return true end end
  end
  if has(all) then return 1 end
end
return 0";

/// T53: nothing can be read in the store of what a tenant's clients are told, where it is sealed, and
/// every replica serves it all the same.
#[tokio::test]
async fn t53_sealed_payloads_cannot_be_read_in_the_store() {
    let upstream = Upstream::modern().await;
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let tenants = |sealed: bool| {
        let head = format!("    auth: none\n    store_encryption: {sealed}");
        let up = [("up", upstream.reach())];
        tenant("t", &head, &up, "stream_after: 20ms")
    };
    let (folder, file) = replicated(&redis, &tenants(false));
    let (a, b) = tokio::join!(Served::start(&file), Served::start(&file));
    for (sealed, words) in [(false, "open plans"), (true, "secret plans")] {
        let client = Client::open(&a).await;
        let (flight, priming) = Flight::primed(&a, &upstream, &client.call(7, "stream")).await;
        let answer = response(&flight.request, words);
        flight.upstream.message(&answer).await.unwrap();
        let events = rest(&b, &client.resume(id(&priming))).await;
        assert_eq!(text(&events[0].json()), words);
        let found = redis.ask_number(&["EVAL", SEARCH, "0", words]) == 1;
        assert_eq!(found, !sealed);
        // from then on, and what was stored before is read as it is
        folder.write("vestibule.yaml", &configuration(&redis, &tenants(true)));
        for replica in [&a, &b] {
            replica.program.signal("HUP");
            replica.program.stderr.with("configuration reloaded").await;
        }
    }
}

/// EL-18, STD-07: the same where only one process can say it to the upstream, which is its child.
#[tokio::test]
async fn el_18_a_question_of_a_process_is_answered_on_another_replica() {
    let program = tokio::task::spawn_blocking(|| binary("scripted-stdio").unwrap());
    let program = program.await.unwrap();
    let asks = json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create",
        "params": { "message": "?", "requestedSchema": { "type": "object", "properties": {} } } });
    let script = Script::new(&[
        stdio::undiscovered(),
        stdio::initialized(),
        stdio::lists(),
        json!({ "always": "notifications/initialized" }),
        json!({ "expect": "tools/call", "reply": [asks] }),
    ])
    .unwrap();
    let mut command = vec![program.display().to_string()];
    command.extend(script.arguments());
    let Some(house) = House::build(format!("command: {}", json!(command)), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let client = Client::able(&a, &json!({ "elicitation": {} })).await;
    let mut calling = a.connect().await;
    calling.send(&client.call(1, "t").bytes()).await.unwrap();
    calling.head().await.unwrap();
    let _priming = next(&mut calling).await;
    let question = next(&mut calling).await.json();
    let answer =
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } });
    for replica in [&b, &a, &b] {
        assert_eq!(replica.ask(&client.post(&answer)).await.status, 202);
    }
    let is_answer = |line: &&Value| line["id"] == 0 && line["method"].is_null();
    soon("the process has the answer", PATIENCE, async {
        while !stdio::record(&script).iter().any(|line| is_answer(&line)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let all = stdio::record(&script);
    let answers: Vec<_> = all.iter().filter(is_answer).collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["result"], json!({ "action": "decline" }));
}

/// EL-22, failure matrix: while the store is away stateless clients notice nothing, running streams
/// go on, new sessions and unknown ids are told when to come back; then all is as before.
#[tokio::test]
async fn el_22_an_outage_of_the_store_stops_new_sessions_only() {
    let upstream = Upstream::modern().await;
    let Some(house) = House::build(upstream.reach(), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let client = Client::open(&a).await;
    let (mut flight, _) = Flight::primed(&a, &upstream, &client.call(7, "stream")).await;
    flight.progress(1).await;
    next(&mut flight.client).await;
    house.redis.pause();
    assert_eq!(
        a.ask(&modern_call(UP, "echo", &json!({}))).await.status,
        200
    );
    flight.progress(2).await;
    let event = next(&mut flight.client).await;
    assert_eq!(event.json()["params"]["progress"], 2);
    let refused = a.ask(&initialize(UP, SESSIONS[0])).await;
    assert_eq!(refused.status, 503);
    assert!(refused.head.field("retry-after").is_some());
    assert_eq!(client.echo(&b).await.status, 503, "unknown here");
    let ready = a.page("/readyz").await;
    assert_eq!(ready.status, 200, "an outage must not empty the service");
    house.redis.resume();
    soon("sessions open again", PATIENCE, async {
        while a.ask(&initialize(UP, SESSIONS[0])).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // an id for what came without one
    let caught = next(&mut flight.client).await;
    assert_eq!(caught.data.as_deref(), Some(""), "{caught:?}");
    flight.progress(3).await;
    let event = next(&mut flight.client).await;
    assert_eq!(event.json()["params"]["progress"], 3);
    drop(flight.client);
    soon("the other one has noticed too", PATIENCE, async {
        while client.echo(&b).await.status != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut again = b.connect().await;
    let head = again.open(&client.resume(id(&caught))).await.unwrap();
    assert!(head.start.contains(" 200 "), "{}", head.start);
    let event = next(&mut again).await;
    assert_eq!(event.json()["params"]["progress"], 3, "nothing twice");
}

/// EL-29: a client that comes back to a replica which has not seen its session, while the store is
/// away, is let in by what its ids prove, waits, and gets what it has missed.
#[tokio::test]
async fn el_29_a_resume_on_another_replica_waits_for_the_store() {
    let upstream = Upstream::modern().await;
    let Some(house) = House::build(upstream.reach(), "") else {
        return;
    };
    let (a, b) = tokio::join!(house.replica(), house.replica());
    let client = Client::open(&a).await;
    let (mut flight, priming) = Flight::primed(&a, &upstream, &client.call(7, "stream")).await;
    flight.progress(1).await;
    next(&mut flight.client).await;
    house.redis.pause();
    let forged = "x".repeat(id(&priming).len());
    assert_eq!(b.ask(&client.resume(&forged)).await.status, 400);
    let mut again = b.connect().await;
    let head = again.open(&client.resume(id(&priming))).await.unwrap();
    assert!(head.start.contains(" 200 "), "{}", head.start);
    let waiting = again.next_event().await.unwrap().expect("a comment");
    assert_eq!(waiting.comments, ["wait"]);
    house.redis.resume();
    let event = next(&mut again).await;
    assert_eq!(event.json()["params"]["progress"], 1);
    flight.progress(2).await;
    let event = next(&mut again).await;
    assert_eq!(event.json()["params"]["progress"], 2);
}
