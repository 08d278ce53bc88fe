//! `kill -9` and a new process on the same folder: sessions and streams go on (EL-27).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;
use vestibule_testkit::recording::AnswerStream;
use vestibule_testkit::sse::SseEvent;
use vestibule_testkit::{PATIENCE, RawClient, RawRequest, RawResponse, Recorded};

use crate::process::{Folder, Program, Served};
use crate::talk::{
    SESSIONS, Upstream, get, initialize_with, open_tenant, post, progress, response, text,
};

const UP: &str = "/mcp/t/up";

/// A folder with a configuration whose state is on disk beside it.
fn house(upstream: &Upstream, store: &str) -> (Folder, PathBuf) {
    house_of(&upstream.reach(), store)
}

pub(crate) fn house_of(reach: &str, store: &str) -> (Folder, PathBuf) {
    let folder = Folder::new();
    let tenant = open_tenant(&[("up", reach.to_owned())], "stream_after: 20ms");
    let text = format!(
        "listen: {{ address: \"127.0.0.1:0\" }}
admin: {{ address: \"127.0.0.1:0\" }}
telemetry: {{ log: json }}
{store}
tenants:
{tenant}"
    );
    let file = folder.write("vestibule.yaml", &text);
    (folder, file)
}

/// A client's session, which knows nothing of processes.
pub(crate) struct Client {
    pub(crate) session: String,
}

impl Client {
    pub(crate) async fn open(gateway: &Served) -> Self {
        Self::able(gateway, &json!({})).await
    }

    /// One that declares capabilities.
    pub(crate) async fn able(gateway: &Served, capabilities: &Value) -> Self {
        let opening = initialize_with(UP, SESSIONS[0], capabilities);
        let answer = gateway.ask(&opening).await;
        let session = answer
            .head
            .field("mcp-session-id")
            .expect("an id")
            .to_owned();
        let client = Self { session };
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let answer = gateway.ask(&client.post(&ready)).await;
        assert_eq!(answer.status, 202);
        client
    }

    pub(crate) fn dressed(&self, request: RawRequest) -> RawRequest {
        request
            .field("Mcp-Session-Id", &self.session)
            .field("MCP-Protocol-Version", SESSIONS[0])
    }

    pub(crate) fn post(&self, body: &Value) -> RawRequest {
        self.dressed(post(UP, body.to_string()))
    }

    pub(crate) fn call(&self, id: u32, tool: &str) -> RawRequest {
        let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": id } });
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))
    }

    pub(crate) fn resume(&self, last: &str) -> RawRequest {
        self.dressed(get(UP)).field("Last-Event-ID", last)
    }

    pub(crate) async fn echo(&self, gateway: &Served) -> RawResponse {
        gateway.ask(&self.call(99, "echo")).await
    }
}

/// A call in flight and the upstream's side of it.
pub(crate) struct Flight {
    pub(crate) client: RawClient,
    pub(crate) request: Recorded,
    pub(crate) upstream: AnswerStream,
}

impl Flight {
    pub(crate) async fn start(gateway: &Served, upstream: &Upstream, request: &RawRequest) -> Self {
        let mut client = gateway.connect().await;
        client.send(&request.bytes()).await.unwrap();
        let (request, upstream) = upstream.opened().await;
        Self {
            client,
            request,
            upstream,
        }
    }

    /// The same, once its stream is open; the id of the stream's beginning is in the event.
    pub(crate) async fn primed(
        gateway: &Served,
        upstream: &Upstream,
        request: &RawRequest,
    ) -> (Self, SseEvent) {
        let mut flight = Self::start(gateway, upstream, request).await;
        flight.client.head().await.unwrap();
        let priming = next(&mut flight.client).await;
        (flight, priming)
    }

    pub(crate) async fn progress(&self, value: u32) {
        let message = progress(&self.request, value);
        self.upstream.message(&message).await.unwrap();
    }
}

pub(crate) async fn next(client: &mut RawClient) -> SseEvent {
    client.next_event().await.unwrap().expect("another event")
}

pub(crate) fn id(event: &SseEvent) -> &str {
    event.id.as_deref().expect("an event with an id")
}

/// Everything that comes until the stream closes.
pub(crate) async fn rest(gateway: &Served, request: &RawRequest) -> Vec<SseEvent> {
    let mut client = gateway.connect().await;
    let head = client.open(request).await.unwrap();
    assert!(head.start.contains(" 200 "), "{}", head.start);
    let mut events = vec![];
    while let Some(event) = client.next_event().await.unwrap() {
        events.push(event);
    }
    events
}

pub(crate) fn progresses(events: &[SseEvent]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| event.json()["params"]["progress"].as_u64())
        .collect()
}

pub(crate) async fn kill(mut served: Served) {
    served.program.signal("KILL");
    served.program.ended(PATIENCE).await;
}

/// SIGTERM, waited for.
pub(crate) async fn stop(mut served: Served) {
    served.program.signal("TERM");
    served.program.ended(PATIENCE).await;
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().unwrap().join("vestibule-data")
}

/// EL-14, EL-15, RES-03: what the client has not had comes once and in order, then exactly one
/// error, and nothing is run again. The session goes on.
#[tokio::test]
async fn el_15_a_call_that_died_with_its_process_is_resumed_to_exactly_one_error() {
    let upstream = Upstream::modern().await;
    let (_folder, file) = house(&upstream, "");
    let gateway = Served::start(&file).await;
    let client = Client::open(&gateway).await;
    let (mut flight, priming) =
        Flight::primed(&gateway, &upstream, &client.call(7, "stream")).await;
    let mut had = vec![priming];
    for value in 1..=5 {
        flight.progress(value).await;
        had.push(next(&mut flight.client).await);
    }
    assert_eq!(upstream.calls(), 1);
    kill(gateway).await;

    let gateway = Served::start(&file).await;
    for (index, event) in had.iter().enumerate() {
        let events = rest(&gateway, &client.resume(id(event))).await;
        let expected: Vec<u64> = (1..=5).skip(index).collect();
        assert_eq!(progresses(&events), expected, "after {index}");
        let ids: Vec<&str> = events.iter().map(id).collect();
        let before: Vec<&str> = had[index + 1..].iter().map(id).collect();
        assert_eq!(ids[..before.len()], before, "the same ids as before");
        let ends: Vec<Value> = events
            .iter()
            .map(SseEvent::json)
            .filter(|message| message["id"] == 7)
            .collect();
        assert_eq!(ends.len(), 1, "{ends:?}");
        assert_eq!(ends[0]["error"]["code"], -31004);
        assert_eq!(ends[0]["error"]["data"]["reason"], "outcome_unknown");
        assert_eq!(events.last().unwrap().json(), ends[0]);
        let over = gateway.ask(&client.resume(ids[ids.len() - 1])).await;
        assert_eq!(over.status, 405, "EL-13: nothing is left");
    }
    assert_eq!(upstream.calls(), 1, "nothing is run again");
    assert_eq!(text(&client.echo(&gateway).await.answer()), "{}");
    let metrics = gateway.page("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("vestibule_store_up 1"));
    assert!(metrics.contains(r#"vestibule_sessions{revision="2025-11-25",tenant="t"} 1"#));
}

/// RES-03, EL-13: a stream that ended while its client was away is replayed whole by the next
/// process. Also the second kill loses nothing.
#[tokio::test]
async fn res_03_a_finished_stream_is_replayed_whole_by_the_next_process() {
    let upstream = Upstream::modern().await;
    let store = "store: { path: ./kept, fsync: 100ms }";
    let (folder, file) = house(&upstream, store);
    let gateway = Served::start(&file).await;
    let client = Client::open(&gateway).await;
    let (mut flight, priming) =
        Flight::primed(&gateway, &upstream, &client.call(1, "stream")).await;
    flight.progress(1).await;
    next(&mut flight.client).await;
    // a second connection takes over, so that the first one misses the rest
    let mut other = gateway.connect().await;
    other.open(&client.resume(id(&priming))).await.unwrap();
    for value in [2, 3] {
        flight.progress(value).await;
    }
    let answer = response(&flight.request, "done");
    flight.upstream.message(&answer).await.unwrap();
    while other.next_event().await.unwrap().is_some() {}
    kill(gateway).await;

    for life in 2..4 {
        let gateway = Served::start(&file).await;
        let events = rest(&gateway, &client.resume(id(&priming))).await;
        assert_eq!(progresses(&events), [1, 2, 3], "life {life}");
        assert_eq!(text(&events[3].json()), "done");
        assert_eq!(events.len(), 4);
        assert_eq!(client.echo(&gateway).await.status, 200);
        kill(gateway).await;
    }
    drop(folder);
}

/// What a client has had of one call: ids and messages.
type Had = Vec<(String, Value)>;

/// Reads an answer until the connection breaks or ends.
async fn read_until_broken(mut client: RawClient, events: watch::Sender<usize>) -> Had {
    let mut had = vec![];
    while let Ok(Some(event)) = client.next_event().await {
        if event.data.as_deref() != Some("") {
            had.push((id(&event).to_owned(), event.json()));
            events.send_modify(|count| *count += 1);
        } else {
            had.push((id(&event).to_owned(), Value::Null));
        }
    }
    had
}

/// An upstream's side of a call: progress as fast as it is taken, every third call with an end.
async fn pump(request: Recorded, upstream: AnswerStream, number: usize) {
    for value in 1..=2000 {
        if upstream.message(&progress(&request, value)).await.is_err() {
            return; // the gateway is gone
        }
        if number.is_multiple_of(3) && value == 20 {
            // may be too late as well
            let _sent = upstream.message(&response(&request, "done")).await;
            return;
        }
        tokio::task::yield_now().await;
    }
    upstream.gone().await;
}

/// Failure matrix 2, EL-14, EL-16: kills in the middle of many calls. Whatever a client has had and
/// gets afterwards is each event once, in order, under ids of its own, and one end a call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_16_kills_in_the_middle_of_many_calls_lose_and_repeat_nothing() {
    const CALLS: usize = 12;
    const ROUNDS: usize = 3;
    let upstream = Upstream::modern().await;
    let (_folder, file) = house(&upstream, "");
    let mut gateway = Served::start(&file).await;
    let client = Client::open(&gateway).await;
    let mut ids = std::collections::HashSet::new();
    for round in 0..ROUNDS {
        let events = watch::Sender::new(0_usize);
        let mut calls = vec![];
        for number in 0..CALLS {
            let request = client.call(u32::try_from(round * 100 + number).unwrap(), "stream");
            let mut flight = Flight::start(&gateway, &upstream, &request).await;
            tokio::spawn(pump(flight.request, flight.upstream, number));
            flight.client.head().await.unwrap();
            calls.push(tokio::spawn(read_until_broken(
                flight.client,
                events.clone(),
            )));
        }
        let mut seen = events.subscribe();
        let enough = seen.wait_for(|count| *count > 300 + round * 150);
        timeout(PATIENCE, enough).await.unwrap().unwrap();
        kill(gateway).await;
        gateway = Served::start(&file).await;
        let (mut finished, mut unknown) = (0, 0);
        for (number, call) in calls.into_iter().enumerate() {
            let mut had = call.await.unwrap();
            if had.last().is_none_or(|(_, last)| last["id"].is_null()) {
                let last = had.last().expect("a primed stream").0.clone();
                let rest = rest(&gateway, &client.resume(&last)).await;
                had.extend(
                    rest.iter()
                        .map(|event| (id(event).to_owned(), event.json())),
                );
            }
            let messages: Vec<&Value> = had.iter().skip(1).map(|(_, message)| message).collect();
            let (end, before) = messages.split_last().unwrap();
            for (index, message) in before.iter().enumerate() {
                assert_eq!(message["params"]["progress"], index + 1, "{round} {number}");
            }
            assert_eq!(end["id"], round * 100 + number, "one end");
            finished += usize::from(end.get("result").is_some());
            unknown += usize::from(end["error"]["data"]["reason"] == "outcome_unknown");
            for (id, _) in had {
                assert!(ids.insert(id), "RES-07");
            }
        }
        assert_eq!(finished + unknown, CALLS);
        assert!(finished > 0 && unknown > 0, "{finished} and {unknown}");
    }
    assert_eq!(upstream.calls(), ROUNDS * CALLS, "nothing is run again");
}

/// EL-13, GET-05: nobody listened upstream while no process ran, so a client that comes back to its
/// standalone stream is told to look again, under ids that were never used.
#[tokio::test]
async fn get_05_a_standalone_stream_goes_on_and_its_client_looks_again() {
    let upstream = Upstream::modern().await;
    let (_folder, file) = house(&upstream, "");
    let gateway = Served::start(&file).await;
    let client = Client::open(&gateway).await;
    let mut standalone = gateway.connect().await;
    standalone.open(&client.dressed(get(UP))).await.unwrap();
    let mut seen = vec![id(&next(&mut standalone).await).to_owned()];
    kill(gateway).await;
    for life in 2..4 {
        let gateway = Served::start(&file).await;
        let mut again = gateway.connect().await;
        let head = again
            .open(&client.resume(&seen[seen.len() - 1]))
            .await
            .unwrap();
        assert!(head.start.contains(" 200 "), "{}", head.start);
        let event = next(&mut again).await;
        let method = event.json()["method"].clone();
        let method = method.as_str().unwrap_or_default();
        assert!(method.ends_with("/list_changed"), "life {life}: {method}");
        assert!(!seen.iter().any(|before| before == id(&event)), "RES-07");
        seen.push(id(&event).to_owned());
        kill(gateway).await;
    }
}

/// A key that the operator configured is his to keep: none is made.
#[tokio::test]
async fn a_configured_sealing_key_is_used_and_no_other_is_made() {
    let upstream = Upstream::modern().await;
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let store = format!("sealing: {{ keys: [{{ id: k1, secret: {key} }}] }}");
    let (_folder, file) = house(&upstream, &store);
    let gateway = Served::start(&file).await;
    let client = Client::open(&gateway).await;
    assert!(!folder_of(&file).join("sealing.key").exists());
    kill(gateway).await;
    let gateway = Served::start(&file).await;
    assert_eq!(client.echo(&gateway).await.status, 200);
}

/// SES-03: a session that was ended stays ended.
#[tokio::test]
async fn ses_03_a_session_that_was_deleted_is_404_for_the_next_process_too() {
    let upstream = Upstream::modern().await;
    let (_folder, file) = house(&upstream, "");
    let gateway = Served::start(&file).await;
    let (ended, kept) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let delete = ended.dressed(RawRequest::new("DELETE", UP).field("Host", "127.0.0.1"));
    assert_eq!(gateway.ask(&delete).await.status, 204);
    kill(gateway).await;
    let gateway = Served::start(&file).await;
    assert_eq!(ended.echo(&gateway).await.status, 404);
    assert_eq!(kept.echo(&gateway).await.status, 200);
}

/// The folder is one process's, its files are nobody else's, and its key is shown to nobody.
#[tokio::test]
async fn the_folder_belongs_to_one_process() {
    let upstream = Upstream::modern().await;
    let (_folder, file) = house(&upstream, "");
    let mut gateway = Served::start(&file).await;
    let data = folder_of(&file);
    let arguments = ["serve", "--config", file.to_str().unwrap()];
    let mut second = Program::start(&arguments);
    let status = second.ended(PATIENCE).await;
    assert!(!status.success());
    let said = second.stderr.whole().await.join("\n");
    assert!(said.contains(data.to_str().unwrap()), "{said}");
    assert!(said.contains("another process uses it"), "{said}");
    assert!(said.contains(&gateway.program.pid().to_string()), "{said}");

    let mode = |name: &str| {
        let file = std::fs::metadata(data.join(name)).unwrap();
        file.permissions().mode() & 0o777
    };
    assert_eq!(mode(""), 0o700);
    for name in ["sealing.key", "vestibule.redb", "lock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    let key = std::fs::read_to_string(data.join("sealing.key")).unwrap();
    gateway.program.signal("TERM");
    gateway.program.signal("TERM");
    gateway.program.ended(Duration::from_secs(20)).await;
    let said = gateway.program.stderr.whole().await.join("\n");
    assert!(!said.contains(key.trim()), "the key is in the log");
}

/// Failure matrix 42: a damaged file is set aside, said, and the gateway serves.
#[tokio::test]
async fn a_damaged_file_is_set_aside_and_the_gateway_serves() {
    let upstream = Upstream::modern().await;
    let (_folder, file) = house(&upstream, "");
    let gateway = Served::start(&file).await;
    let client = Client::open(&gateway).await;
    kill(gateway).await;
    let data = folder_of(&file).join("vestibule.redb");
    let damaged = vec![0xA5; 8192];
    std::fs::write(&data, &damaged).unwrap();
    let gateway = Served::start(&file).await;
    let said = gateway.program.stderr.with("set aside").await;
    assert!(said.contains("vestibule.redb.damaged-1"), "{said}");
    let aside = folder_of(&file).join("vestibule.redb.damaged-1");
    assert_eq!(std::fs::read(aside).unwrap(), damaged);
    assert_eq!(client.echo(&gateway).await.status, 404, "told, not silent");
    let again = Client::open(&gateway).await;
    assert_eq!(gateway.page("/readyz").await.status, 200);
    kill(gateway).await;
    let gateway = Served::start(&file).await;
    assert_eq!(again.echo(&gateway).await.status, 200);
}

/// EL-29, drain: a process that stops stays for a call whose client it has sent away, though nobody is
/// connected any more, and its answer can be fetched from the next one.
#[tokio::test]
async fn el_29_a_call_whose_client_was_sent_away_runs_to_its_end() {
    let upstream = Upstream::modern().await;
    let (_folder, file) = house(&upstream, "shutdown: { delay: 0s, grace: 60s }");
    let mut served = Served::start(&file).await;
    let client = Client::open(&served).await;
    let (mut flight, priming) = Flight::primed(&served, &upstream, &client.call(7, "stream")).await;
    served.program.signal("TERM");
    let sent_away = flight.client.next_event().await.unwrap().unwrap();
    assert!(sent_away.retry.is_some(), "{sent_away:?}");
    assert!(flight.client.next_event().await.unwrap().is_none());
    flight.client.closed().await.unwrap();
    let answer = response(&flight.request, "kept");
    flight.upstream.message(&answer).await.unwrap();
    let status = served.program.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(0), "nothing was cut");
    let again = Served::start(&file).await;
    let events = rest(&again, &client.resume(id(&priming))).await;
    assert_eq!(text(&events.last().expect("its answer").json()), "kept");
}
