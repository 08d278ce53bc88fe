//! Calls: every event once and in order, then one answer of the right kind.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::book::{Book, Ran};
use super::tally::Calls;
use super::{Finding, Findings, TERMINAL_WITHIN, Terms};
use crate::history::{
    Blow, CallRecord, Close, End, Fault, Heard, History, Micros, Seat, What, span,
};

/// JSON-RPC code of a call whose outcome nobody knows, or whose history is gone.
const CALL_LOST: i64 = -31_004;

pub(super) fn judge(
    history: &History,
    book: &Book<'_>,
    terms: Terms,
    findings: &mut Findings,
) -> Calls {
    let mut calls = Calls::default();
    for (key, ran) in &book.calls {
        // clients name every call: one without a name is nobody's
        let asked_for = usize::from(!key.is_empty());
        let more = ran.times.saturating_sub(asked_for);
        findings.count(Finding::RunTwice, more, || (*key).to_owned());
    }
    let nothing = Ran::default();
    for record in &history.calls {
        let ran = book.calls.get(record.key.as_str()).unwrap_or(&nothing);
        let judging = Judging {
            record,
            ran,
            faults: &history.faults,
            terms,
        };
        judging.stream(findings);
        judging.close(findings);
        judging.ends(findings);
        calls.count(&judging);
    }
    unique_ids(history, findings);
    calls
}

/// RES-07: one id never names two messages, whoever appended them.
fn unique_ids(history: &History, findings: &mut Findings) {
    let mut names: HashMap<&str, (&str, String)> = HashMap::new();
    let calls = history.calls.iter().flat_map(|record| {
        let heard = record.heard.iter();
        heard.map(|heard| (&heard.id, record.key.as_str(), format!("{:?}", heard.what)))
    });
    let news = history.news.iter().flat_map(|record| {
        // two repairs look alike
        let numbered = record.heard.iter();
        numbered.map(|heard| (&heard.id, record.key.as_str(), format!("{:?}", heard.what)))
    });
    for (id, key, what) in calls.chain(news) {
        let Some(id) = id else { continue };
        let message = (key, what);
        let before = names.entry(id).or_insert_with(|| message.clone());
        if *before != message {
            findings.add(Finding::IdReused, || {
                format!("{id}: {before:?} and {message:?}")
            });
        }
    }
}

/// One call and what belongs to it.
pub(super) struct Judging<'a> {
    pub(super) record: &'a CallRecord,
    ran: &'a Ran,
    faults: &'a [Fault],
    terms: Terms,
}

impl Judging<'_> {
    fn name(&self) -> String {
        let CallRecord {
            key,
            kind,
            close,
            owner,
            resumed,
            ..
        } = self.record;
        let resumed: Vec<u16> = resumed.iter().map(|resumed| resumed.status).collect();
        format!("{key} ({kind:?}, {close:?}, {owner:?}, resumed {resumed:?})")
    }

    /// The events heard: number, and whether it came with an id.
    pub(super) fn events(&self) -> impl Iterator<Item = (u64, bool)> {
        self.record
            .heard
            .iter()
            .filter_map(|heard| match heard.what {
                What::Event(number) => Some((number, heard.id.is_some())),
                What::Question(_) | What::Withdrawn(_) | What::End(_) | What::Foreign(_) => None,
            })
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.events().map(|(number, _)| number)
    }

    pub(super) fn terminals(&self) -> impl Iterator<Item = (&Heard, &End)> {
        self.record
            .heard
            .iter()
            .filter_map(|heard| match &heard.what {
                What::End(end) => Some((heard, end)),
                What::Event(_) | What::Question(_) | What::Withdrawn(_) | What::Foreign(_) => None,
            })
    }

    /// Order and uniqueness of what was heard, and whether all of it was the call's.
    fn stream(&self, findings: &mut Findings) {
        let emitted: HashSet<u64> = self.ran.emitted.iter().map(|(number, _)| *number).collect();
        let (mut seen, mut highest) = (HashMap::new(), 0);
        for (number, has_id) in self.events() {
            let wrong = match seen.entry(number) {
                _ if !emitted.contains(&number) => Some((Finding::Foreign, "was never sent")),
                // EL-22: while the store was away it came without an id, so the client could not
                // say that it had it
                Entry::Occupied(before) if !before.get() => None,
                Entry::Occupied(_) => Some((Finding::Repeated, "came again")),
                Entry::Vacant(vacant) => {
                    vacant.insert(has_id);
                    (number < highest).then_some((Finding::Disordered, "came too late"))
                }
            };
            if let Some((finding, what)) = wrong {
                findings.add(finding, || {
                    format!("{}: event {number} {what}", self.name())
                });
            }
            highest = highest.max(number);
        }
        let mut questions = HashMap::new();
        let mut over = false;
        for heard in &self.record.heard {
            match &heard.what {
                What::Foreign(what) => {
                    findings.add(Finding::Foreign, || format!("{}: {what}", self.name()));
                }
                // as with events: what had no id may come again
                What::Question(question)
                    if questions.insert(question, heard.id.is_some()) == Some(true) =>
                {
                    findings.add(Finding::Repeated, || {
                        format!("{}: question {question}", self.name())
                    });
                }
                What::Event(number) if over => {
                    findings.add(Finding::Disordered, || {
                        format!("{}: event {number} after its end", self.name())
                    });
                }
                What::Event(_) | What::Question(_) | What::Withdrawn(_) => {}
                What::End(_) => over = true,
            }
        }
    }

    /// How the client's side ended.
    fn close(&self, findings: &mut Findings) {
        let accepted = match self.record.close {
            Close::Answered => false,
            Close::Cancelled => {
                self.no_gap(findings);
                false
            }
            Close::BrokenBeforeId | Close::Refused(_) => {
                if self.terms.rolling {
                    findings.add(Finding::Failed, || self.name());
                }
                false
            }
            // EL-13: nobody has anything of the stream any more
            Close::ResumeRefused(405) if self.lost_with_both(self.record.closed) => false,
            Close::ResumeRefused(_) => {
                findings.add(Finding::ResumeRefused, || self.name());
                true
            }
            Close::GaveUp => true,
        };
        if accepted && self.terminals().next().is_none() {
            let heard = self.numbers().count();
            let emitted = self.ran.emitted.len();
            let ended = self.ran.ended.is_some();
            findings.add(Finding::WithoutTerminal, || {
                format!(
                    "{}: heard {heard} of {emitted}, ended upstream: {ended}",
                    self.name()
                )
            });
            if ended {
                findings.add(Finding::SilentLoss, || {
                    format!("{}: its result", self.name())
                });
            }
        }
        let without_id = self.without_id();
        if let Some((status, more)) = self.record.afterwards
            && (status != 405 || more > 0)
            // EL-22: what came without an id, while the store was away, comes once more with one, or
            // is still to come when its owner died with it
            && !(status == 200 && without_id > 0 && more <= without_id)
        {
            findings.add(Finding::SeveralTerminals, || {
                format!(
                    "{}: a resume behind its end: {status}, {more} messages",
                    self.name()
                )
            });
        }
    }

    /// Messages heard behind the last id.
    fn without_id(&self) -> usize {
        let heard = self.record.heard.iter().rev();
        heard.take_while(|heard| heard.id.is_none()).count()
    }

    fn ends(&self, findings: &mut Findings) {
        let more = self.terminals().count().saturating_sub(1);
        findings.count(Finding::SeveralTerminals, more, || self.name());
        let Some((heard, end)) = self.terminals().next() else {
            return;
        };
        match end {
            End::Result => self.result(findings),
            End::Error { code, reason } if *code == CALL_LOST && reason == "outcome_unknown" => {
                self.unknown(heard.at, findings);
            }
            End::Error { code, reason } => {
                let stated = *code == CALL_LOST
                    && reason == "stream_history_lost"
                    && self.lost_with_both(heard.at);
                if !stated {
                    findings.add(Finding::WrongTerminal, || {
                        format!("{}: {code} {reason}", self.name())
                    });
                }
                if self.terms.rolling {
                    findings.add(Finding::Failed, || self.name());
                }
            }
        }
    }

    /// A result came: nothing before it may be missing.
    fn result(&self, findings: &mut Findings) {
        if self.ran.ended.is_none() {
            findings.add(Finding::WrongTerminal, || {
                format!("{}: a result that was never sent", self.name())
            });
        }
        let seen: HashSet<u64> = self.numbers().collect();
        let missing: Vec<u64> = self
            .ran
            .emitted
            .iter()
            .map(|(number, _)| *number)
            .filter(|number| !seen.contains(number))
            .collect();
        findings.count(Finding::Lost, missing.len(), || {
            format!("{}: {missing:?}", self.name())
        });
    }

    /// The one error of a call whose owner died: what was heard before is a beginning without gaps.
    fn unknown(&self, at: Micros, findings: &mut Findings) {
        self.no_gap(findings);
        if self.record.kind.survives() {
            findings.add(Finding::WrongTerminal, || {
                format!("{}: outcome_unknown, but it can be resumed", self.name())
            });
        } else if !self.hit(at, |blow| blow != Blow::KillStore) {
            findings.add(Finding::WrongTerminal, || {
                format!("{}: outcome_unknown, and nobody had died", self.name())
            });
        }
        if self.terms.rolling {
            findings.add(Finding::Failed, || self.name());
        }
        if let Some(died) = self.owner_died() {
            let since = self.found_from(died, at);
            if span(since, at) > TERMINAL_WITHIN {
                findings.add(Finding::LateTerminal, || {
                    format!("{}: {:?} after", self.name(), span(since, at))
                });
            }
        }
    }

    /// From when on the client can be told that its owner has died: nobody is declared dead before the
    /// store has answered for a whole lease, and a stopped replica tells those who read there nothing.
    fn found_from(&self, died: Micros, at: Micros) -> Micros {
        let resumed = self.record.resumed.iter();
        let readers: Vec<Seat> = resumed.filter_map(|resumed| resumed.reader).collect();
        let hindered = self.faults.iter().filter(|fault| {
            let reads_there = fault.seat.is_some_and(|seat| readers.contains(&seat));
            let of_store = matches!(
                fault.blow,
                Blow::KillStore | Blow::Failover | Blow::MoveSlots
            );
            (of_store || fault.blow == Blow::Stop && reads_there) && fault.at <= at
        });
        hindered
            .map(|fault| fault.until)
            .max()
            .unwrap_or(0)
            .max(died)
    }

    /// What was heard is a beginning of what was sent.
    fn no_gap(&self, findings: &mut Findings) {
        let mut numbers: Vec<u64> = self.numbers().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let gap = numbers.iter().zip(1..).find(|(number, due)| *number != due);
        if let Some((number, due)) = gap {
            findings.add(Finding::SilentLoss, || {
                format!("{}: {number} where {due} was due", self.name())
            });
        }
    }

    /// Whether the end of its stream may have been lost with who could have repaired it.
    pub(super) fn lost_with_both(&self, until: Micros) -> bool {
        self.terms.loses_tails && super::lost_with_both(self.faults, self.record.started, until)
    }

    /// Whether such a blow fell while the call ran.
    fn hit(&self, end: Micros, is: impl Fn(Blow) -> bool) -> bool {
        let hits =
            |fault: &Fault| is(fault.blow) && fault.at <= end && fault.until >= self.record.started;
        self.faults.iter().any(hits)
    }

    /// When the replica died that took the request, if that was before the call's end.
    pub(super) fn owner_died(&self) -> Option<Micros> {
        let owner = self.record.owner?;
        let died = self
            .faults
            .iter()
            .find(|fault| fault.blow.kills_a_replica() && fault.seat == Some(owner));
        died.map(|fault| fault.at)
            .filter(|at| *at >= self.record.started && *at <= self.record.closed)
    }
}
