//! What the fuzz targets call. The checks themselves live beside the tests that replay the corpora,
//! so that both run the same code.

#[path = "../../crates/frame/tests/fuzz/checks/mod.rs"]
mod checks;
#[path = "../../crates/streamlog/tests/fuzz/check.rs"]
mod event_ids;
#[rustfmt::skip] // its own tests are not beside this path
#[path = "../../crates/frame/src/simd.rs"]
mod simd;

/// Frames and the walkers over them.
pub fn scanner(data: &[u8]) {
    checks::scanner::check(data);
}

/// What policy reads, against serde_json.
pub fn reading(data: &[u8]) {
    checks::reading::check(data);
}

/// Event streams cut at every byte.
pub fn sse_parser(data: &[u8]) {
    checks::sse_parser::check(data);
}

/// Event streams that we write.
pub fn sse_encoder(data: &[u8]) {
    checks::sse_encoder::check(data);
}

/// Control headers, encoded values, agreement with the body.
pub fn header(data: &[u8]) {
    checks::header::check(data);
}

/// Edits of a message.
pub fn splice(data: &[u8]) {
    checks::splice::check(data);
}

/// Batches.
pub fn batch(data: &[u8]) {
    checks::batch::check(data);
}

/// Event ids.
pub fn event_ids(data: &[u8]) {
    event_ids::check(data);
}

/// The vector loop, its safe twin and a plain search, at every alignment and from every place.
pub fn simd(data: &[u8]) {
    let stop = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    for skipped in 0..data.len().min(17) {
        let bytes = &data[skipped..];
        for from in 0..=bytes.len().min(64) {
            let plain = bytes[from..].iter().position(stop);
            let expected = plain.map_or(bytes.len(), |at| from + at);
            assert_eq!(simd::string_stop(bytes, from), expected);
            assert_eq!(simd::string_stop_safe(bytes, from), expected);
        }
    }
}
