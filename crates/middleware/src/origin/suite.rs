//! T19 against the URL Standard's own test data: what a browser would make of each text, and what the
//! two rules that compare texts (origins and addresses) make of it.
//!
//! The data is not copied here: the package of the crate `url` brings it.

use std::path::PathBuf;

use serde_json::Value;
use vestibule_terms::plan::Origins;

use super::rule::is_allowed_origin;
use crate::route::address;

/// The data; none where cargo's sources are kept elsewhere.
fn data() -> Option<Vec<Value>> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir()?.join(".cargo"),
    };
    let sources = std::fs::read_dir(home.join("registry/src")).ok()?;
    let packages = sources
        .flatten()
        .filter_map(|source| std::fs::read_dir(source.path()).ok())
        .flat_map(std::iter::Iterator::flatten);
    let file = packages
        .filter(|package| package.file_name().to_string_lossy().starts_with("url-2."))
        .map(|package| package.path().join("tests/urltestdata.json"))
        .find(|file| file.is_file())?;
    let text = std::fs::read(file).ok()?;
    let all: Vec<Value> = serde_json::from_slice(&text).expect("the data is JSON");
    Some(all.into_iter().filter(Value::is_object).collect())
}

/// The data, or nothing to do: then it is said.
fn data_or_skip() -> Vec<Value> {
    let data = data();
    if data.is_none() {
        let strict = std::env::var_os("VESTIBULE_TEST_STRICT").is_some_and(|value| value == "1");
        assert!(!strict, "the sources of the crate `url` are not there");
        eprintln!("skipped: the sources of the crate `url` are not there");
    }
    data.unwrap_or_default()
}

fn text<'a>(entry: &'a Value, member: &str) -> &'a str {
    entry[member].as_str().unwrap_or_default()
}

fn only(origin: &str) -> Origins {
    Origins {
        listed: vec![origin.to_owned()],
        loopback: false,
    }
}

/// T19: whatever stands in `Origin`, it is accepted as the origin that a browser would take it for and
/// as no other; and nothing is accepted that is more than an origin, or none.
#[test]
fn t19_a_text_is_accepted_as_its_own_origin_only() {
    let data = data_or_skip();
    let mut origins: Vec<&str> = data.iter().map(|entry| text(entry, "origin")).collect();
    origins.retain(|origin| !origin.is_empty() && *origin != "null");
    let mut accepted = 0;
    for entry in data.iter().filter(|entry| entry["base"].is_null()) {
        let input = text(entry, "input");
        let extra = ["username", "password", "search", "hash"].map(|member| text(entry, member));
        let is_bare =
            extra.iter().all(|part| part.is_empty()) && matches!(text(entry, "pathname"), "" | "/");
        for origin in &origins {
            if !is_allowed_origin(input, &only(origin)) {
                continue;
            }
            accepted += 1;
            assert!(entry["failure"] != true, "{input:?} is no URL at all");
            assert!(is_bare, "{input:?} is more than an origin");
            assert_eq!(text(entry, "origin"), *origin, "{input:?}");
        }
        assert!(!is_allowed_origin(input, &only("null")), "{input:?}");
    }
    assert!(accepted > 0 || data.is_empty(), "nothing was compared");
}

/// ORG-01: every origin as browsers serialise it is accepted where it is listed; but for names with
/// signs that no domain has, which are refused.
#[test]
fn t19_org_01_serialised_origins_are_accepted_where_they_are_listed() {
    let data = data_or_skip();
    let (mut accepted, mut refused) = (0, 0);
    for entry in &data {
        let origin = text(entry, "origin");
        if origin.is_empty() || origin == "null" {
            continue;
        }
        let strange = |sign: char| !sign.is_ascii_alphanumeric() && !"-.:[]_/".contains(sign);
        let is_plain = !origin.contains(strange);
        assert_eq!(
            is_allowed_origin(origin, &only(origin)),
            is_plain,
            "{origin:?}"
        );
        let count = if is_plain {
            &mut accepted
        } else {
            &mut refused
        };
        *count += 1;
        assert!(!is_allowed_origin(origin, &Origins::default()));
    }
    assert!(
        accepted > 10 * refused || data.is_empty(),
        "{accepted}, {refused}"
    );
}

/// Case 137: a path that is an address is one to every reader of URLs, and the same one.
#[test]
fn t19_case_137_addresses_are_not_changed_by_parsing_them() {
    for entry in data_or_skip() {
        for rest in [text(&entry, "pathname"), text(&entry, "input")] {
            for path in [
                rest.to_owned(),
                format!("/mcp{rest}"),
                format!("/mcp/{rest}"),
            ] {
                if address(&path).is_none() {
                    continue;
                }
                let url = url::Url::parse(&format!("http://mcp.example{path}"));
                let url = url.unwrap_or_else(|error| panic!("{path:?}: {error}"));
                assert_eq!(url.path(), path);
                assert_eq!((url.query(), url.fragment()), (None, None), "{path:?}");
            }
        }
    }
}
