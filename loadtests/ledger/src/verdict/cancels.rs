//! Cancellations: one that was taken reaches the upstream.

use super::book::Book;
use super::{Finding, Findings};
use crate::history::{CallRecord, Close, End, Fault, Heard, History, Kind, Micros, What};

/// So soon, also when the owner dies in between and another has to take over.
const WITHIN: Micros = 15_000_000;

/// How many were taken.
pub(super) fn judge(history: &History, book: &Book<'_>, findings: &mut Findings) -> usize {
    for cancel in &history.cancels {
        let Some(ran) = book.calls.get(cancel.key.as_str()) else {
            continue;
        };
        let due = cancel.taken + WITHIN;
        let over = ran.cancelled.or(ran.ended).is_some_and(|at| at <= due);
        let mut records = history.calls.iter();
        let record = records.find(|record| record.key == cancel.key);
        if !over && !record.is_some_and(|record| cut_off(history, record, due)) {
            findings.add(Finding::CancelLost, || {
                let how = record.map(|record| (record.kind, record.owner, record.close));
                format!("{}: {how:?}", cancel.key)
            });
        }
    }
    history.cancels.len()
}

/// Whether the call's upstream was out of reach: its owner died, and nobody can go on, or nobody
/// did; the client knows, and whether that was right is asked elsewhere.
fn cut_off(history: &History, record: &CallRecord, until: Micros) -> bool {
    let failed = |heard: &Heard| matches!(heard.what, What::End(End::Error { .. }));
    if record.heard.iter().any(failed) {
        return true;
    }
    let struck = |fault: &&Fault| fault.at >= record.started && fault.at <= until;
    let mut struck = history.faults.iter().filter(struck);
    // nothing of it may have been written down before its client had an id, and nobody knows it then
    let unknown = record.close == Close::BrokenBeforeId;
    match record.kind {
        Kind::Plain => struck.next().is_some(),
        Kind::Resumable | Kind::Asking => unknown && struck.any(|fault| fault.seat == record.owner),
    }
}
