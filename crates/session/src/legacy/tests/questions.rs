use serde_json::{Value, json};
use vestibule_exchange::{Arrival, Event};
use vestibule_terms::accept::Accepts;
use vestibule_terms::{Method, Revision};

use super::{Below, settle};
use crate::testing::{Got, House, call, draft, question, upstream};

const D: Revision = Revision::R2025_11_25;
const C: Revision = Revision::R2025_06_18;
const ALL: &str = r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

fn ask(id: i64, method: Method, params: &str) -> Event {
    Event::Question(question(id, method, params))
}

fn answer(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// A call whose stream has begun with a question.
async fn asked(house: &House, below: &Below, id: &str, event: Event) -> (Got, Value) {
    let body = call("1", "");
    let telling = async {
        settle().await;
        below.tell(below.calls() - 1, event);
    };
    let mut got = tokio::join!(house.in_session(id, &body), telling).0;
    assert!(got.is_stream());
    let _priming = got.next().await.unwrap();
    let message = got.next().await.unwrap().json();
    (got, message)
}

/// 6.4, XT-160, FRM-25: a question goes out under our id and its answer back under theirs, once.
#[tokio::test(start_paused = true)]
async fn xt_160_a_question_is_relayed_and_its_first_answer_goes_back() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, ALL).await;
    let params = r#"{"messages":[],"maxTokens":1}"#;
    let event = ask(55, Method::SamplingCreateMessage, params);
    let (mut got, message) = asked(&house, &below, &id, event).await;
    assert_eq!(message["method"], "sampling/createMessage");
    assert_eq!(message["params"]["maxTokens"], 1);
    assert_ne!(message["id"], 55);
    let first = answer(&message["id"], r#"{"role":"assistant"}"#);
    assert_eq!(house.in_session(&id, &first).await.status(), 202);
    assert_eq!(
        house
            .in_session(&id, &answer(&message["id"], "{}"))
            .await
            .status(),
        202
    );
    assert_eq!(
        house
            .in_session(&id, &answer(&json!("x"), "{}"))
            .await
            .status(),
        202,
        "STA-16"
    );
    assert_eq!(
        house.back.taken(),
        [format!("answer 55 {first}")],
        "EL-18: the first one only"
    );
    below.end(0);
    assert_eq!(got.next().await.unwrap().json()["id"], 1);
    assert!(got.next().await.is_none());
}

/// XT-161: two upstreams may use one id; the client's ids differ, also over calls and errors.
#[tokio::test(start_paused = true)]
async fn xt_161_ids_of_questions_are_ours_and_never_repeat() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, ALL).await;
    let event = ask(1, Method::RootsList, "{}");
    let (mut got, first) = asked(&house, &below, &id, event).await;
    below.tell(0, ask(1, Method::RootsList, "{}"));
    let second = got.next().await.unwrap().json();
    assert_ne!(first["id"], second["id"]);
    let refusal = format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-1,"message":"no"}}}}"#,
        second["id"]
    );
    house.in_session(&id, &refusal).await;
    assert_eq!(
        house.back.taken(),
        [format!("answer 1 {refusal}")],
        "ERR-10: errors go back too"
    );
}

/// CAP-06, ELI-01, ROO-03, SAM-01: what was not declared is refused where it came from.
#[tokio::test(start_paused = true)]
async fn cap_06_undeclared_questions_never_reach_the_client() {
    let url = r#"{"mode":"url","message":"m","url":"https://a","elicitationId":"e"}"#;
    let form = r#"{"message":"m","requestedSchema":{}}"#;
    let cases = [
        (D, "{}", Method::RootsList, "{}", -32601),
        (D, "{}", Method::SamplingCreateMessage, "{}", -32601),
        (D, "{}", Method::ElicitationCreate, form, -32601),
        (
            D,
            r#"{"elicitation":{}}"#,
            Method::ElicitationCreate,
            url,
            -32602,
        ),
        (
            D,
            r#"{"elicitation":{"url":{}}}"#,
            Method::ElicitationCreate,
            form,
            -32602,
        ),
        (C, ALL, Method::ElicitationCreate, url, -32602),
        (
            Revision::R2025_03_26,
            ALL,
            Method::ElicitationCreate,
            form,
            -32601,
        ),
        (D, ALL, Method::TasksGet, "{}", -32601),
    ];
    for (revision, declared, method, params, code) in cases {
        let below = Below::default();
        let house = below.house();
        let id = house.open(revision, declared).await;
        let body = call("1", "");
        let telling = async {
            settle().await;
            below.tell(0, ask(5, method, params));
            settle().await;
            below.end(0);
        };
        let got = tokio::join!(house.in_session(&id, &body), telling).0;
        assert_eq!(
            got.header("content-type"),
            Some("application/json"),
            "{method:?}"
        );
        let taken = house.back.taken();
        assert!(
            taken[0].contains(&format!(r#""code":{code}"#)),
            "{method:?} {taken:?}"
        );
    }
}

/// 5.4: a withdrawn question is withdrawn at the client, under the client's id.
#[tokio::test(start_paused = true)]
async fn a_withdrawn_question_is_withdrawn_at_the_client() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, ALL).await;
    let event = ask(8, Method::RootsList, "{}");
    let (mut got, message) = asked(&house, &below, &id, event).await;
    let theirs = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8,"reason":"r"}}"#;
    below.tell(0, Event::QuestionWithdrawn(draft(theirs)));
    let withdrawn = got.next().await.unwrap().json();
    assert_eq!(
        withdrawn["params"],
        json!({"requestId": message["id"], "reason": "r"})
    );
    below.tell(0, Event::QuestionWithdrawn(draft(theirs)));
    assert_eq!(
        house
            .in_session(&id, &answer(&message["id"], "{}"))
            .await
            .status(),
        202
    );
    assert!(house.back.taken().is_empty(), "a late answer is dropped");
    below.end(0);
    assert_eq!(got.next().await.unwrap().json()["id"], 1, "and told once");
}

/// A call that ends with an open question closes it at the client before its own answer.
#[tokio::test(start_paused = true)]
async fn questions_end_with_their_call() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, ALL).await;
    let event = ask(8, Method::RootsList, "{}");
    let (got, message) = asked(&house, &below, &id, event).await;
    below.end(0);
    let items = got.rest().await;
    assert_eq!(items[0].json()["params"]["requestId"], message["id"]);
    assert_eq!(items[1].json()["id"], 1);
}

/// PRG-08: progress about a question goes to whoever asked, under the asker's token.
#[tokio::test(start_paused = true)]
async fn prg_08_progress_about_a_question_goes_back_under_the_askers_token() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(D, ALL).await;
    let event = ask(
        8,
        Method::RootsList,
        r#"{"_meta":{"progressToken":"their"}}"#,
    );
    let (_got, message) = asked(&house, &below, &id, event).await;
    let token = &message["params"]["_meta"]["progressToken"];
    assert_ne!(token, "their");
    let progress = |token: &Value| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        )
    };
    house.in_session(&id, &progress(token)).await;
    house.in_session(&id, &progress(&json!("unknown"))).await;
    assert_eq!(
        house.back.taken(),
        [format!("notify {}", progress(&json!("their")))]
    );
}

/// Questions of calls whose client takes no stream, and of no call, wait for a standalone stream.
#[tokio::test(start_paused = true)]
async fn get_03_questions_without_a_stream_go_to_the_standalone_one() {
    let below = Below::default();
    let mut house = below.house();
    let id = house.open(C, ALL).await;
    house.accepts = Accepts {
        sse: false,
        ..Accepts::ANY
    };
    let body = call("1", "");
    let asking = house.in_session(&id, &body);
    let telling = async {
        settle().await;
        below.tell(0, ask(5, Method::RootsList, "{}"));
        let asked = question(6, Method::RootsList, "{}");
        below.inlet(0).arrive(&upstream(), Arrival::Question(asked));
        settle().await;
        below.end(0);
    };
    assert_eq!(tokio::join!(asking, telling).0.json().await["id"], 1);
    house.accepts = Accepts::ANY;
    let mut got = house.get(&[("mcp-session-id", &id)]).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let message = got.next().await.unwrap().json();
        assert_eq!(message["method"], "roots/list");
        ids.push(message["id"].clone());
    }
    house.in_session(&id, &answer(&ids[1], "{}")).await;
    assert!(house.back.taken()[0].starts_with("answer 6 "));
}

/// LIF-05: a question of an early call waits until the client is ready.
#[tokio::test(start_paused = true)]
async fn lif_05_questions_wait_for_initialized() {
    let below = Below::default();
    let house = below.house();
    let id = house.open_only(C, ALL).await;
    let body = call("1", "");
    let telling = async {
        settle().await;
        below.tell(0, ask(5, Method::RootsList, "{}"));
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    };
    let mut call = tokio::join!(house.in_session(&id, &body), telling).0;
    assert_eq!(call.next().await, Some(crate::testing::Item::Comment));
    house
        .in_session(
            &id,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        )
        .await;
    let mut got = house.get(&[("mcp-session-id", &id)]).await;
    assert_eq!(got.next().await.unwrap().json()["method"], "roots/list");
}

/// GET-05, EL-13: a question that nobody came for is answered to its upstream with an error.
#[tokio::test(start_paused = true)]
async fn get_05_a_question_that_nobody_fetched_gets_an_error() {
    let below = Below::default();
    let house = below.house();
    let id = house.open(C, ALL).await;
    let body = call("1", "");
    let telling = async {
        settle().await;
        below.end(0);
    };
    tokio::join!(house.in_session(&id, &body), telling);
    let asked = question(6, Method::RootsList, "{}");
    below.inlet(0).arrive(&upstream(), Arrival::Question(asked));
    settle().await;
    tokio::time::advance(std::time::Duration::from_secs(20 * 60)).await;
    house.supervisor().sweep_log().await;
    settle().await;
    let taken = house.back.taken();
    assert!(
        taken[0].starts_with("answer 6 ") && taken[0].contains("error"),
        "{taken:?}"
    );
}
