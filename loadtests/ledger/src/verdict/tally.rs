//! What is told about calls: how many, how they ended, how long things took.

use std::time::Duration;

use super::calls::Judging;
use crate::history::{Close, End, Kind, span};

/// What is told about calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    requests: u64,
    results: u64,
    unknown: u64,
    stated: u64,
    broken: u64,
    refused: u64,
    pub(super) delivered: u64,
    without_id: u64,
    resumes: u64,
    take_overs: u64,
    worst_resume: Duration,
    worst_terminal: Duration,
    longest: Duration,
}

impl Calls {
    /// Takes one call into account.
    pub(super) fn count(&mut self, judging: &Judging<'_>) {
        let record = judging.record;
        self.requests += 1;
        self.delivered += u64::try_from(judging.numbers().count()).unwrap_or(u64::MAX);
        let without = judging.events().filter(|(_, has_id)| !has_id);
        self.without_id += u64::try_from(without.count()).unwrap_or(u64::MAX);
        self.longest = self.longest.max(span(record.started, record.closed));
        match record.close {
            Close::BrokenBeforeId => self.broken += 1,
            Close::Refused(_) => self.refused += 1,
            Close::Answered | Close::Cancelled | Close::ResumeRefused(_) | Close::GaveUp => {}
        }
        for resumed in record
            .resumed
            .iter()
            .filter(|resumed| resumed.status == 200)
        {
            self.resumes += 1;
            self.worst_resume = self.worst_resume.max(span(resumed.broke, resumed.answered));
        }
        let Some((heard, end)) = judging.terminals().next() else {
            return;
        };
        match end {
            End::Result => self.results += 1,
            End::Error { reason, .. } if reason == "outcome_unknown" => self.unknown += 1,
            End::Error { .. } => self.stated += 1,
        }
        if let Some(died) = judging.owner_died() {
            self.take_overs += 1;
            if record.kind == Kind::Plain {
                self.worst_terminal = self.worst_terminal.max(span(died, heard.at));
            }
        }
    }

    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("requests", self.requests.to_string()),
            ("  answered with a result", self.results.to_string()),
            ("  answered: outcome unknown", self.unknown.to_string()),
            ("  answered with another error", self.stated.to_string()),
            ("  broken before an id", self.broken.to_string()),
            ("  refused", self.refused.to_string()),
            ("events delivered", self.delivered.to_string()),
            ("  without an id (store away)", self.without_id.to_string()),
            ("valid resumes of calls", self.resumes.to_string()),
            ("take-overs", self.take_overs.to_string()),
            ("worst resume time", format!("{:.1?}", self.worst_resume)),
            (
                "worst time to an unknown outcome",
                format!("{:.1?}", self.worst_terminal),
            ),
            ("longest call", format!("{:.1?}", self.longest)),
        ]
    }
}
