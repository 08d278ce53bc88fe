//! The corpus of the fuzz target for event ids, replayed as a plain test.

mod check;

use std::path::Path;

/// T49.
#[test]
fn t49_event_ids_on_their_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/event_ids");
    let mut inputs = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let data = std::fs::read(&path).expect("an input");
        let outcome = std::panic::catch_unwind(|| check::check(&data));
        assert!(outcome.is_ok(), "{} breaks the check", path.display());
        inputs += 1;
    }
    assert!(inputs >= 10, "{inputs} inputs");
}
