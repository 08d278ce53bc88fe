//! Answers to questions: each reaches the upstream, and once.

use std::collections::HashMap;

use super::book::Book;
use super::{Finding, Findings, Terms};
use crate::history::{AnswerRecord, Blow, CallRecord, Close, End, History, Micros, What};

/// The first of two identical answers may have been under way when a process died: so much earlier
/// than its arrival.
const UNDER_WAY: Micros = 2_000_000;

/// What is told about answers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    given: u64,
    again: u64,
}

pub(super) fn judge(
    history: &History,
    book: &Book<'_>,
    terms: Terms,
    findings: &mut Findings,
) -> Answers {
    let mut answers = Answers::default();
    let given: HashMap<&str, &AnswerRecord> = history
        .answers
        .iter()
        .map(|answer| (answer.question.as_str(), answer))
        .collect();
    undone(history, terms, findings);
    for record in &history.calls {
        let Some(ran) = book.calls.get(record.key.as_str()) else {
            continue;
        };
        for question in &ran.asked {
            let came = book
                .answers
                .get(question.as_str())
                .map_or(&[][..], |came| came);
            let answer = given.get(question.as_str()).copied();
            answers.given += u64::from(!came.is_empty());
            not_given(record, question, answer, came, findings);
            answers.again += repeated(history, question, came, findings);
            let taken = answer.is_some_and(|answer| answer.taken.is_some());
            if came.is_empty() && taken && !says_unknown(record) {
                findings.add(Finding::AnswerLost, || {
                    format!("{question} of {} ({:?})", record.key, record.close)
                });
            }
        }
    }
    answers
}

/// A question that is withdrawn although its answer had been taken.
fn undone(history: &History, terms: Terms, findings: &mut Findings) {
    let taken: HashMap<(usize, u64), Micros> = history
        .answers
        .iter()
        .filter_map(|answer| Some(((answer.session, answer.id), answer.taken?)))
        .collect();
    for record in &history.calls {
        for heard in &record.heard {
            let What::Withdrawn(id) = heard.what else {
                continue;
            };
            let taken = taken.get(&(record.session, id));
            // a store that has lost its tail has lost that the question was answered
            let forgotten = |taken: Micros| {
                let mut faults = history.faults.iter();
                terms.loses_tails
                    && faults.any(|fault| {
                        let hit = fault.at..=fault.until;
                        fault.blow == Blow::Failover && hit.contains(&taken)
                    })
            };
            if taken.is_some_and(|taken| *taken < heard.at && !forgotten(*taken)) {
                findings.add(Finding::AnswerUndone, || {
                    format!("question {id} of {}", record.key)
                });
            }
        }
    }
}

/// Answers that the question's client never gave: another's, or an error in its place. The error is
/// right only when the client cannot answer any more.
fn not_given(
    record: &CallRecord,
    question: &str,
    answer: Option<&AnswerRecord>,
    came: &[(Micros, &str)],
    findings: &mut Findings,
) {
    for (_, content) in came {
        // what is no client's text stands there as it came
        let is_error = content.starts_with('{');
        let finding = match answer {
            Some(answer) if answer.content == *content => continue,
            _ if is_error && says_unknown(record) => continue,
            _ if is_error => Finding::QuestionRefused,
            _ => Finding::Foreign,
        };
        findings.add(finding, || format!("{question} was answered {content}"));
    }
}

/// Answers beyond the first; the number of those that a crash between sending and noting excuses,
/// since an answer may not be lost (the same bytes are sent again).
fn repeated(
    history: &History,
    question: &str,
    came: &[(Micros, &str)],
    findings: &mut Findings,
) -> u64 {
    let mut excused = 0;
    for pair in came.windows(2) {
        let [(first, before), (second, after)] = pair else {
            continue;
        };
        let crashed = history
            .faults
            .iter()
            .any(|fault| fault.at <= *second && fault.until.max(fault.at) + UNDER_WAY >= *first);
        if before == after && crashed && second.saturating_sub(*first) > 20_000 {
            excused += 1;
        } else {
            findings.add(Finding::AnswerRepeated, || {
                format!(
                    "{question}, {} ms apart",
                    second.saturating_sub(*first) / 1000
                )
            });
        }
    }
    excused
}

/// Whether the client knows that its call is lost, and so its answer.
fn says_unknown(record: &CallRecord) -> bool {
    let lost = |what: &What| {
        matches!(what, What::End(End::Error { reason, .. })
            if reason == "outcome_unknown" || reason == "stream_history_lost")
    };
    matches!(
        record.close,
        Close::BrokenBeforeId | Close::Refused(_) | Close::Cancelled
    ) || record.heard.iter().any(|heard| lost(&heard.what))
}

impl Answers {
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("questions answered", self.given.to_string()),
            ("  sent again after a crash", self.again.to_string()),
        ]
    }
}
