//! The verdict as a table.

use std::fmt::Write as _;

use crate::verdict::{Limit, Verdict};

/// What the checks failed on, and all rows, under a title.
#[must_use]
pub(crate) fn print(title: &str, verdict: &Verdict) -> String {
    let mut text = String::new();
    // writing to a text cannot fail
    let _ok = writeln!(text, "\n{title}\n");
    for (name, value) in &verdict.facts {
        let _ok = writeln!(text, "  {name:<42} {value}");
    }
    let _ok = writeln!(text);
    for check in &verdict.checks {
        let wanted = match check.limit {
            Limit::None => "0".to_owned(),
            Limit::Floor(floor) => format!(">= {floor}"),
        };
        let result = if check.holds() { "ok" } else { "FAILED" };
        let found = check.found;
        let name = check.name;
        let _ok = writeln!(text, "  {name:<42} {found:>8} {wanted:>9}  {result}");
        for example in &check.examples {
            let _ok = writeln!(text, "      {example}");
        }
    }
    let (passed, failed) = verdict.score();
    let _ok = writeln!(text, "\n{passed} passed, {failed} failed, 0 skipped");
    text
}
