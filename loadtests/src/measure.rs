//! Histograms of one run: latency from the intended time, service time, and the generator's own
//! lateness.
//!
//! Three times of a request decide what its delay means: when it was *due*, when a connection was
//! *free* for it, and when it was really *started*. Waiting for a free connection is the target's
//! doing and counts as latency; what passes between both being there and the start is this
//! program's own delay, and a run in which that is large measured the generator.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::time::Instant;

/// Longest time a histogram holds; longer ones count as this.
const LONGEST: Duration = Duration::from_secs(600);
/// Three significant digits: a value is kept within 0.1 %.
const DIGITS: u8 = 3;

/// When things happened to one request.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// When the schedule wanted it to start.
    pub intended: Instant,
    /// When its connection had nothing else to do.
    pub free: Instant,
    /// When it was handed to the connection.
    pub started: Instant,
    /// When the whole answer was there.
    pub ended: Instant,
}

impl Times {
    /// What a caller who came at the intended time waited.
    pub fn latency(&self) -> Duration {
        self.ended.saturating_duration_since(self.intended)
    }

    /// What the target took once it was asked.
    pub fn service(&self) -> Duration {
        self.ended.saturating_duration_since(self.started)
    }

    /// The generator's own delay.
    pub fn lateness(&self) -> Duration {
        self.started
            .saturating_duration_since(self.intended.max(self.free))
    }

    /// True when all connections were busy at the intended time.
    pub fn queued(&self) -> bool {
        self.free > self.intended
    }
}

/// What was received for one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the body.
    pub bytes: u64,
    /// Events of an SSE answer, the final one included.
    pub events: u64,
}

/// Everything measured.
#[derive(Debug)]
pub struct Measure {
    latency: Histogram<u64>,
    service: Histogram<u64>,
    lateness: Histogram<u64>,
    queued: u64,
    received: Received,
    failures: BTreeMap<String, u64>,
    first: Option<Instant>,
    last: Option<Instant>,
}

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, Serialize, PartialEq)]
pub struct Percentiles {
    /// Smallest.
    pub min: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 of 100 are not above.
    pub p90: f64,
    /// 99 of 100 are not above.
    pub p99: f64,
    /// 999 of 1,000 are not above.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

/// The numbers of a finished run.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Requests answered with a result.
    pub answered: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Failures by kind.
    pub failures: BTreeMap<String, u64>,
    /// From the first recorded start to the last recorded end.
    pub seconds: f64,
    /// Answers a second.
    pub rate: f64,
    /// Bytes of all bodies.
    pub bytes: u64,
    /// Events of all SSE answers.
    pub events: u64,
    /// From the intended time to the end of the answer.
    pub latency_us: Percentiles,
    /// From the start to the end of the answer.
    pub service_us: Percentiles,
    /// The generator's own delay.
    pub lateness_us: Percentiles,
    /// Requests that waited for a free connection.
    pub queued: u64,
}

// === impl Measure ===

impl Default for Measure {
    fn default() -> Self {
        Self {
            latency: histogram(),
            service: histogram(),
            lateness: histogram(),
            queued: 0,
            received: Received::default(),
            failures: BTreeMap::new(),
            first: None,
            last: None,
        }
    }
}

impl Measure {
    /// Adds an answered request.
    pub fn answered(&mut self, times: &Times, received: Received) {
        self.latency.saturating_record(nanos(times.latency()));
        self.service.saturating_record(nanos(times.service()));
        self.lateness.saturating_record(nanos(times.lateness()));
        self.queued += u64::from(times.queued());
        self.received.bytes += received.bytes;
        self.received.events += received.events;
        self.stretch(times.started, times.ended);
    }

    /// Adds a failed request. Its time is in no histogram: a refusal that takes no time must not
    /// make the median look good.
    pub fn failed(&mut self, kind: String, started: Instant, ended: Instant) {
        *self.failures.entry(kind).or_default() += 1;
        self.stretch(started, ended);
    }

    fn stretch(&mut self, started: Instant, ended: Instant) {
        self.first = Some(self.first.map_or(started, |first| first.min(started)));
        self.last = Some(self.last.map_or(ended, |last| last.max(ended)));
    }

    /// The numbers so far.
    pub fn summary(&self) -> Summary {
        let answered = self.latency.len();
        let took = match (self.first, self.last) {
            (Some(first), Some(last)) => last.saturating_duration_since(first).as_secs_f64(),
            (None | Some(_), None) | (None, Some(_)) => 0.0,
        };
        Summary {
            answered,
            failed: self.failures.values().sum(),
            failures: self.failures.clone(),
            seconds: took,
            rate: if took > 0.0 {
                approximate(answered) / took
            } else {
                0.0
            },
            bytes: self.received.bytes,
            events: self.received.events,
            latency_us: percentiles(&self.latency),
            service_us: percentiles(&self.service),
            lateness_us: percentiles(&self.lateness),
            queued: self.queued,
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, nanos(LONGEST), DIGITS).expect("constant bounds are in order")
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    let at = |quantile: f64| micros(histogram.value_at_quantile(quantile));
    Percentiles {
        min: micros(histogram.min()),
        mean: (histogram.mean() / 10.0).round() / 100.0,
        p50: at(0.50),
        p90: at(0.90),
        p99: at(0.99),
        p999: at(0.999),
        max: micros(histogram.max()),
    }
}

/// Microseconds with two decimals.
fn micros(nanos: u64) -> f64 {
    (approximate(nanos) / 10.0).round() / 100.0
}

/// Counts and times are far below 2^53, up to where this is exact.
fn approximate(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::schedule::Schedule;

    const MS: Duration = Duration::from_millis(1);

    fn near(got: f64, wanted: f64) -> bool {
        (got - wanted).abs() <= wanted * 0.002
    }

    #[test]
    fn percentiles_are_those_of_the_recorded_values() {
        let start = Instant::now();
        let mut measure = Measure::default();
        for micros in 1..=1_000 {
            let times = Times {
                intended: start,
                free: start,
                started: start,
                ended: start + Duration::from_micros(micros),
            };
            measure.answered(
                &times,
                Received {
                    bytes: 3,
                    events: 2,
                },
            );
        }
        let summary = measure.summary();
        let latency = summary.latency_us;
        assert_eq!(
            (summary.answered, summary.failed, summary.queued),
            (1_000, 0, 0)
        );
        assert_eq!((summary.bytes, summary.events), (3_000, 2_000));
        assert!(
            near(latency.min, 1.0) && near(latency.max, 1_000.0),
            "{latency:?}"
        );
        assert!(
            near(latency.p50, 500.0) && near(latency.p90, 900.0),
            "{latency:?}"
        );
        assert!(
            near(latency.p99, 990.0) && near(latency.p999, 999.0),
            "{latency:?}"
        );
        assert!(near(latency.mean, 500.5), "{latency:?}");
        assert!(near(summary.rate, 1_000_000.0), "{}", summary.rate);
    }

    /// One connection, a request a millisecond, and a target that stalls once for 100 ms: the
    /// requests that fell due during the stall waited, and the percentiles say so. Service times
    /// alone would hide them.
    #[test]
    fn a_stall_is_felt_by_every_request_that_was_due_in_it() {
        let start = Instant::now();
        let schedule = Schedule::new(start, NonZeroU32::new(1_000).unwrap(), 1_000);
        let mut measure = Measure::default();
        let mut free = start;
        for index in 0..schedule.count() {
            let intended = schedule.intended(index);
            let started = intended.max(free);
            let takes = if index == 500 { 100 * MS } else { MS / 10 };
            let times = Times {
                intended,
                free,
                started,
                ended: started + takes,
            };
            free = times.ended;
            measure.answered(&times, Received::default());
        }
        let summary = measure.summary();
        assert!(
            summary.latency_us.p99 > 80_000.0,
            "{:?}",
            summary.latency_us
        );
        assert!(summary.latency_us.p90 > 1_000.0, "{:?}", summary.latency_us);
        assert!(
            near(summary.service_us.p99, 100.0),
            "{:?}",
            summary.service_us
        );
        assert!(
            summary.queued >= 100 && summary.queued < 120,
            "{}",
            summary.queued
        );
        assert!(
            summary.lateness_us.max < 0.01,
            "none of it was the generator's doing"
        );
    }

    #[test]
    fn lateness_is_only_what_the_generator_wasted_itself() {
        let start = Instant::now();
        let idle = Times {
            intended: start + 10 * MS,
            free: start,
            started: start + 13 * MS,
            ended: start + 20 * MS,
        };
        assert_eq!((idle.lateness(), idle.queued()), (3 * MS, false));
        assert_eq!((idle.latency(), idle.service()), (10 * MS, 7 * MS));
        let busy = Times {
            free: start + 12 * MS,
            ..idle
        };
        assert_eq!((busy.lateness(), busy.queued()), (MS, true));
        assert_eq!(busy.latency(), 10 * MS);
    }

    #[test]
    fn failures_are_counted_by_kind_and_are_in_no_histogram() {
        let start = Instant::now();
        let mut measure = Measure::default();
        measure.failed("status 429".to_owned(), start, start + MS);
        measure.failed("status 429".to_owned(), start, start + MS);
        measure.failed("timeout".to_owned(), start, start + 4 * MS);
        let summary = measure.summary();
        assert_eq!((summary.answered, summary.failed), (0, 3));
        assert_eq!(summary.failures["status 429"], 2);
        assert_eq!(summary.latency_us.max, 0.0);
        assert!(near(summary.seconds, 0.004));
    }

    #[test]
    fn an_hour_is_recorded_as_the_longest_time_not_lost() {
        let start = Instant::now();
        let ended = start + Duration::from_secs(3_600);
        let mut measure = Measure::default();
        let times = Times {
            intended: start,
            free: start,
            started: start,
            ended,
        };
        measure.answered(&times, Received::default());
        assert_eq!(measure.summary().answered, 1);
        assert!(near(measure.summary().latency_us.max, 600_000_000.0));
    }
}
