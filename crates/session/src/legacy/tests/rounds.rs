//! Calls to upstreams that want answers before they go on (translation rules, 6.2): the client is asked
//! on the stream of its call, and the upstream called again, by whatever process is there.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use vestibule_exchange::{Answers, Event, Final, Wanted, Wish};
use vestibule_terms::accept::Accepts;
use vestibule_terms::{Method, Revision};

use super::{Below, settle};
use crate::testing::{Got, House, Item, call, progress, upstream};

const D: Revision = Revision::R2025_11_25;
const C: Revision = Revision::R2025_06_18;
const ALL: &str = r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;
const FORM: &str = r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#;
const SAMPLE: &str = r#"{"messages":[],"maxTokens":1}"#;
const STATE: &str = r#""s\u0074\/1""#;

fn wish(key: &str, method: Method, params: &str) -> Wish {
    Wish {
        key: Bytes::from(format!("\"{key}\"")),
        method,
        params: Some(Bytes::copy_from_slice(params.as_bytes())),
    }
}

fn form(key: &str) -> Wish {
    wish(key, Method::ElicitationCreate, FORM)
}

fn page(key: &str, url: &str) -> Wish {
    let params = json!({ "mode": "url", "message": "go", "url": url });
    wish(key, Method::ElicitationCreate, &params.to_string())
}

fn wanted(state: Option<&'static str>, questions: Vec<Wish>) -> Event {
    Event::Final(Final::Wanted(Box::new(Wanted {
        upstream: upstream(),
        state: state.map(|state| Bytes::from_static(state.as_bytes())),
        questions,
    })))
}

fn answer(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn read(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/read","params":{{"uri":"a:b"}}}}"#)
}

/// What the call number `index` tells its upstream.
fn told(below: &Below, index: usize) -> Answers {
    below.with(index, |call| {
        call.rounds
            .answers
            .as_deref()
            .cloned()
            .expect("a later round")
    })
}

fn responses(below: &Below, index: usize) -> String {
    let responses = told(below, index).responses.expect("answers");
    String::from_utf8(responses.to_vec()).unwrap()
}

/// A house with a session.
struct World {
    below: Below,
    house: House,
    session: String,
}

impl World {
    async fn new(revision: Revision) -> Self {
        let below = Below::default();
        let house = below.house();
        let session = house.open(revision, ALL).await;
        Self {
            below,
            house,
            session,
        }
    }

    /// A call that wants this at once: its stream, and the first `count` messages of it.
    async fn asked(&self, body: &str, event: Event, count: usize) -> (Got, Vec<Value>) {
        let index = self.below.calls();
        let telling = async {
            settle().await;
            self.below.tell(index, event);
        };
        let mut got = tokio::join!(self.house.in_session(&self.session, body), telling).0;
        assert!(got.is_stream());
        let mut messages = Vec::new();
        while messages.len() < count {
            let item = got.next().await.unwrap();
            if matches!(&item, Item::Event(_, data) if !data.is_empty()) {
                messages.push(item.json());
            }
        }
        (got, messages)
    }

    async fn say(&self, body: &str) -> u16 {
        let got = self.house.in_session(&self.session, body).await;
        got.status().as_u16()
    }

    async fn next(&self, got: &mut Got) -> Value {
        loop {
            match got.next().await.unwrap() {
                Item::Event(_, data) if !data.is_empty() => {
                    return serde_json::from_str(&data).unwrap();
                }
                Item::Event(..) | Item::Retry(_) | Item::Comment => {}
            }
        }
    }
}

/// XT-131, MRT-11: two keys are two requests on the stream of the call; the next request brings both
/// answers as they came, the state as the token it was, under an id of its own.
#[tokio::test(start_paused = true)]
async fn xt_131_every_key_is_asked_and_the_next_round_has_all_answers() {
    let world = World::new(D).await;
    let questions = vec![form("a"), wish("b", Method::SamplingCreateMessage, SAMPLE)];
    let event = wanted(Some(STATE), questions);
    let (mut got, asked) = world.asked(&call("1", ""), event, 2).await;
    assert_eq!(asked[0]["method"], "elicitation/create");
    assert_eq!(asked[1]["method"], "sampling/createMessage");
    assert_ne!(asked[0]["id"], asked[1]["id"]);
    let sampled = r#"{"role":"assistant","content":{"type":"text","text":"\u00e9"},"model":"m"}"#;
    assert_eq!(world.say(&answer(&asked[1]["id"], sampled)).await, 202);
    settle().await;
    assert_eq!(world.below.calls(), 1, "one is missing");
    let accept = r#"{"action":"accept","content":{"n":1.0}}"#;
    assert_eq!(world.say(&answer(&asked[0]["id"], accept)).await, 202);
    settle().await;
    assert_eq!(
        responses(&world.below, 1),
        format!(r#"{{"a":{accept},"b":{sampled}}}"#)
    );
    assert_eq!(told(&world.below, 1).state.unwrap(), STATE);
    world.below.with(1, |call| {
        assert!(call.message.is_unchanged() && call.rounds.asks);
        assert!(call.capabilities.sampling && call.capabilities.elicit_url);
    });
    world.below.end(1);
    assert_eq!(world.next(&mut got).await["id"], 1);
    assert!(
        world.house.back.taken().is_empty(),
        "nothing waits at the upstream"
    );
}

/// XT-132, XT-134: without a state none is sent, and what the user decides is the upstream's to judge.
#[tokio::test(start_paused = true)]
async fn xt_134_the_users_decision_reaches_the_upstream() {
    for (given, sent) in [
        (
            r#"{"action":"decline","content":{}}"#,
            r#"{"k":{"action":"decline"}}"#,
        ),
        (r#"{"action":"cancel"}"#, r#"{"k":{"action":"cancel"}}"#),
    ] {
        let world = World::new(C).await;
        let event = wanted(None, vec![form("k")]);
        let (_got, asked) = world.asked(&call("1", ""), event, 1).await;
        world.say(&answer(&asked[0]["id"], given)).await;
        // who says it twice is not heard twice (XT-164)
        assert_eq!(world.say(&answer(&asked[0]["id"], "{}")).await, 202);
        settle().await;
        assert_eq!(responses(&world.below, 1), sent);
        assert_eq!(told(&world.below, 1).state, None, "XT-132");
    }
}

/// XT-133: a state alone is a request to come again; the client hears nothing of it.
#[tokio::test(start_paused = true)]
async fn xt_133_an_upstream_that_only_gives_a_state_is_called_again() {
    let world = World::new(D).await;
    let body = call("1", "");
    let telling = async {
        for index in 0..3 {
            settle().await;
            world.below.tell(index, wanted(Some(STATE), vec![]));
            settle().await;
            assert_eq!(world.below.calls(), index + 1, "not at once");
            sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(told(&world.below, 3).state.unwrap(), STATE);
        assert_eq!(told(&world.below, 3).responses, None);
        world.below.end(3);
    };
    let (got, ()) = tokio::join!(world.house.in_session(&world.session, &body), telling);
    assert_eq!(got.json().await["id"], 1);
}

/// XT-135, AMB-17: a client that answers with an error ends the call; what else it is asked is withdrawn.
#[tokio::test(start_paused = true)]
async fn xt_135_an_error_of_the_client_ends_the_call() {
    let world = World::new(D).await;
    let questions = || vec![wish("a", Method::SamplingCreateMessage, SAMPLE), form("b")];
    let refuse = |id: &Value| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"rejected"}}}}"#)
    };
    let (mut got, asked) = world
        .asked(&call("1", ""), wanted(None, questions()), 2)
        .await;
    world.say(&refuse(&asked[0]["id"])).await;
    let withdrawn = world.next(&mut got).await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], asked[1]["id"]);
    let end = world.next(&mut got).await;
    assert_eq!(end["result"]["isError"], true);
    assert!(
        end["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("rejected")
    );
    assert!(got.rest().await.is_empty());
    let (mut got, asked) = world.asked(&read(2), wanted(None, questions()), 2).await;
    world.say(&refuse(&asked[0]["id"])).await;
    let _withdrawn = world.next(&mut got).await;
    assert_eq!(world.next(&mut got).await["error"]["code"], -1);
    assert_eq!(world.below.calls(), 2, "the upstream hears nothing");
}

/// Section 15: what has no form in the client's revision is not asked, nor is anything with it.
#[tokio::test(start_paused = true)]
async fn xt_145_a_question_without_a_form_ends_the_call() {
    let several = r#"{"message":"m","requestedSchema":{"type":"object","properties":{"z":{"type":"array","items":{"type":"string","enum":["a"]}}}}}"#;
    for (body, is_tool) in [(call("1", ""), true), (read(1), false)] {
        let world = World::new(C).await;
        let questions = vec![form("a"), wish("b", Method::ElicitationCreate, several)];
        let telling = async {
            settle().await;
            world.below.tell(0, wanted(None, questions));
        };
        let (got, ()) = tokio::join!(world.house.in_session(&world.session, &body), telling);
        let end = got.json().await;
        if is_tool {
            assert_eq!(end["result"]["isError"], true, "{end}");
        } else {
            assert_eq!(end["error"]["code"], -31007, "{end}");
        }
    }
}

/// XT-139, CAN-03: who cancels a call is not asked about it any more, and gets no response.
#[tokio::test(start_paused = true)]
async fn xt_139_a_cancelled_call_withdraws_its_questions() {
    let world = World::new(D).await;
    let (mut got, asked) = world
        .asked(&call("1", ""), wanted(None, vec![form("k")]), 1)
        .await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(world.say(cancel).await, 202);
    let withdrawn = world.next(&mut got).await;
    assert_eq!(withdrawn["params"]["requestId"], asked[0]["id"]);
    assert!(got.rest().await.is_empty());
    world
        .say(&answer(&asked[0]["id"], r#"{"action":"cancel"}"#))
        .await;
    settle().await;
    assert_eq!(world.below.calls(), 1);
}

/// XT-140, MRT-09: a call has sixteen rounds.
#[tokio::test(start_paused = true)]
async fn xt_140_the_seventeenth_round_is_refused() {
    for (body, is_tool) in [(call("1", ""), true), (read(1), false)] {
        let world = World::new(D).await;
        let want = || wanted(None, vec![form("k")]);
        let (mut got, asked) = world.asked(&body, want(), 1).await;
        let mut id = asked[0]["id"].clone();
        for round in 1..=16 {
            world.say(&answer(&id, r#"{"action":"cancel"}"#)).await;
            settle().await;
            world.below.tell(round, want());
            let next = world.next(&mut got).await;
            if round < 16 {
                id = next["id"].clone();
                continue;
            }
            if is_tool {
                assert_eq!(next["result"]["isError"], true, "{next}");
            } else {
                assert_eq!(next["error"]["code"], -31003, "{next}");
            }
        }
    }
}

/// XT-138, ELI-06: a page that the user went to is not shown again; the upstream is asked again and
/// again until it has gone on, and then the client is told that it is done with.
#[tokio::test(start_paused = true)]
async fn xt_138_a_page_is_shown_once() {
    let world = World::new(D).await;
    let want = || wanted(Some(STATE), vec![page("k", "https://a")]);
    let (mut got, asked) = world.asked(&call("1", ""), want(), 1).await;
    let elicitation = asked[0]["params"]["elicitationId"].clone();
    assert!(elicitation.is_string());
    world
        .say(&answer(&asked[0]["id"], r#"{"action":"accept"}"#))
        .await;
    for (round, seconds) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 15), (6, 15)] {
        settle().await;
        assert_eq!(world.below.calls(), round + 1);
        assert_eq!(
            responses(&world.below, round),
            r#"{"k":{"action":"accept"}}"#
        );
        world.below.tell(round, want());
        sleep(Duration::from_secs(seconds) - Duration::from_millis(10)).await;
        assert_eq!(world.below.calls(), round + 1, "{seconds} s");
        sleep(Duration::from_millis(10)).await;
    }
    settle().await;
    world.below.end(7);
    let done = world.next(&mut got).await;
    assert_eq!(done["method"], "notifications/elicitation/complete");
    assert_eq!(done["params"]["elicitationId"], elicitation);
    assert_eq!(world.next(&mut got).await["id"], 1);
    // another page is another question
    let (mut got, asked) = world.asked(&call("2", ""), want(), 1).await;
    world
        .say(&answer(&asked[0]["id"], r#"{"action":"accept"}"#))
        .await;
    settle().await;
    world
        .below
        .tell(9, wanted(None, vec![page("k", "https://b")]));
    assert_eq!(
        world.next(&mut got).await["method"],
        "notifications/elicitation/complete"
    );
    assert_eq!(world.next(&mut got).await["params"]["url"], "https://b");
}

/// 6.2: a client is waited for ten minutes, and hears meanwhile that its call is still there, in values
/// that go on increasing through all rounds (8.1).
#[tokio::test(start_paused = true)]
async fn xt_144_a_long_question_keeps_its_stream_and_ends_in_time() {
    let world = World::new(C).await;
    let body = call("1", r#""progressToken":"p""#);
    let index = world.below.calls();
    let telling = async {
        settle().await;
        world.below.tell(index, progress(4));
        world.below.tell(index, wanted(None, vec![form("k")]));
    };
    let mut got = tokio::join!(world.house.in_session(&world.session, &body), telling).0;
    assert_eq!(world.next(&mut got).await["params"]["progress"], 4);
    let id = world.next(&mut got).await["id"].clone();
    let started = tokio::time::Instant::now();
    for value in [5, 6] {
        let message = world.next(&mut got).await;
        assert_eq!(
            message["params"],
            json!({"progressToken": "p", "progress": value})
        );
    }
    assert_eq!(started.elapsed().as_secs(), 40);
    world.say(&answer(&id, r#"{"action":"accept"}"#)).await;
    settle().await;
    world.below.tell(1, progress(1));
    assert_eq!(world.next(&mut got).await["params"]["progress"], 7);
    world.below.tell(1, wanted(None, vec![form("k")]));
    let _asked = world.next(&mut got).await;
    let started = tokio::time::Instant::now();
    let mut last = json!(7);
    loop {
        let message = world.next(&mut got).await;
        if message["method"] == "notifications/progress" {
            assert!(message["params"]["progress"].as_f64() > last.as_f64());
            last = message["params"]["progress"].clone();
            continue;
        }
        assert_eq!(message["method"], "notifications/cancelled");
        break;
    }
    assert_eq!(started.elapsed().as_secs(), 600);
    assert_eq!(world.next(&mut got).await["error"]["code"], -31002);
}

/// XT-144, SSE-05: with `poll_close` a client that can come back is sent away while it is asked.
#[tokio::test(start_paused = true)]
async fn xt_144_a_polling_client_comes_back_for_the_rest() {
    let mut world = World::new(D).await;
    world.house.plan.poll_close = true;
    let index = world.below.calls();
    let body = call("1", "");
    let telling = async {
        settle().await;
        world.below.tell(index, wanted(None, vec![form("k")]));
    };
    let got = tokio::join!(world.house.in_session(&world.session, &body), telling).0;
    let items = got.rest().await;
    let retries = items.iter().any(|item| matches!(item, Item::Retry(_)));
    assert!(retries, "{items:?}");
    let events: Vec<&Item> = items
        .iter()
        .filter(|item| matches!(item, Item::Event(..)))
        .collect();
    let asked = events
        .iter()
        .find(|item| matches!(item, Item::Event(_, data) if !data.is_empty()));
    let id = asked.unwrap().json()["id"].clone();
    let last = events.last().unwrap().id();
    world.say(&answer(&id, r#"{"action":"accept"}"#)).await;
    settle().await;
    world.below.end(1);
    let headers = [
        ("mcp-session-id", &*world.session),
        ("last-event-id", &*last),
    ];
    let rest = world.house.get(&headers).await.rest().await;
    assert_eq!(rest.last().unwrap().json()["id"], 1, "{rest:?}");
}

/// XT-141, HDR-01: a client that takes no stream cannot be asked, and the stages below know.
#[tokio::test(start_paused = true)]
async fn xt_141_a_client_that_takes_no_stream_is_not_asked() {
    let mut world = World::new(D).await;
    for (sse, asks) in [(false, false), (true, true)] {
        world.house.accepts = Accepts {
            sse,
            ..Accepts::ANY
        };
        let index = world.below.calls();
        let body = call("1", "");
        let telling = async {
            settle().await;
            assert_eq!(world.below.with(index, |call| call.rounds.asks), asks);
            world.below.end(index);
        };
        tokio::join!(world.house.in_session(&world.session, &body), telling);
    }
}

/// LIF-05: before the client is ready its questions wait.
#[tokio::test(start_paused = true)]
async fn lif_05_questions_between_rounds_wait_for_initialized() {
    let below = Below::default();
    let house = below.house();
    let session = house.open_only(C, ALL).await;
    let body = call("1", "");
    let telling = async {
        settle().await;
        below.tell(0, wanted(None, vec![form("k")]));
        sleep(Duration::from_secs(3)).await;
    };
    let (mut stream, ()) = tokio::join!(house.in_session(&session, &body), telling);
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    house.in_session(&session, ready).await;
    let mut got = house.get(&[("mcp-session-id", &session)]).await;
    let asked = got.next().await.unwrap().json();
    house
        .in_session(&session, &answer(&asked["id"], r#"{"action":"cancel"}"#))
        .await;
    settle().await;
    below.end(1);
    while !matches!(stream.next().await, Some(Item::Event(_, data)) if data.contains("\"id\":1")) {}
}

/// XT-136, HTR-04: an answer to any process finds the call, whatever the store does meanwhile.
#[tokio::test(start_paused = true)]
async fn xt_136_an_answer_to_another_process_finds_the_call() {
    let world = World::new(D).await;
    let other = world.house.beside();
    let event = wanted(None, vec![form("a"), form("b")]);
    let (mut got, asked) = world.asked(&call("1", ""), event, 2).await;
    let said = answer(&asked[0]["id"], r#"{"action":"accept"}"#);
    assert_eq!(other.in_session(&world.session, &said).await.status(), 202);
    let late = answer(&asked[0]["id"], r#"{"action":"cancel"}"#);
    assert_eq!(world.say(&late).await, 202, "EL-18: the first one counts");
    world.house.store.be_away(true);
    let said = answer(&asked[1]["id"], r#"{"action":"decline"}"#);
    assert_eq!(
        world.say(&said).await,
        503,
        "it is not taken before it is safe"
    );
    world.house.store.be_away(false);
    assert_eq!(world.say(&said).await, 202);
    sleep(Duration::from_secs(6)).await;
    let expected = r#"{"a":{"action":"accept"},"b":{"action":"decline"}}"#;
    assert_eq!(responses(&world.below, 1), expected);
    world.below.end(1);
    assert_eq!(world.next(&mut got).await["id"], 1);
}

/// A process: what runs in it ends with it.
fn process() -> Runtime {
    let mut process = Builder::new_current_thread();
    process.enable_time().start_paused(true).build().unwrap()
}

/// A call that a process leaves behind when it is killed: its stream's last id, and the ids it asked
/// under.
struct Left {
    world: World,
    last: String,
    asked: Vec<Value>,
}

fn left_behind(body: &str, event: Event, more: impl AsyncFnOnce(&World, &[Value])) -> Left {
    let first = process();
    let left = first.block_on(async {
        let world = World::new(D).await;
        let index = world.below.calls();
        let telling = async {
            settle().await;
            world.below.tell(index, event);
        };
        let mut got = tokio::join!(world.house.in_session(&world.session, body), telling).0;
        let mut asked = Vec::new();
        let mut last = String::new();
        while asked.len() < 2 {
            let item = got.next().await.unwrap();
            last = item.id();
            if matches!(&item, Item::Event(_, data) if !data.is_empty()) {
                asked.push(item.json()["id"].clone());
            }
        }
        more(&world, &asked).await;
        Left { world, last, asked }
    });
    drop(first); // killed
    left
}

impl Left {
    async fn resumed(&self, next: &House) -> Got {
        let headers = [
            ("mcp-session-id", &*self.world.session),
            ("last-event-id", &*self.last),
        ];
        next.get(&headers).await
    }

    async fn say(&self, next: &House, body: &str) -> u16 {
        next.in_session(&self.world.session, body)
            .await
            .status()
            .as_u16()
    }
}

/// XT-136, S6, EL-15: the death of a process between rounds is harmless: one answer was given to it, one
/// after it, and whoever takes the call over asks nothing again and calls the upstream once.
#[test]
fn xt_136_a_call_between_rounds_outlives_its_process() {
    let event = wanted(Some(STATE), vec![form("a"), form("b")]);
    let left = left_behind(&call("1", ""), event, async |world, asked| {
        world
            .say(&answer(&asked[0], r#"{"action":"accept"}"#))
            .await;
    });
    process().block_on(async {
        let below = Below::default();
        let next = below.after(&left.world.house);
        let said = answer(&left.asked[1], r#"{"action":"decline"}"#);
        assert_eq!(left.say(&next, &said).await, 202, "before it is taken over");
        next.supervisor().sweep_log().await;
        settle().await;
        assert_eq!(below.calls(), 1);
        let expected = r#"{"a":{"action":"accept"},"b":{"action":"decline"}}"#;
        assert_eq!(responses(&below, 0), expected);
        assert_eq!(told(&below, 0).state.unwrap(), STATE);
        below.with(0, |one| assert_eq!(one.message.to_bytes(), call("1", "")));
        below.tell(0, wanted(None, vec![form("c")]));
        let mut got = left.resumed(&next).await;
        let asked = left.world.next(&mut got).await;
        assert_eq!(asked["method"], "elicitation/create", "the next round");
        left.say(&next, &answer(&asked["id"], r#"{"action":"cancel"}"#))
            .await;
        settle().await;
        assert_eq!(responses(&below, 1), r#"{"c":{"action":"cancel"}}"#);
        below.end(1);
        assert_eq!(left.world.next(&mut got).await["id"], 1);
        assert!(got.rest().await.is_empty());
    });
}

/// XT-136: an answer that comes after the take-over; and a second death.
#[test]
fn xt_136_a_call_is_taken_over_again() {
    let event = wanted(None, vec![form("a"), form("b")]);
    let left = left_behind(&call("1", ""), event, async |_, _| {});
    process().block_on(async {
        let next = Below::default().after(&left.world.house);
        next.supervisor().sweep_log().await;
        settle().await;
        left.say(&next, &answer(&left.asked[0], r#"{"action":"accept"}"#))
            .await;
    });
    process().block_on(async {
        let below = Below::default();
        let next = below.after(&left.world.house);
        next.supervisor().sweep_log().await;
        settle().await;
        left.say(&next, &answer(&left.asked[1], r#"{"action":"cancel"}"#))
            .await;
        settle().await;
        let expected = r#"{"a":{"action":"accept"},"b":{"action":"cancel"}}"#;
        assert_eq!(responses(&below, 0), expected);
    });
}

/// XT-538: nobody answers, and whoever has taken the call over ends it in its time.
#[test]
fn xt_538_a_call_that_was_taken_over_ends_in_time() {
    let event = wanted(None, vec![form("a"), form("b")]);
    let left = left_behind(&call("1", ""), event, async |_, _| {});
    process().block_on(async {
        let next = Below::default().after(&left.world.house);
        next.supervisor().sweep_log().await;
        let mut got = left.resumed(&next).await;
        for asked in &left.asked {
            let message = left.world.next(&mut got).await;
            assert_eq!(message["method"], "notifications/cancelled", "{asked}");
        }
        assert_eq!(left.world.next(&mut got).await["error"]["code"], -31002);
    });
}

/// XT-137, EL-15: a tool that may have run is not run again; what has no effect is asked for again.
#[test]
fn xt_137_a_request_that_its_process_left_is_lost_unless_it_has_no_effect() {
    for (body, is_tool) in [(call("1", ""), true), (read(1), false)] {
        let event = wanted(Some(STATE), vec![form("a"), form("b")]);
        let left = left_behind(&body, event, async |world, asked| {
            for id in asked {
                world.say(&answer(id, r#"{"action":"accept"}"#)).await;
            }
            settle().await;
            assert_eq!(world.below.calls(), 2, "the next request is under way");
        });
        process().block_on(async {
            let below = Below::default();
            let next = below.after(&left.world.house);
            next.supervisor().sweep_log().await;
            settle().await;
            let got = left.resumed(&next).await;
            if is_tool {
                let rest = got.rest().await;
                assert_eq!(rest.len(), 1, "{rest:?}");
                assert_eq!(rest[0].json()["error"]["code"], -31004);
                assert_eq!(below.calls(), 0);
                return;
            }
            let expected = r#"{"a":{"action":"accept"},"b":{"action":"accept"}}"#;
            assert_eq!(responses(&below, 0), expected);
            below.end(0);
            let rest = got.rest().await;
            assert_eq!(rest.len(), 1, "{rest:?}");
            assert_eq!(rest[0].json()["id"], 1);
        });
    }
}

/// XT-138: the same while the user is at a page in the browser.
#[test]
fn xt_138_a_page_outlives_the_process_that_showed_it() {
    let want = || wanted(None, vec![page("a", "https://a"), form("b")]);
    let left = left_behind(&call("1", ""), want(), async |world, asked| {
        for id in asked {
            world.say(&answer(id, r#"{"action":"accept"}"#)).await;
        }
        settle().await;
        world
            .below
            .tell(1, wanted(None, vec![page("a", "https://a")]));
        settle().await;
    });
    process().block_on(async {
        let below = Below::default();
        let next = below.after(&left.world.house);
        next.supervisor().sweep_log().await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(responses(&below, 0), r#"{"a":{"action":"accept"}}"#);
        below.end(0);
        let mut got = left.resumed(&next).await;
        let done = left.world.next(&mut got).await;
        assert_eq!(done["method"], "notifications/elicitation/complete");
        assert_eq!(left.world.next(&mut got).await["id"], 1);
    });
}

/// CAN-01, XT-139: a call that is cancelled while nobody has it is not gone on with.
#[test]
fn xt_139_a_call_that_was_left_can_be_cancelled() {
    let event = wanted(None, vec![form("a"), form("b")]);
    let left = left_behind(&call("1", ""), event, async |_, _| {});
    process().block_on(async {
        let below = Below::default();
        let next = below.after(&left.world.house);
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        left.say(&next, cancel).await;
        next.supervisor().sweep_log().await;
        settle().await;
        let got = left.resumed(&next).await;
        let rest = got.rest().await;
        assert!(
            rest.iter()
                .all(|item| item.json()["method"] == "notifications/cancelled")
        );
        assert_eq!(below.calls(), 0);
    });
}

/// XT-137: the same before the upstream has wanted anything.
#[test]
fn xt_137_a_read_is_asked_for_again_from_its_beginning() {
    let first = process();
    let (world, last) = first.block_on(async {
        let world = World::new(D).await;
        let telling = async {
            settle().await;
            world
                .below
                .with(0, |call| call.record.set_upstream(upstream()));
            sleep(Duration::from_secs(3)).await;
        };
        let body = read(1);
        let (mut got, ()) = tokio::join!(world.house.in_session(&world.session, &body), telling);
        let last = got.next().await.unwrap().id();
        (world, last)
    });
    drop(first);
    process().block_on(async {
        let below = Below::default();
        let next = below.after(&world.house);
        next.supervisor().sweep_log().await;
        settle().await;
        let answers = told(&below, 0);
        assert_eq!((answers.state, answers.responses), (None, None));
        below.with(0, |one| assert_eq!(one.message.to_bytes(), read(1)));
        below.end(0);
        let headers = [
            ("mcp-session-id", &*world.session),
            ("last-event-id", &*last),
        ];
        let rest = next.get(&headers).await.rest().await;
        assert_eq!(rest.len(), 1, "{rest:?}");
        assert_eq!(rest[0].json()["id"], 1);
    });
}

/// XT-133: an upstream that gives nothing but states is not called for ever.
#[tokio::test(start_paused = true)]
async fn xt_133_an_upstream_that_never_asks_is_called_twenty_times_more() {
    let world = World::new(D).await;
    let body = call("1", "");
    let telling = async {
        for index in 0..=20 {
            settle().await;
            world.below.tell(index, wanted(Some(STATE), vec![]));
            sleep(Duration::from_secs(3)).await;
        }
    };
    let (got, ()) = tokio::join!(world.house.in_session(&world.session, &body), telling);
    let end = got.rest().await.pop().unwrap().json();
    assert_eq!(end["result"]["isError"], true, "{end}");
    assert_eq!(world.below.calls(), 21);
}
