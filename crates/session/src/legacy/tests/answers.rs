//! Answers on their way to whoever asked, while the store goes and comes, connections break and
//! processes die: none is lost, and none is delivered twice without a crash in between (HTR-04, EL-18).

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;
use vestibule_exchange::{Event, RpcError, SessionKey, Sharing};
use vestibule_terms::{Method, Revision, SessionId, TenantId};

use super::{Below, settle};
use crate::testing::{Got, House, call, progress, question, upstream};

const D: Revision = Revision::R2025_11_25;
const ALL: &str = r#"{"elicitation":{"form":{}}}"#;
const PARAMS: &str = r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#;
/// Longer than it takes to look again.
const MOMENT: Duration = Duration::from_secs(2);

/// A house with a session, and a call that asks on an upstream session of this session's own.
struct Asking {
    below: Below,
    house: House,
    session: String,
}

impl Asking {
    async fn new() -> Self {
        let below = Below::default();
        let house = below.house();
        let session = house.open(D, ALL).await;
        Self {
            below,
            house,
            session,
        }
    }

    fn ask(&self) {
        let mut question = question(55, Method::ElicitationCreate, PARAMS);
        question.from.sharing = Sharing::Session(SessionKey {
            tenant: TenantId::new("acme").unwrap(),
            session: SessionId::new(&self.session),
        });
        self.below.tell(0, Event::Question(question));
    }

    /// The call's stream, as far as the question; its id.
    async fn asked(&self) -> (Got, Value) {
        let body = call("1", "");
        let telling = async {
            settle().await;
            self.ask();
        };
        let mut got = tokio::join!(self.house.in_session(&self.session, &body), telling).0;
        let _priming = got.next().await.unwrap();
        let message = got.next().await.unwrap().json();
        (got, message["id"].clone())
    }

    fn answer(id: &Value) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"decline"}}}}"#)
    }

    async fn say(&self, house: &House, body: &str) -> u16 {
        let got = house.in_session(&self.session, body).await;
        got.status().as_u16()
    }

    /// What is posted to a house meanwhile.
    fn post(&self, house: &House, body: &str) -> tokio::task::JoinHandle<Got> {
        let headers = [("mcp-session-id", self.session.as_str())];
        let request = house.request(http::Method::POST, &headers, Some(body));
        let mut service = house.service.clone();
        tokio::spawn(async move {
            use tower::Service as _;
            Got::of(service.call(request).await.unwrap())
        })
    }
}

fn only(taken: &[String], answer: &str) {
    assert_eq!(taken, [format!("answer 55 {answer}")]);
}

/// EL-22: a client is asked once every process can take its answer.
#[tokio::test(start_paused = true)]
async fn el_22_a_question_waits_until_it_is_written_down() {
    let asking = Asking::new().await;
    let other = asking.house.beside();
    let body = call("1", "");
    let telling = async {
        settle().await;
        asking.house.store.fail_at_keeping();
        asking.ask();
        sleep(MOMENT).await;
        asking.house.store.be_away(false);
    };
    let (mut got, ()) = tokio::join!(asking.house.in_session(&asking.session, &body), telling);
    let _priming = got.next().await.unwrap();
    let id = got.next().await.unwrap().json()["id"].clone();
    let answer = Asking::answer(&id);
    assert_eq!(asking.say(&other, &answer).await, 202);
    only(&other.back.taken(), &answer);
}

/// HTR-04: an answer is not taken while nobody can say whose it is.
#[tokio::test(start_paused = true)]
async fn htr_04_an_answer_elsewhere_waits_for_the_store() {
    let asking = Asking::new().await;
    let other = asking.house.beside();
    let (_got, id) = asking.asked().await;
    let answer = Asking::answer(&id);
    asking.house.store.be_away(true);
    assert_eq!(asking.say(&other, &answer).await, 503, "in the end");
    assert!(other.back.taken().is_empty());
    let posted = asking.post(&other, &answer);
    sleep(MOMENT).await;
    assert!(!posted.is_finished());
    asking.house.store.be_away(false);
    assert_eq!(posted.await.unwrap().status(), 202);
    only(&other.back.taken(), &answer);
}

/// EL-22: whoever asked needs no store to know who waits; the record is dropped when it is back.
#[tokio::test(start_paused = true)]
async fn el_22_whoever_asked_takes_the_answer_without_the_store() {
    let asking = Asking::new().await;
    let other = asking.house.beside();
    let (_got, id) = asking.asked().await;
    let answer = Asking::answer(&id);
    asking.house.store.be_away(true);
    assert_eq!(asking.say(&asking.house, &answer).await, 202);
    only(&asking.house.back.taken(), &answer);
    asking.house.store.be_away(false);
    sleep(MOMENT).await;
    assert_eq!(asking.say(&other, &answer).await, 202);
    assert!(other.back.taken().is_empty(), "STA-16: it is over");
}

/// HTR-04: a connection that breaks leaves no answer between its claim and its upstream; who says it
/// again is told when it is there.
#[tokio::test(start_paused = true)]
async fn htr_04_an_answer_outlives_its_connection() {
    let asking = Asking::new().await;
    let (_got, id) = asking.asked().await;
    let answer = Asking::answer(&id);
    asking.house.back.be_slow(true);
    let posted = asking.post(&asking.house, &answer);
    settle().await;
    posted.abort();
    let again = asking.post(&asking.house, &answer);
    sleep(MOMENT).await;
    assert!(!again.is_finished(), "it is under way");
    asking.house.back.be_slow(false);
    assert_eq!(again.await.unwrap().status(), 202);
    only(&asking.house.back.taken(), &answer);
}

/// EL-18: what a dead process has claimed is delivered by whoever is told of it again.
#[tokio::test(start_paused = true)]
async fn el_18_an_answer_that_a_dead_process_had_claimed_is_delivered() {
    let asking = Asking::new().await;
    let (_got, id) = asking.asked().await;
    let answer = Asking::answer(&id);
    asking.house.back.be_slow(true);
    let _never_answered = asking.post(&asking.house, &answer);
    settle().await;
    let beside = asking.house.beside();
    let waits = asking.post(&beside, &answer);
    sleep(MOMENT).await;
    assert!(!waits.is_finished(), "who has claimed it lives");
    let successor = asking.house.successor();
    let other = Asking::answer(&id).replace("decline", "cancel");
    assert_eq!(asking.say(&successor, &other).await, 202);
    only(&successor.back.taken(), &answer);
    assert_eq!(waits.await.unwrap().status(), 202);
    assert!(beside.back.taken().is_empty(), "STA-16");
}

/// HTR-04: an answer that the session has no room for is delivered all the same, by any process; when
/// that dies in the middle, by the next one to which its client brings it.
#[tokio::test(start_paused = true)]
async fn htr_04_an_answer_too_large_to_be_kept_is_delivered() {
    let asking = Asking::new().await;
    let other = asking.house.beside();
    let (_got, id) = asking.asked().await;
    let large = "x".repeat(1 << 20);
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":"{large}"}}}}"#);
    assert_eq!(asking.say(&other, &answer).await, 202);
    only(&other.back.taken(), &answer);

    let asking = Asking::new().await;
    let (_got, id) = asking.asked().await;
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":"{large}"}}}}"#);
    asking.house.back.be_slow(true);
    let _never_answered = asking.post(&asking.house, &answer);
    settle().await;
    let successor = asking.house.successor();
    assert_eq!(asking.say(&successor, &answer).await, 202);
    only(&successor.back.taken(), &answer);
}

/// HTR-04: an upstream that cannot be reached is tried again; one that refuses is not.
#[tokio::test(start_paused = true)]
async fn htr_04_an_answer_that_did_not_reach_its_upstream_is_brought_again() {
    let asking = Asking::new().await;
    let (_got, id) = asking.asked().await;
    let answer = Asking::answer(&id);
    let back = &asking.house.back;
    back.refuse_next(RpcError::unavailable(&upstream(), "connect"));
    assert_eq!(asking.say(&asking.house, &answer).await, 202);
    only(&back.taken(), &answer);

    let asking = Asking::new().await;
    let (_got, id) = asking.asked().await;
    let answer = Asking::answer(&id);
    let back = &asking.house.back;
    back.refuse_next(RpcError::lost(Some(&upstream())));
    assert_eq!(asking.say(&asking.house, &answer).await, 202);
    assert_eq!(asking.say(&asking.house, &answer).await, 202);
    assert!(back.taken().is_empty(), "nobody waits for it");
}

/// EL-13: a question that the store has lost is known to whoever has asked; others tell it.
#[tokio::test(start_paused = true)]
async fn el_13_an_answer_finds_a_question_that_the_store_has_lost() {
    let asking = Asking::new().await;
    let other = asking.house.beside();
    let (_got, id) = asking.asked().await;
    let answer = Asking::answer(&id);
    asking.house.store.be_forgetful();
    assert_eq!(asking.say(&other, &answer).await, 202);
    assert!(other.back.taken().is_empty());
    assert_eq!(asking.house.fleet.words(), 1, "told to everybody");
    assert_eq!(asking.say(&asking.house, &answer).await, 202);
    only(&asking.house.back.taken(), &answer);
}

/// EL-18: whoever has asked knows that it was answered elsewhere.
#[tokio::test(start_paused = true)]
async fn el_18_an_answer_is_not_delivered_again_by_whoever_has_asked() {
    let asking = Asking::new().await;
    let other = asking.house.beside();
    let (mut got, id) = asking.asked().await;
    let answer = Asking::answer(&id);
    assert_eq!(asking.say(&other, &answer).await, 202);
    only(&other.back.taken(), &answer);
    assert_eq!(asking.say(&asking.house, &answer).await, 202);
    assert!(asking.house.back.taken().is_empty());
    asking.below.end(0);
    assert_eq!(got.next().await.unwrap().json()["id"], 1, "not withdrawn");
}

/// HTR-04: a cancellation of a call that does not run here is taken when everybody is told.
#[tokio::test(start_paused = true)]
async fn htr_04_a_cancellation_waits_until_others_are_told() {
    let asking = Asking::new().await;
    let cancel =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#;
    let fleet = &asking.house.fleet;
    fleet.be_away(true);
    let posted = asking.post(&asking.house, cancel);
    sleep(MOMENT).await;
    assert!(!posted.is_finished());
    assert_eq!(fleet.words(), 0);
    fleet.be_away(false);
    assert_eq!(posted.await.unwrap().status(), 202);
    assert_eq!(fleet.words(), 1);
}

/// EL-22: what came while no stream could be begun goes out first when one can be.
#[tokio::test(start_paused = true)]
async fn el_22_progress_waits_while_no_stream_can_be_begun() {
    let asking = Asking::new().await;
    let body = call("1", r#""progressToken":"p""#);
    let telling = async {
        settle().await;
        asking.house.log.be_away(true);
        asking.below.tell(0, progress(1));
        asking.below.tell(0, progress(2));
        settle().await;
        asking.house.log.be_away(false);
        asking.below.tell(0, progress(3));
        asking.below.end(0);
    };
    let (got, ()) = tokio::join!(asking.house.in_session(&asking.session, &body), telling);
    assert!(got.is_stream());
    let items = got.rest().await;
    let values: Vec<_> = items[1..4]
        .iter()
        .map(|item| item.json()["params"]["progress"].clone())
        .collect();
    assert_eq!(values, [1, 2, 3]);
    assert_eq!(items[4].json()["id"], 1);
}

/// A question that may have been answered elsewhere is not withdrawn while nobody can know.
#[tokio::test(start_paused = true)]
async fn el_22_an_answered_question_is_not_withdrawn_without_the_store() {
    let asking = Asking::new().await;
    let other = asking.house.beside();
    let (mut got, id) = asking.asked().await;
    assert_eq!(asking.say(&other, &Asking::answer(&id)).await, 202);
    asking.house.store.be_away(true);
    asking.below.end(0);
    sleep(MOMENT).await;
    asking.house.store.be_away(false);
    assert_eq!(got.next().await.unwrap().json()["id"], 1);
}
