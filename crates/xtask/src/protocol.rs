//! `docs/PROTOCOL.md` against the tests: every requirement id that a test cites has a row there,
//! and every row is cited by a test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Prefixes of requirement ids.
const PREFIXES: &[&str] = &[
    "APP", "AUT", "BAT", "CAN", "CAP", "CCH", "CMP", "ELI", "ERR", "EXT", "FRM", "GET", "HDR",
    "HSE", "HTR", "ICO", "JSC", "LIF", "LOG", "MET", "MRT", "OCL", "ORG", "PAG", "PMT", "PNG",
    "PRG", "RES", "ROO", "RSC", "SAM", "SEC", "SES", "SSE", "STA", "STD", "SUB", "TOL", "TSK",
    "TSX", "VER", "XMH",
];

/// Compares both directions.
pub(crate) fn check(root: &Path) -> Result<String> {
    let page = root.join("docs/PROTOCOL.md");
    let text = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let rows: BTreeSet<String> = text.lines().filter_map(row).collect();
    let mut cited: BTreeMap<String, String> = BTreeMap::new();
    for path in crate::sources(&root.join("crates"))? {
        let source = std::fs::read_to_string(&path)?;
        let shown = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .display()
            .to_string();
        for id in citations(&source) {
            cited.entry(id).or_insert_with(|| shown.clone());
        }
    }
    let mut wrong: Vec<String> = Vec::new();
    for (id, place) in cited.iter().filter(|(id, _)| !rows.contains(*id)) {
        wrong.push(format!(
            "{id} is cited by a test in {place} and has no row in docs/PROTOCOL.md"
        ));
    }
    for id in rows.iter().filter(|id| !cited.contains_key(*id)) {
        wrong.push(format!(
            "docs/PROTOCOL.md has a row for {id}, which no test cites"
        ));
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(format!(
        "protocol: {} requirement ids, each with a row and a test",
        rows.len()
    ))
}

/// The id of a table row of the page: `| FRM-01 | …`.
fn row(line: &str) -> Option<String> {
    let first = line.strip_prefix("| ")?.split(" |").next()?.trim();
    is_id(first).then(|| first.to_owned())
}

/// Ids that tests of this source cite: in a test's name (`frm_04_…`) or in the comment lines and
/// attributes directly above it.
fn citations(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut above: Vec<&str> = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("///") {
            above.push(line);
        } else if line.starts_with("#[") {
            is_test |= line.contains("test") && !line.contains("cfg(test)");
        } else {
            if is_test && let Some(name) = function(line) {
                found.extend(above.iter().flat_map(|comment| ids(comment)));
                found.extend(ids_of_name(name));
            }
            let continues = line.is_empty() || line == ")]" || line.starts_with("//");
            if !continues {
                above.clear();
                is_test = false;
            }
        }
    }
    found
}

fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split('(').next()
}

fn ids_of_name(name: &str) -> Vec<String> {
    let parts: Vec<&str> = name.split('_').collect();
    let pairs = parts.iter().zip(parts.iter().skip(1));
    pairs
        .map(|(prefix, number)| format!("{}-{number}", prefix.to_uppercase()))
        .filter(|id| is_id(id))
        .collect()
}

fn ids(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| is_id(word))
        .map(str::to_owned)
        .collect()
}

fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(prefix, number)| {
        PREFIXES.contains(&prefix)
            && number.len() == 2
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_names_and_comments_of_tests_only() {
        let source = "
            /// FRM-01, HDR-10: both.
            #[test]
            fn sta_12_sta_13_something() {}
            /// SES-01: not a test.
            fn helper() {}
            #[tokio::test(start_paused = true)]
            async fn bat_03_empty() {}
        ";
        let found: Vec<String> = citations(source).into_iter().collect();
        assert_eq!(found, ["BAT-03", "FRM-01", "HDR-10", "STA-12", "STA-13"]);
    }

    #[test]
    fn rows_are_table_lines_that_begin_with_an_id() {
        assert_eq!(
            row("| FRM-01 | every message | … |").as_deref(),
            Some("FRM-01")
        );
        assert_eq!(row("| id | clause |"), None);
        assert_eq!(row("FRM-01"), None);
    }
}
