//! The open record of one request, and the line it becomes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Method as HttpMethod, Response, StatusCode};
use tokio::time::Instant;
use vestibule_terms::{Outcome, Record};

use crate::registry::{Metrics, RequestEnd};

/// Longest text a caller chose that a record keeps, in bytes (T68).
const MAX_TEXT: usize = 256;

/// A record that closes when it is told to, or as `cancelled` when it is dropped before.
#[derive(Debug)]
pub(crate) struct Open(Option<Facts>);

#[derive(Debug)]
struct Facts {
    metrics: Metrics,
    record: Record,
    start: Instant,
    is_head: bool,
    bytes_in: Arc<AtomicU64>,
    bytes_out: u64,
    status: Option<StatusCode>,
    overhead: Option<Duration>,
}

impl Open {
    /// Starts the clock.
    pub(crate) fn new(
        metrics: Metrics,
        record: Record,
        bytes_in: Arc<AtomicU64>,
        method: &HttpMethod,
    ) -> Self {
        Self(Some(Facts {
            metrics,
            record,
            start: Instant::now(),
            is_head: method == HttpMethod::HEAD,
            bytes_in,
            bytes_out: 0,
            status: None,
            overhead: None,
        }))
    }

    /// The head of the answer is there.
    pub(crate) fn answered<B>(&mut self, response: &Response<B>) {
        let Some(facts) = &mut self.0 else { return };
        facts.status = Some(response.status());
        let upstream = facts.record.upstream_micros();
        // A stream may open while its upstream is still silent: then nobody knows yet how much of
        // the time so far was the upstream's, and it is not ours to claim.
        if upstream == 0 && is_stream(response) {
            return;
        }
        let upstream = Duration::from_micros(upstream);
        facts.overhead = Some(facts.start.elapsed().saturating_sub(upstream));
    }

    /// Bytes of the body were handed to the connection.
    pub(crate) fn sent(&mut self, bytes: u64) {
        if let Some(facts) = &mut self.0 {
            facts.bytes_out += bytes;
        }
    }

    /// Whether this answer has no body on the wire, whatever its value holds.
    pub(crate) fn sends_no_body(&self) -> bool {
        self.0.as_ref().is_some_and(|facts| {
            let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED];
            facts.is_head
                || facts
                    .status
                    .is_some_and(|status| bodiless.contains(&status))
        })
    }

    /// The outcome that the status alone stands for, where no layer said more.
    pub(crate) fn outcome_of_status(&self) -> Outcome {
        match self.0.as_ref().and_then(|facts| facts.status) {
            Some(status) if status.is_server_error() => Outcome::Internal,
            Some(status) if status.is_client_error() => Outcome::Rejected,
            Some(_) => Outcome::Ok,
            None => Outcome::Cancelled,
        }
    }

    /// Closes the record; `otherwise` is the outcome where no layer said one.
    pub(crate) fn close(mut self, otherwise: Outcome) {
        if let Some(facts) = self.0.take() {
            facts.close(otherwise);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(facts) = self.0.take() {
            facts.close(Outcome::Cancelled);
        }
    }
}

fn is_stream<B>(response: &Response<B>) -> bool {
    let value = response.headers().get(CONTENT_TYPE);
    value.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

impl Facts {
    fn close(self, otherwise: Outcome) {
        let outcome = self.record.outcome().copied().unwrap_or(otherwise);
        let elapsed = self.start.elapsed();
        self.observe(outcome, elapsed);
        self.write(outcome, elapsed);
    }

    fn observe(&self, outcome: Outcome, elapsed: Duration) {
        let record = &self.record;
        self.metrics.request_ended(&RequestEnd {
            tenant: record.tenant(),
            server: record.server(),
            method: record.method().copied(),
            revision: record.revision().copied(),
            outcome,
            elapsed,
            overhead: self.overhead,
        });
        match (outcome, record.reason()) {
            (Outcome::Rejected, Some(reason)) => self.metrics.frame_rejected(reason),
            (Outcome::Unauthenticated, Some(reason)) => {
                self.metrics.auth_failed(record.tenant(), reason);
            }
            _ => {}
        }
    }

    fn write(&self, outcome: Outcome, elapsed: Duration) {
        let record = &self.record;
        let target = record.target().map(|text| without_query(text));
        tracing::info!(
            target: "access",
            request_id = record.request_id().map(|id| &**id),
            tenant = record.tenant().map(|id| id.as_str()),
            server = record.server().map(|id| id.as_str()),
            principal = record.principal().map(|text| printable(text)).as_deref(),
            revision = record.revision().map(|revision| revision.as_str()),
            method = record.method().map(|method| method.as_str()),
            target = target.map(printable).as_deref(),
            upstream = record.upstream().map(|id| id.as_str()),
            status = self.status.map(|status| status.as_u16()),
            code = record.code().copied(),
            reason = record.reason().copied(),
            outcome = outcome.as_str(),
            bytes_in = self.bytes_in.load(Ordering::Relaxed),
            bytes_out = self.bytes_out,
            duration_ms = millis(elapsed),
            upstream_ms = millis(Duration::from_micros(record.upstream_micros())),
        );
    }
}

/// Milliseconds with three decimals.
fn millis(elapsed: Duration) -> f64 {
    let micros = u32::try_from(elapsed.as_micros()).map_or_else(
        |_| elapsed.as_secs_f64() * 1e6, // more than an hour: the decimals no longer matter
        f64::from,
    );
    micros.round() / 1000.0
}

/// A URI without its query and fragment, which may carry credentials (T69); a name as it is.
fn without_query(text: &str) -> &str {
    if !text.contains(':') {
        return text;
    }
    text.split(['?', '#']).next().unwrap_or(text)
}

/// The text with control, format and direction characters escaped, cut at [`MAX_TEXT`] (T68).
fn printable(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c == ' ' || (c.is_ascii_graphic()) || (!c.is_ascii() && is_visible(c));
    if text.len() <= MAX_TEXT && text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(MAX_TEXT);
    for c in text.chars() {
        if shown.len() >= MAX_TEXT {
            shown.push('…');
            break;
        }
        if plain(c) {
            shown.push(c);
        } else if write!(shown, "\\u{{{:x}}}", u32::from(c)).is_err() {
            break;
        }
    }
    Cow::Owned(shown)
}

/// What the standard library would not escape in debug output: letters and signs that are seen.
fn is_visible(c: char) -> bool {
    c.escape_debug().eq(std::iter::once(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T68: nothing a caller names can start a line, colour a terminal or turn the text around.
    #[test]
    fn t68_caller_chosen_text_is_escaped_and_cut() {
        assert_eq!(printable("näme ü 名"), "näme ü 名");
        let shown = printable("x\n{\"level\":\"INFO\"}\u{1b}[31m\u{202e}\u{9b}\u{e0041}");
        assert_eq!(
            shown,
            r#"x\u{a}{"level":"INFO"}\u{1b}[31m\u{202e}\u{9b}\u{e0041}"#
        );
        let long = "é".repeat(1_000);
        let shown = printable(&long);
        assert!(shown.len() <= MAX_TEXT + 4, "{}", shown.len());
        assert!(shown.ends_with('…'));
    }

    /// T69: the query of a URI is not written.
    #[test]
    fn t69_queries_of_uris_are_left_out() {
        assert_eq!(without_query("https://a/b?token=1#x"), "https://a/b");
        assert_eq!(without_query("what_is_this?"), "what_is_this?");
    }

    #[test]
    fn milliseconds_keep_three_decimals() {
        assert!((millis(Duration::from_micros(1_234)) - 1.234).abs() < 1e-9);
        assert!((millis(Duration::from_secs(7_200)) - 7_200_000.0).abs() < 1e-3);
    }
}
