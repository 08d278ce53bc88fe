//! What a full scan of one `tools/call` costs, next to two levels of `serde_json`'s `RawValue`.
//!
//! ```sh
//! cargo bench -p vestibule-frame                # a table
//! cargo bench -p vestibule-frame -- --assert    # fails when a ratio exceeds its limit
//! ```
//!
//! Both take turns within one run and the median of the rounds counts, so only the ratio means
//! something. The scan validates everything (UTF-8, grammar, depth, duplicate and look-alike keys);
//! `RawValue` validates grammar and UTF-8 of what it passes over.

use std::hint::black_box;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use vestibule_frame::{Frame, Limits};

/// Rounds, and how long each contender is measured in one.
const ROUNDS: usize = 41;
const SLICE: Duration = Duration::from_millis(5);

#[derive(Deserialize)]
struct Outer<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    #[serde(borrow)]
    params: &'a RawValue,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: &'a str,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(borrow, rename = "_meta")]
    meta: &'a RawValue,
}

/// A call whose one argument is a text of that length.
fn call(text: usize) -> Bytes {
    let words = "the quick brown fox jumps over the lazy dog, twice a day. ";
    let text: String = words.chars().cycle().take(text).collect();
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":"a3f1-42","method":"tools/call","params":{{"name":"search_issues","arguments":{{"query":"{text}","limit":25,"open":true}},"_meta":{{"progressToken":"p-17","example.com/trace":"00-4bf92f35"}}}}}}"#
    ))
}

fn scan(message: &Bytes) -> usize {
    let frame = Frame::parse(message.clone(), &Limits::default()).expect("a good message");
    frame.arguments().map_or(0, |span| frame.text(span).len())
}

fn raw_value(message: &Bytes) -> usize {
    let outer: Outer<'_> = serde_json::from_slice(message).expect("a good message");
    let params: Params<'_> = serde_json::from_str(outer.params.get()).expect("a good message");
    black_box((
        outer.jsonrpc,
        outer.id,
        outer.method,
        params.name,
        params.meta,
    ));
    params.arguments.get().len()
}

/// Nanoseconds a call, over at least [`SLICE`].
fn measure(work: impl Fn(&Bytes) -> usize, message: &Bytes) -> f64 {
    let since = tokio::time::Instant::now();
    let mut calls = 0_u32;
    loop {
        for _ in 0..16 {
            black_box(work(black_box(message)));
        }
        calls += 16;
        let elapsed = since.elapsed();
        if elapsed >= SLICE {
            return elapsed.as_secs_f64() * 1e9 / f64::from(calls);
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    let asserts = std::env::args().any(|argument| argument == "--assert");
    let mut good = true;
    let mut out = std::io::stdout();
    for (name, text, limit) in [("300 B", 106, 0.35), ("64 KB of text", 65_330, 0.30)] {
        let message = call(text);
        assert_eq!(scan(&message), raw_value(&message), "both read the same");
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (scan, raw) = (measure(scan, &message), measure(raw_value, &message));
            ours.push(scan);
            theirs.push(raw);
            ratios.push(scan / raw);
        }
        let (ours, theirs, ratio) = (median(ours), median(theirs), median(ratios));
        let verdict = if ratio <= limit { "ok" } else { "too slow" };
        good &= ratio <= limit;
        let _closed = writeln!(
            out,
            "{name} ({} B): scan {ours:.0} ns, RawValue {theirs:.0} ns, ratio {ratio:.2} (at most {limit:.2}): {verdict}",
            message.len()
        );
    }
    if good || !asserts {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
