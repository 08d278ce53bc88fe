//! The promise of streams, as a ledger: whatever breaks and whenever, a client that comes back with
//! the last id it has dispatched sees every event once, in order, and exactly one end (EL-14,
//! EL-16). Connections, pauses and upstream timing are drawn at random, from a seed that a failure
//! names.

use std::time::Duration;

use proptest::prelude::*;
use vestibule_exchange::Event;
use vestibule_terms::Revision;

use super::{Below, settle};
use crate::testing::{Got, House, Item, call, progress};

/// What happens to one call.
#[derive(Debug, Clone)]
struct Script {
    /// Milliseconds before each progress, and whether the upstream pauses after it.
    steps: Vec<(u64, bool)>,
    /// Milliseconds before the end.
    end: u64,
    /// How many items the client reads of each connection before it breaks; then all.
    cuts: Vec<usize>,
    /// Milliseconds before it comes back.
    away: u64,
}

fn script() -> impl Strategy<Value = Script> {
    let steps = prop::collection::vec((0..3000u64, prop::bool::weighted(0.2)), 0..25);
    let cuts = prop::collection::vec(0..8usize, 0..8);
    (steps, 0..5000u64, cuts, 0..4000u64).prop_map(|(steps, end, cuts, away)| Script {
        steps,
        end,
        cuts,
        away,
    })
}

/// What one client has seen of one call.
#[derive(Debug, Default)]
struct Ledger {
    progress: Vec<u64>,
    ends: usize,
    last: Option<String>,
}

impl Ledger {
    fn enter(&mut self, item: &Item) {
        let Item::Event(id, data) = item else { return };
        let id = id.clone().expect("RES-01: every event has an id");
        assert_ne!(self.last.as_ref(), Some(&id), "ids differ");
        self.last = Some(id);
        if data.is_empty() {
            return; // priming
        }
        let message = item.json();
        match message["params"]["progress"].as_u64() {
            Some(value) => self.progress.push(value),
            None => {
                assert!(message.get("result").is_some(), "{message}");
                self.ends += 1;
            }
        }
    }

    /// Reads at most `items` of a connection, then breaks it.
    async fn read(&mut self, mut got: Got, items: usize) {
        for _ in 0..items {
            match got.next().await {
                Some(item) => self.enter(&item),
                None => return,
            }
        }
    }
}

async fn upstream(below: &Below, index: usize, script: &Script) {
    while below.calls() <= index {
        settle().await;
    }
    for (value, (gap, pause)) in (1..).zip(&script.steps) {
        tokio::time::sleep(Duration::from_millis(*gap)).await;
        assert!(
            below.tell(index, progress(value)),
            "case 85: nobody has cancelled"
        );
        if *pause {
            below.tell(index, Event::Paused { retry: None });
        }
    }
    tokio::time::sleep(Duration::from_millis(script.end)).await;
    assert!(below.end(index));
}

async fn client(house: &House, session: &str, number: usize, script: &Script) -> Ledger {
    let mut ledger = Ledger::default();
    let mut cuts = script
        .cuts
        .iter()
        .copied()
        .chain(std::iter::repeat(usize::MAX));
    let body = call(&number.to_string(), r#""progressToken":1"#);
    let got = house.in_session(session, &body).await;
    if !got.is_stream() {
        assert!(got.json().await.get("result").is_some());
        ledger.ends = 1;
        return ledger;
    }
    // A connection that breaks before an id is a column of its own: here the first is always read.
    ledger.read(got, cuts.next().unwrap().max(1)).await;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(script.away)).await;
        let last = ledger.last.clone().expect("priming");
        let got = house
            .get(&[("mcp-session-id", session), ("last-event-id", &last)])
            .await;
        if got.status() == 405 {
            assert_eq!(ledger.ends, 1, "RES-06: 405 only after the end");
            return ledger;
        }
        assert_eq!(got.status(), 200);
        ledger.read(got, cuts.next().unwrap()).await;
    }
    panic!("the client never saw the end: {ledger:?}");
}

async fn play(scripts: &[Script]) -> Vec<Ledger> {
    let below = Below::default();
    let mut house = below.house();
    house.plan.poll_close = true;
    let session = house.open(Revision::R2025_11_25, "{}").await;
    let mut ledgers = Vec::new();
    for (index, script) in scripts.iter().enumerate() {
        let (ledger, ()) = tokio::join!(
            client(&house, &session, index, script),
            upstream(&below, index, script)
        );
        ledgers.push(ledger);
    }
    house.supervisor().sweep_log().await;
    assert_eq!(house.supervisor().calls(), 0);
    ledgers
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// EL-14, EL-16, RES-03, SSE-08: set equality, order, uniqueness, one end.
    #[test]
    fn el_16_every_event_once_in_order_and_one_end(
        scripts in prop::collection::vec(script(), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let ledgers = runtime.block_on(play(&scripts));
        for (ledger, script) in ledgers.iter().zip(&scripts) {
            let told: Vec<u64> = (1..=script.steps.len() as u64).collect();
            prop_assert_eq!(ledger.ends, 1);
            prop_assert_eq!(&ledger.progress, &told);
        }
    }
}
