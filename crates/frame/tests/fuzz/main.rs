//! The corpora of the fuzz targets, replayed as plain tests. What a target once found stays in its
//! corpus, so it stays found; `fuzz/README.md` says how to look for more.

mod checks;

use std::path::Path;

/// Runs a check over the corpus of a target; gives the number of inputs.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let entries = std::fs::read_dir(folder.join(target)).expect("the corpus of the target");
    let mut inputs = 0;
    for entry in entries {
        let path = entry.expect("an entry").path();
        let data = std::fs::read(&path).expect("an input");
        let outcome = std::panic::catch_unwind(|| check(&data));
        assert!(outcome.is_ok(), "{} breaks {target}", path.display());
        inputs += 1;
    }
    assert!(inputs >= 10, "{target} has {inputs} inputs");
}

#[test]
fn scanner_on_its_corpus() {
    replay("scanner", checks::scanner::check);
}

/// T02, T03, case 98.
#[test]
fn t02_t03_case_98_reading_on_its_corpus() {
    replay("reading", checks::reading::check);
}

/// SSE-02.
#[test]
fn sse_02_parser_on_its_corpus() {
    replay("sse_parser", checks::sse_parser::check);
}

/// SSE-01, T13, T51.
#[test]
fn sse_01_t13_t51_encoder_on_its_corpus() {
    replay("sse_encoder", checks::sse_encoder::check);
}

/// HDR-16, HDR-17, XMH-05, T21.
#[test]
fn hdr_16_hdr_17_headers_on_their_corpus() {
    replay("header", checks::header::check);
}

/// FRM-24.
#[test]
fn frm_24_splice_on_its_corpus() {
    replay("splice", checks::splice::check);
}

/// BAT-01 to BAT-07.
#[test]
fn bat_01_batch_on_its_corpus() {
    replay("batch", checks::batch::check);
}
