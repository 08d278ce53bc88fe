//! Log lines go to stderr, as text for people or one JSON object a line; stdout carries only what
//! was asked for.
//!
//! A line is formatted where it is said and written by a thread of its own: a
//! request's access record costs no system call. Nothing is left out; what was said is on stderr
//! a few milliseconds later, at once for warnings and errors, and before the process ends.

mod batches;
mod json;

use std::io::{self, IsTerminal};

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};
use vestibule_metrics::with_current_request_id;
use vestibule_registry::checked::LogFormat;

use batches::{Batches, Flush};

/// The variable that names what is logged, in the filter syntax of `tracing`.
pub const FILTER_VARIABLE: &str = "VESTIBULE_LOG";

/// Starts logging for the whole process, until the value is dropped, which writes what still waits.
/// A second call changes nothing.
///
/// `default` is the filter where the environment names none.
#[must_use = "lines that still wait are written when this value is dropped"]
pub fn start(format: LogFormat, default: &str) -> Flush {
    let (batches, flush) = Batches::start();
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| default.into());
    let lines = match format {
        LogFormat::Text => fmt::layer()
            .event_format(Text(Format::default()))
            .with_ansi(io::stderr().is_terminal())
            .with_writer(batches)
            .boxed(),
        LogFormat::Json => json::Lines(batches).boxed(),
    };
    if let Err(error) = registry().with(filter).with(lines).try_init() {
        tracing::debug!("logging was started before: {error}");
    }
    flush
}

/// Text lines, which name the request they are about where there is one.
struct Text(Format);

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut begun = Ok(());
        // an access record names its request by itself
        if event.metadata().target() != "access" {
            with_current_request_id(|id| begun = write!(writer, "request_id={id} "));
        }
        begun.and_then(|()| self.0.format_event(context, writer, event))
    }
}

impl<'a> MakeWriter<'a> for Batches {
    type Writer = TextWriter<'a>;

    fn make_writer(&'a self) -> TextWriter<'a> {
        TextWriter(self)
    }
}

/// Takes whole lines.
struct TextWriter<'a>(&'a Batches);

impl io::Write for TextWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line, false);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
