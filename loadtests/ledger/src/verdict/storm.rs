//! How hard the run was: blows, and what was under way when they fell. A run with too little in
//! flight proves nothing.

use std::collections::HashMap;

use super::book::Book;
use super::{Check, Limit, Terms};
use crate::history::{Blow, CallRecord, Fault, History, Micros, What};

/// The blows of a run, measured.
#[derive(Debug, Default)]
pub(super) struct Storm {
    by_blow: Vec<(Blow, u64)>,
    /// Kills of replicas, and how many of them hit enough open calls.
    kills: u64,
    heavy: u64,
    open_calls: u64,
    in_flight: u64,
    most_in_flight: u64,
}

pub(super) fn measure(history: &History, book: &Book<'_>, terms: Terms) -> Storm {
    let mut storm = Storm::default();
    let mut by_blow = std::collections::BTreeMap::new();
    let flights = flights(&history.calls, book);
    for fault in &history.faults {
        *by_blow.entry(fault.blow).or_default() += 1;
        if !fault.blow.kills_a_replica() {
            continue;
        }
        storm.kills += 1;
        storm.heavy += u64::from(fault.open_calls >= terms.open_calls);
        storm.open_calls += u64::try_from(fault.open_calls).unwrap_or(0);
        let in_flight = under_way(&flights, fault);
        storm.in_flight += in_flight;
        storm.most_in_flight = storm.most_in_flight.max(in_flight);
    }
    storm.by_blow = by_blow.into_iter().collect();
    storm
}

/// From when to when each event was sent and not yet dispatched.
fn flights(calls: &[CallRecord], book: &Book<'_>) -> Vec<(Micros, Micros)> {
    let mut flights = Vec::new();
    for record in calls {
        let Some(ran) = book.calls.get(record.key.as_str()) else {
            continue;
        };
        let heard: HashMap<u64, Micros> = record
            .heard
            .iter()
            .filter_map(|heard| match heard.what {
                What::Event(number) => Some((number, heard.at)),
                What::Question(_) | What::Withdrawn(_) | What::End(_) | What::Foreign(_) => None,
            })
            .collect();
        for (number, at) in &ran.emitted {
            let landed = heard.get(number).copied().unwrap_or(record.closed);
            flights.push((*at, landed));
        }
    }
    flights
}

fn under_way(flights: &[(Micros, Micros)], fault: &Fault) -> u64 {
    let under_way = flights
        .iter()
        .filter(|(sent, landed)| *sent <= fault.at && *landed > fault.at);
    u64::try_from(under_way.count()).unwrap_or(u64::MAX)
}

impl Storm {
    /// The floors below which a run proves little.
    pub(super) fn floors(&self, delivered: u64, terms: Terms) -> Vec<Check> {
        if terms.rolling {
            return vec![floor("events delivered, at least", delivered, terms.events)];
        }
        // without kills of replicas none of them was light
        let share = (self.heavy * 100).checked_div(self.kills).unwrap_or(100);
        vec![
            floor("% of kills with enough open calls", share, terms.open_share),
            floor("events delivered, at least", delivered, terms.events),
        ]
    }

    pub(super) fn facts(&self, history: &History) -> Vec<(&'static str, String)> {
        let mut facts: Vec<(&'static str, String)> = self
            .by_blow
            .iter()
            .map(|(blow, times)| (blow.as_str(), times.to_string()))
            .collect();
        let wire: Vec<String> = history
            .wire
            .iter()
            .map(|(name, times)| format!("{name} {times}"))
            .collect();
        facts.push(("faults of connections", wire.join(", ")));
        if self.kills > 0 {
            let mean = |sum: u64| format!("{:.1}", sum as f64 / self.kills as f64);
            facts.push(("open calls at a kill, mean", mean(self.open_calls)));
            facts.push((
                "events in flight at a kill, mean / most",
                format!("{} / {}", mean(self.in_flight), self.most_in_flight),
            ));
        }
        facts
    }
}

fn floor(name: &'static str, found: u64, floor: u64) -> Check {
    Check {
        name,
        found,
        limit: Limit::Floor(floor),
        examples: Vec::new(),
    }
}

impl Blow {
    /// As the table names it.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::KillOwner => "kill -9 of owners",
            Self::KillReader => "kill -9 of readers",
            Self::Stop => "SIGSTOP of replicas",
            Self::KillStore => "kill -9 of the store",
            Self::Failover => "failovers of the store",
            Self::MoveSlots => "moves of the store's slots",
            Self::Roll => "restarts by SIGTERM",
        }
    }
}
