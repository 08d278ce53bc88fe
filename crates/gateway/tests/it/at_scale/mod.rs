//! FRM-24 through the whole gateway: 10,000 generated calls and their 10,000 answers arrive byte for
//! byte, but for what the oracle lists by requirement ([`oracle::OF_CALLS`],
//! [`oracle::OF_ANSWERS`]) and, in events and lines, CR and LF between tokens.
//!
//! Numbers that no `f64` holds, every spelling of an escape, unknown members in any order, half
//! surrogate pairs, keys that stand twice in arguments, values nested nearly to the limit. Neither side
//! parses a message to compare it.

mod compare;
mod exchange;
mod oracle;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use compare::{BROKEN, compare};
use exchange::{Era, Exchange, OWN_ID};
use oracle::{OF_ANSWERS, OF_CALLS, Owned};
use world::{Ledger, Transport, World};

/// The exchanges of one of the six ways; 10,000 in all.
const WAYS: [(Era, Transport, u64, u64); 6] = [
    (Era::Stateless, Transport::Json, 0, 2_500),
    (Era::Sessions, Transport::Json, 2_500, 5_000),
    (Era::Stateless, Transport::Events, 5_000, 6_500),
    (Era::Sessions, Transport::Events, 6_500, 8_000),
    (Era::Stateless, Transport::Stdio, 8_000, 9_000),
    (Era::Sessions, Transport::Stdio, 9_000, 10_000),
];

async fn through(era: Era, transport: Transport) -> Arc<World> {
    let way = WAYS
        .iter()
        .find(|way| (way.0, way.1) == (era, transport))
        .unwrap();
    let world = World::new(era, transport, way.2..way.3);
    world.run().await;
    world
}

/// FRM-24, FRM-04, FRM-25, case 50, over JSON bodies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frm_24_stateless_bodies_are_byte_for_byte_at_scale() {
    through(Era::Stateless, Transport::Json).await;
}

/// FRM-24, FRM-04, FRM-25, case 50, over JSON bodies in sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frm_24_bodies_of_sessions_are_byte_for_byte_at_scale() {
    through(Era::Sessions, Transport::Json).await;
}

/// FRM-24, SSE-01: events of an upstream, whose data has line ends, to events of one line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sse_01_stateless_events_lose_only_line_ends_at_scale() {
    through(Era::Stateless, Transport::Events).await;
}

/// FRM-24, SSE-01: the same in sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sse_01_events_of_sessions_lose_only_line_ends_at_scale() {
    through(Era::Sessions, Transport::Events).await;
}

/// FRM-24, STD-01: a process gets and gives one line a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn std_01_lines_of_a_stateless_process_lose_only_line_ends_at_scale() {
    through(Era::Stateless, Transport::Stdio).await;
}

/// FRM-24, STD-01: the same with a process that opens with a handshake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn std_01_lines_of_a_process_with_sessions_lose_only_line_ends_at_scale() {
    through(Era::Sessions, Transport::Stdio).await;
}

#[test]
fn the_six_ways_carry_ten_thousand_exchanges() {
    let counts = WAYS.iter().map(|(_, _, from, to)| to - from);
    assert_eq!(counts.sum::<u64>(), 10_000);
}

/// The comparison can fail: whatever a hop that is not faithful would make of this very traffic is
/// noticed, in every message that it changes.
#[tokio::test]
async fn frm_24_a_hop_that_breaks_messages_is_noticed() {
    for era in [Era::Stateless, Era::Sessions] {
        let world = World::new(era, Transport::Json, 20_000..20_200);
        world.run().await;
        let ledger = world.ledger.lock().unwrap();
        for broken in &BROKEN {
            let mut changed = 0;
            for (number, exchange) in &world.exchanges {
                for (expected, got) in [
                    (exchange.forwarded(None), &ledger.calls[number]),
                    (exchange.returned(None), &ledger.answers[number]),
                ] {
                    // the id is known from the faithful run: a damaged one must not pass for it
                    let own = compare(&expected, got).unwrap();
                    let expected = expected.replace(OWN_ID, &own);
                    let damaged = (broken.hop)(got);
                    if damaged != **got {
                        changed += 1;
                        let verdict = compare(&expected, &damaged);
                        assert!(verdict.is_err(), "a hop that {} passed", broken.how);
                    }
                }
            }
            assert!(changed >= 20, "a hop that {} changed {changed}", broken.how);
        }
    }
}

/// One direction: its oracle, what it makes of an exchange, and what arrived.
type Side = (
    &'static [Owned],
    fn(&Exchange, Option<usize>) -> String,
    fn(&Ledger) -> &BTreeMap<u64, String>,
);

const SIDES: [Side; 2] = [
    (&OF_CALLS, Exchange::forwarded, |ledger| &ledger.calls),
    (&OF_ANSWERS, Exchange::returned, |ledger| &ledger.answers),
];

/// Every row of the oracle is needed: with any one of them left out, the gateway's own traffic is found
/// to differ.
#[tokio::test]
async fn frm_24_each_row_of_the_oracle_is_a_change_that_the_gateway_makes() {
    let worlds =
        [Era::Stateless, Era::Sessions].map(|era| World::new(era, Transport::Json, 30_000..30_200));
    for world in &worlds {
        world.run().await;
    }
    for (oracle, expected, arrived) in SIDES {
        for (row, owned) in oracle.iter().enumerate() {
            let mut differ = 0;
            for world in &worlds {
                let ledger = world.ledger.lock().unwrap();
                let arrived = arrived(&ledger);
                let exchanges = world.exchanges.iter().filter(|(number, exchange)| {
                    compare(&expected(exchange, Some(row)), &arrived[number]).is_err()
                });
                differ += exchanges.count();
            }
            assert!(differ >= 20, "{}: {differ}", owned.by);
        }
    }
}
