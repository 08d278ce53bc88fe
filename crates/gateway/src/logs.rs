//! Log lines go to stderr, as text for people or one JSON object a line; stdout carries only what
//! was asked for.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use vestibule_registry::checked::LogFormat;

/// The variable that names what is logged, in the filter syntax of `tracing`.
pub const FILTER_VARIABLE: &str = "VESTIBULE_LOG";

/// Starts logging for the whole process. A second call changes nothing.
///
/// `default` is the filter where the environment names none.
pub fn start(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| default.into());
    let lines = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => lines.with_target(true).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!("logging was started before: {error}");
    }
}
