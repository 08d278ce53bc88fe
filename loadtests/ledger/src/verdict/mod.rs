//! The ledger and the clients' records compared: what is missing, what came twice, what was not said.
//!
//! Pure: a history goes in, checks and facts come out. So each kind of fault can be put into a
//! recorded history by a test, which then sees it named.

mod answers;
mod book;
mod calls;
mod cancels;
mod news;
mod storm;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Blow, Fault, History, Micros, span};
use book::Book;

/// How late the one error of a call may come after its owner has died.
pub(crate) const TERMINAL_WITHIN: Duration = Duration::from_secs(15);
/// Examples kept of each kind of finding.
const EXAMPLES: usize = 5;

/// So soon after a failover every replica that lives has found the new primary and written again what
/// that lacks (EL-12, EL-23).
const REPAIRED_WITHIN: Duration = Duration::from_secs(5);

/// Whether between these moments a tail of the store was lost together with a replica, which alone
/// could have written it again. While owners live, a failover is no excuse for anything.
fn lost_with_both(faults: &[Fault], from: Micros, to: Micros) -> bool {
    let kills = |fault: &&Fault| fault.blow.kills_a_replica();
    let failovers = faults.iter().filter(|fault| fault.blow == Blow::Failover);
    failovers
        .filter(|failover| failover.at <= to && failover.until >= from)
        .any(|failover| {
            faults.iter().filter(kills).any(|kill| {
                let soon =
                    kill.at <= failover.until || span(failover.until, kill.at) <= REPAIRED_WITHIN;
                kill.at >= failover.at && soon && kill.at <= to
            })
        })
}

/// What a run promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Replicas are restarted in good order: nothing at all may fail.
    pub(crate) rolling: bool,
    /// A failover of the store may lose a tail; what went with it must be said.
    pub(crate) loses_tails: bool,
    /// Blows below this many open calls prove little.
    pub(crate) open_calls: usize,
    /// Share of the blows, in percent, that must hit so many.
    pub(crate) open_share: u64,
    /// Fewer delivered events than this prove little.
    pub(crate) events: u64,
}

/// What is found against a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Finding {
    Lost,
    Repeated,
    Disordered,
    SilentLoss,
    WithoutTerminal,
    SeveralTerminals,
    WrongTerminal,
    LateTerminal,
    RunTwice,
    ResumeRefused,
    IdReused,
    Foreign,
    ForgeryServed,
    AnswerLost,
    AnswerRepeated,
    AnswerUndone,
    QuestionRefused,
    CancelLost,
    NewsRepeated,
    NewsDisordered,
    SessionLost,
    Failed,
    Unserved,
}

impl Finding {
    const ALL: [Self; 23] = [
        Self::Lost,
        Self::Repeated,
        Self::Disordered,
        Self::SilentLoss,
        Self::WithoutTerminal,
        Self::SeveralTerminals,
        Self::WrongTerminal,
        Self::LateTerminal,
        Self::RunTwice,
        Self::ResumeRefused,
        Self::IdReused,
        Self::Foreign,
        Self::ForgeryServed,
        Self::AnswerLost,
        Self::AnswerRepeated,
        Self::AnswerUndone,
        Self::QuestionRefused,
        Self::CancelLost,
        Self::NewsRepeated,
        Self::NewsDisordered,
        Self::SessionLost,
        Self::Failed,
        Self::Unserved,
    ];

    /// As the table names it.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "events lost",
            Self::Repeated => "events duplicated",
            Self::Disordered => "events out of order",
            Self::SilentLoss => "silent losses",
            Self::WithoutTerminal => "without terminal",
            Self::SeveralTerminals => "several terminals",
            Self::WrongTerminal => "wrong terminals",
            Self::LateTerminal => "late terminals",
            Self::RunTwice => "calls run twice",
            Self::ResumeRefused => "resumes refused",
            Self::IdReused => "event ids used twice",
            Self::Foreign => "foreign messages",
            Self::ForgeryServed => "forgeries served",
            Self::AnswerLost => "answers lost",
            Self::AnswerRepeated => "answers repeated",
            Self::AnswerUndone => "answered questions withdrawn",
            Self::QuestionRefused => "questions answered by an error",
            Self::CancelLost => "cancels lost",
            Self::NewsRepeated => "notifications repeated",
            Self::NewsDisordered => "notifications out of order",
            Self::SessionLost => "sessions lost",
            Self::Failed => "requests failed",
            Self::Unserved => "connections refused",
        }
    }
}

/// One row that can fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) found: u64,
    pub(crate) limit: Limit,
    /// Some of what was found, for whoever looks for the cause.
    pub(crate) examples: Vec<String>,
}

/// What a check allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Nothing of it.
    None,
    /// At least this: below it the run proves little.
    Floor(u64),
}

impl Check {
    /// Whether it holds.
    #[must_use]
    pub(crate) fn holds(&self) -> bool {
        match self.limit {
            Limit::None => self.found == 0,
            Limit::Floor(floor) => self.found >= floor,
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// What must hold.
    pub(crate) checks: Vec<Check>,
    /// What is only told.
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl Verdict {
    /// The checks about messages that failed; a floor is no proof of a fault.
    pub(crate) fn caught(&self) -> impl Iterator<Item = &'static str> {
        let failed = self.checks.iter().filter(|check| !check.holds());
        failed
            .filter(|check| check.limit == Limit::None)
            .map(|check| check.name)
    }

    /// How many checks hold, and how many do not.
    #[must_use]
    pub(crate) fn score(&self) -> (usize, usize) {
        let passed = self.checks.iter().filter(|check| check.holds()).count();
        (passed, self.checks.len() - passed)
    }
}

/// Findings as they are collected.
#[derive(Debug, Default)]
struct Findings(BTreeMap<Finding, (u64, Vec<String>)>);

impl Findings {
    fn add(&mut self, finding: Finding, example: impl FnOnce() -> String) {
        self.count(finding, 1, example);
    }

    fn count(&mut self, finding: Finding, times: usize, example: impl FnOnce() -> String) {
        if times == 0 {
            return;
        }
        let (found, examples) = self.0.entry(finding).or_default();
        *found += u64::try_from(times).unwrap_or(u64::MAX);
        if examples.len() < EXAMPLES {
            examples.push(example());
        }
    }

    fn check(&mut self, finding: Finding) -> Check {
        let (found, examples) = self.0.remove(&finding).unwrap_or_default();
        Check {
            name: finding.as_str(),
            found,
            limit: Limit::None,
            examples,
        }
    }
}

/// Compares all sides of a run.
#[must_use]
pub(crate) fn judge(history: &History, terms: Terms) -> Verdict {
    let book = Book::of(&history.ledger);
    let mut findings = Findings::default();
    let calls = calls::judge(history, &book, terms, &mut findings);
    let answers = answers::judge(history, &book, terms, &mut findings);
    let news = news::judge(history, &book, terms, &mut findings);
    let cancels = cancels::judge(history, &book, &mut findings);
    for forgery in &history.forgeries {
        if forgery.served() {
            findings.add(Finding::ForgeryServed, || format!("{forgery:?}"));
        }
    }
    for lost in &history.lost_sessions {
        findings.add(Finding::SessionLost, || lost.clone());
    }
    let unserved = usize::try_from(history.unserved).unwrap_or(usize::MAX);
    if terms.rolling {
        findings.count(Finding::Unserved, unserved, || {
            "connections found no replica".to_owned()
        });
    }
    let storm = storm::measure(history, &book, terms);
    let wanted = Finding::ALL
        .into_iter()
        .filter(|finding| terms.rolling || !matches!(finding, Finding::Failed | Finding::Unserved));
    let mut checks: Vec<Check> = wanted.map(|finding| findings.check(finding)).collect();
    checks.extend(storm.floors(calls.delivered, terms));
    let mut facts = storm.facts(history);
    facts.extend(calls.facts());
    facts.extend(answers.facts());
    facts.push(("calls cancelled", cancels.to_string()));
    facts.extend(news.facts());
    let forgeries = history.forgeries.len();
    facts.push(("forgeries refused or served", forgeries.to_string()));
    Verdict { checks, facts }
}

impl crate::history::Forgery {
    /// Whether it got more than a refusal.
    fn served(&self) -> bool {
        !matches!(self.status, 400 | 404 | 405) || self.shown > 0
    }
}
