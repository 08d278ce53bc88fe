//! Standalone streams: no notification on two of them, order within each, loss only when told.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::book::{Book, Notice};
use super::{Finding, Findings, Terms, lost_with_both};
use crate::history::{History, Micros, News, NewsRecord, span};

/// What is told about them.
#[derive(Debug, Default)]
pub(super) struct Told {
    heard: u64,
    stated: u64,
    resumes: u64,
    worst_resume: Duration,
}

pub(super) fn judge(
    history: &History,
    book: &Book<'_>,
    terms: Terms,
    findings: &mut Findings,
) -> Told {
    let mut told = Told::default();
    // how far the upstream was read was lost with them: it is read from further back
    let lost = |at| terms.loses_tails && lost_with_both(&history.faults, 0, at);
    for record in &history.news {
        let sent = book
            .news
            .get(record.key.as_str())
            .map_or(&[][..], |sent| sent);
        order(record, sent, lost, findings);
        told.stated += missing(record, sent, findings);
        for status in &record.refused {
            findings.add(Finding::ResumeRefused, || {
                format!("{}: its standalone stream, {status}", record.key)
            });
        }
        told.heard += u64::try_from(numbers(record).count()).unwrap_or(u64::MAX);
        for resumed in record
            .resumed
            .iter()
            .filter(|resumed| resumed.status == 200)
        {
            told.resumes += 1;
            told.worst_resume = told.worst_resume.max(span(resumed.broke, resumed.answered));
        }
    }
    told
}

/// When and on which stream each notification came, whether it had an id, its number.
fn numbers(record: &NewsRecord) -> impl Iterator<Item = (Micros, usize, bool, u64)> {
    record.heard.iter().filter_map(|heard| match heard.what {
        News::Number(number) => Some((heard.at, heard.stream, heard.id.is_some(), number)),
        News::Repair | News::Foreign(_) => None,
    })
}

fn order(
    record: &NewsRecord,
    sent: &[Notice<'_>],
    lost: impl Fn(Micros) -> bool,
    findings: &mut Findings,
) {
    let known: HashMap<u64, Option<&str>> = sent
        .iter()
        .map(|notice| (notice.number, notice.stream))
        .collect();
    let mut seen: HashMap<u64, (usize, bool)> = HashMap::new();
    let mut highest: HashMap<(usize, Option<&str>), u64> = HashMap::new();
    for (at, stream, has_id, number) in numbers(record) {
        let source = known.get(&number).copied();
        if source.is_none() {
            findings.add(Finding::Foreign, || {
                format!("{}: notification {number} was never sent", record.key)
            });
        }
        if let Some((before, had_id)) = seen.insert(number, (stream, has_id)) {
            // EL-22: what came without an id, while the store was away, comes once more with one
            if !had_id || lost(at) {
                continue;
            }
            findings.add(Finding::NewsRepeated, || {
                format!(
                    "{}: {number} on stream {before} and on {stream}",
                    record.key
                )
            });
            continue;
        }
        let top = highest.entry((stream, source.flatten())).or_default();
        if number < *top {
            findings.add(Finding::NewsDisordered, || {
                format!("{}: {number} after {top} on stream {stream}", record.key)
            });
        }
        *top = number.max(*top);
    }
    for heard in &record.heard {
        if let News::Foreign(what) = &heard.what {
            findings.add(Finding::Foreign, || format!("{}: {what}", record.key));
        }
    }
}

/// Looks for what never came. What a later "look again" makes good was stated; the rest was lost in
/// silence.
fn missing(record: &NewsRecord, sent: &[Notice<'_>], findings: &mut Findings) -> u64 {
    let seen: HashSet<u64> = numbers(record).map(|(.., number)| number).collect();
    let repaired = record
        .heard
        .iter()
        .filter(|heard| heard.what == News::Repair)
        .map(|heard| heard.at)
        .max()
        .unwrap_or(0);
    let mut stated = 0;
    for Notice { number, at, .. } in sent {
        if seen.contains(number) || *at > record.until {
            continue;
        }
        if *at <= repaired {
            stated += 1;
        } else {
            findings.add(Finding::SilentLoss, || {
                format!("{}: notification {number}", record.key)
            });
        }
    }
    stated
}

impl Told {
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("notifications delivered", self.heard.to_string()),
            ("  lost, and told so", self.stated.to_string()),
            ("valid resumes of GET streams", self.resumes.to_string()),
            (
                "worst resume of a GET stream",
                format!("{:.1?}", self.worst_resume),
            ),
        ]
    }
}
