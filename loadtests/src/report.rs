//! The JSON result of a run, and the thresholds that decide its exit code.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::load::held::HeldCounts;
use crate::load::resume::ResumeCounts;
use crate::mcp::Era;
use crate::measure::Summary;

/// What makes a run fail.
#[derive(Debug, Clone, Copy, Default)]
pub struct Thresholds {
    /// Failed calls, lost streams and lost or repeated events that are still good.
    pub max_failed: u64,
    /// Highest median latency.
    pub max_p50_us: Option<f64>,
    /// Highest 99th percentile of latency.
    pub max_p99_us: Option<f64>,
    /// Lowest rate.
    pub min_rate: Option<f64>,
    /// Highest 99th percentile of the generator's own lateness.
    pub max_lateness_p99_us: Option<f64>,
}

/// The result of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `closed`, `open`, `hold` or `resume`.
    pub model: &'static str,
    /// Era of the client.
    pub era: Era,
    /// Connections of the load, held streams apart.
    pub connections: usize,
    /// Calls sent, unrecorded ones included.
    pub sent: u64,
    /// The calls.
    pub calls: Summary,
    /// The held streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldCounts>,
    /// The cut answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumeCounts>,
    /// Thresholds that do not hold, in words.
    pub broken: Vec<String>,
}

// === impl Thresholds ===

impl Thresholds {
    /// Everything that does not hold.
    pub fn broken(&self, report: &Report) -> Vec<String> {
        let calls = &report.calls;
        let mut broken = Vec::new();
        let mut failures: BTreeMap<&str, u64> = calls
            .failures
            .iter()
            .map(|(kind, count)| (kind.as_str(), *count))
            .collect();
        if let Some(held) = &report.held {
            failures.insert("held streams not opened", held.failed);
            failures.insert("held streams lost", held.lost);
        }
        if let Some(resume) = &report.resume {
            failures.insert("events missing after resume", resume.missing);
            failures.insert("events repeated after resume", resume.repeated);
        }
        failures.retain(|_, count| *count > 0);
        let failed: u64 = failures.values().sum();
        if failed > self.max_failed {
            let kinds: Vec<_> = failures
                .iter()
                .map(|(kind, count)| format!("{count} {kind}"))
                .collect();
            broken.push(format!(
                "failed: {} (at most {})",
                kinds.join(", "),
                self.max_failed
            ));
        }
        let mut above = |what: &str, got: f64, limit: Option<f64>| {
            if let Some(limit) = limit.filter(|limit| got > *limit) {
                broken.push(format!("{what}: {got:.1} us (at most {limit:.1})"));
            }
        };
        above("p50", calls.latency_us.p50, self.max_p50_us);
        above("p99", calls.latency_us.p99, self.max_p99_us);
        above(
            "lateness p99",
            calls.lateness_us.p99,
            self.max_lateness_p99_us,
        );
        if let Some(limit) = self.min_rate.filter(|limit| calls.rate < *limit) {
            broken.push(format!("rate: {:.1}/s (at least {limit:.1})", calls.rate));
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::measure::{Measure, Received, Times};

    fn report(failed: u64) -> Report {
        let start = Instant::now();
        let mut measure = Measure::default();
        for _ in 0..100 {
            let times = Times {
                intended: start,
                free: start,
                started: start + Duration::from_micros(50),
                ended: start + Duration::from_millis(1),
            };
            measure.answered(&times, Received::default());
        }
        for _ in 0..failed {
            measure.failed("status 500".to_owned(), start, start);
        }
        Report {
            model: "closed",
            era: Era::Modern,
            connections: 1,
            sent: 100 + failed,
            calls: measure.summary(),
            held: None,
            resume: None,
            broken: Vec::new(),
        }
    }

    #[test]
    fn a_run_without_thresholds_fails_by_failures_alone() {
        assert!(Thresholds::default().broken(&report(0)).is_empty());
        let broken = Thresholds::default().broken(&report(2));
        assert_eq!(broken, ["failed: 2 status 500 (at most 0)"]);
        let lenient = Thresholds {
            max_failed: 2,
            ..Thresholds::default()
        };
        assert!(lenient.broken(&report(2)).is_empty());
    }

    #[test]
    fn each_threshold_can_be_broken_and_kept() {
        let tight = Thresholds {
            max_failed: 0,
            max_p50_us: Some(900.0),
            max_p99_us: Some(900.0),
            min_rate: Some(1e9),
            max_lateness_p99_us: Some(49.0),
        };
        assert_eq!(tight.broken(&report(0)).len(), 4);
        let wide = Thresholds {
            max_failed: 0,
            max_p50_us: Some(1_100.0),
            max_p99_us: Some(1_100.0),
            min_rate: Some(10.0),
            max_lateness_p99_us: Some(51.0),
        };
        assert!(wide.broken(&report(0)).is_empty());
    }

    #[test]
    fn lost_streams_and_events_are_failures() {
        let mut lossy = report(0);
        lossy.held = Some(HeldCounts {
            opened: 3,
            lost: 1,
            ..HeldCounts::default()
        });
        lossy.resume = Some(ResumeCounts {
            rounds: 1,
            missing: 2,
            repeated: 0,
        });
        let broken = Thresholds::default().broken(&lossy).join("");
        assert!(broken.contains("1 held streams lost"), "{broken}");
        assert!(broken.contains("2 events missing after resume"), "{broken}");
    }
}
