//! What must hold for any input, one function a subject. The fuzz targets and the replay of their
//! corpora both call these; a check panics when its subject breaks a promise.

pub(crate) mod batch;
pub(crate) mod header;
pub(crate) mod reading;
pub(crate) mod scanner;
pub(crate) mod splice;
pub(crate) mod sse_encoder;
pub(crate) mod sse_parser;

use vestibule_frame::Span;

/// The bytes of a span; a span out of range ends the check.
fn slice(text: &[u8], span: Span) -> &[u8] {
    text.get(span.range()).expect("spans are in range")
}

/// JSON text without the whitespace around it.
fn trimmed(text: &[u8]) -> &[u8] {
    let space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    let start = text
        .iter()
        .position(|byte| !space(byte))
        .unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|byte| !space(byte))
        .map_or(start, |at| at + 1);
    text.get(start..end).expect("start is before end")
}
