//! One JSON object a line: time, level, logger, the request it is about, and the event's fields.
//!
//! Written straight into bytes: the general formatter serialises every field through two layers of
//! dynamic calls, which made the access record the most expensive part of a small request.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use vestibule_metrics::with_current_request_id;

use super::batches::Batches;

/// Longest buffer that a thread keeps for its next line, in bytes.
const KEPT: usize = 16 * 1024;

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The layer.
pub(super) struct Lines(pub(super) Batches);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let urgent = *event.metadata().level() <= Level::WARN;
        LINE.with(|line| match line.try_borrow_mut() {
            Ok(mut line) => {
                write_line(&mut line, event);
                self.0.push(&line, urgent);
                line.clear();
                line.shrink_to(KEPT);
            }
            // said while a field of another line was being formatted
            Err(_busy) => {
                let mut line = Vec::new();
                write_line(&mut line, event);
                self.0.push(&line, urgent);
            }
        });
    }
}

fn write_line(line: &mut Vec<u8>, event: &Event<'_>) {
    let metadata = event.metadata();
    line.extend_from_slice(b"{\"timestamp\":\"");
    let now = humantime::format_rfc3339_micros(SystemTime::now());
    let mut members = Members {
        line,
        names_request: false,
    };
    members.format(format_args!("{now}"));
    members.raw("\",\"level\":\"");
    members.raw(metadata.level().as_str());
    members.raw("\"");
    // what the log calls its target is not what an access record does: there it is the tool
    members.raw(",\"logger\":");
    members.text(metadata.target());
    event.record(&mut members);
    if !members.names_request {
        with_current_request_id(|id| {
            members.raw(",\"request_id\":");
            members.text(id);
        });
    }
    members.raw("}\n");
}

/// Writes fields as members of the line's object.
struct Members<'a> {
    line: &'a mut Vec<u8>,
    names_request: bool,
}

impl Members<'_> {
    fn raw(&mut self, text: &str) {
        self.line.extend_from_slice(text.as_bytes());
    }

    fn format(&mut self, arguments: fmt::Arguments<'_>) {
        // memory takes everything
        let _never = self.line.write_fmt(arguments);
    }

    fn name(&mut self, field: &Field) {
        self.names_request |= field.name() == "request_id";
        self.raw(",\"");
        self.raw(field.name()); // an identifier: nothing to escape
        self.raw("\":");
    }

    /// A JSON string.
    fn text(&mut self, text: &str) {
        self.raw("\"");
        self.escaped(text);
        self.raw("\"");
    }

    /// A number without the general formatter: an access record has half a dozen.
    fn decimal(&mut self, number: u64) {
        let (mut digits, mut left) = ([0_u8; 20], number);
        let mut used = 0;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(left % 10).unwrap_or_default();
            used += 1;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        let start = digits.len() - used;
        self.line.extend(digits.iter().skip(start));
    }

    fn number(&mut self, value: f64) {
        match thousandths(value) {
            Some(count) => {
                self.decimal(count / 1000);
                self.fraction(count % 1000);
            }
            None if value.is_finite() => self.format(format_args!("{value:?}")),
            None => self.raw("null"), // JSON has no such number
        }
    }

    /// What stands behind the point: at least one digit, and no zero at its end.
    fn fraction(&mut self, thousandths: u64) {
        self.raw(".");
        let mut left = thousandths;
        for place in [100, 10, 1] {
            self.decimal(left / place);
            left %= place;
            if left == 0 {
                break;
            }
        }
    }

    fn escaped(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.bytes().position(must_be_escaped) {
            let (plain, special) = rest.split_at(at);
            self.raw(plain);
            let mut left = special.chars();
            match left.next() {
                Some('"') => self.raw("\\\""),
                Some('\\') => self.raw("\\\\"),
                Some('\n') => self.raw("\\n"),
                Some(other) => self.format(format_args!("\\u{:04x}", u32::from(other))),
                None => {}
            }
            rest = left.as_str();
        }
        self.raw(rest);
    }
}

/// The number in thousandths, where that is exactly what it is: so are all durations.
fn thousandths(value: f64) -> Option<u64> {
    const MOST: f64 = 9e12; // far from where not every integer is a number of this kind
    let count = (value * 1000.0).round();
    let exact = (0.0..MOST).contains(&count) && count / 1000.0 == value && value.is_sign_positive();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an integer between the bounds"
    )]
    exact.then_some(count as u64)
}

/// What may not stand in a JSON string as it is.
fn must_be_escaped(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\' | 0x7F)
}

impl fmt::Write for Members<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.escaped(text);
        Ok(())
    }
}

impl Visit for Members<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.name(field);
        self.text(value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.name(field);
        self.decimal(value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.name(field);
        self.format(format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.name(field);
        self.raw(if value { "true" } else { "false" });
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.name(field);
        self.number(value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.name(field);
        self.raw("\"");
        let _never = write!(self, "{value:?}");
        self.raw("\"");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Keeps the lines of this thread.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            write_line(&mut self.0.lock().unwrap(), event);
        }
    }

    fn lines(say: impl FnOnce()) -> Vec<Value> {
        let kept = Kept::default();
        let subscriber = tracing_subscriber::registry().with(kept.clone());
        tracing::subscriber::with_default(subscriber, say);
        let bytes = kept.0.lock().unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        let parse = |line| serde_json::from_str(line).unwrap();
        text.lines().map(parse).collect()
    }

    #[test]
    fn every_kind_of_field_is_a_member_of_its_kind() {
        let found = lines(|| {
            tracing::warn!(
                target: "t",
                text = "a",
                none = None::<&str>,
                some = Some(7_u16),
                below = -1_i64,
                real = 0.0_f64,
                endless = f64::NAN,
                yes = true,
                shown = %"x\"y",
                "said {}",
                1
            );
        });
        let [line] = found.as_slice() else {
            panic!("{found:?}")
        };
        let mut line = line.clone();
        let time = line["timestamp"].take();
        assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
        let expected = json!({
            "timestamp": null, "level": "WARN", "logger": "t", "message": "said 1", "text": "a",
            "some": 7, "below": -1, "real": 0.0, "endless": null, "yes": true, "shown": "x\"y",
        });
        assert_eq!(line, expected);
    }

    /// Numbers are written as the general formatter does, whichever way they are written.
    #[test]
    fn numbers_are_written_as_they_are() {
        let numbers = [
            0.0,
            -0.0,
            0.001,
            0.01,
            0.1,
            0.12,
            1.0,
            1.5,
            10.05,
            123.456,
            7_200_000.0,
            0.0005,
            1e-7,
            0.1 + 0.2,
            -3.25,
            1e13,
            1e300,
            f64::MAX,
        ];
        for number in numbers {
            let mut line = Vec::new();
            let mut members = Members {
                line: &mut line,
                names_request: false,
            };
            members.number(number);
            assert_eq!(String::from_utf8(line).unwrap(), format!("{number:?}"));
        }
        for number in [0, 7, 10, 99, 100, u64::MAX] {
            let mut line = Vec::new();
            let mut members = Members {
                line: &mut line,
                names_request: false,
            };
            members.decimal(number);
            assert_eq!(String::from_utf8(line).unwrap(), number.to_string());
        }
    }

    /// T68: whatever text a line is made of, it is one line and one object.
    #[test]
    fn t68_a_line_is_one_line_whatever_it_says() {
        let bad = "\u{0}\u{1f}\"\\\n\r\t\u{7f}ü\u{2028}\u{202e}";
        let found = lines(|| tracing::info!(target: "t", plain = bad, shown = %bad, "{bad}"));
        assert_eq!(found.len(), 1);
        for member in ["plain", "shown", "message"] {
            assert_eq!(found[0][member], bad, "{member}");
        }
    }
}
