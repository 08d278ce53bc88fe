//! The rules of the entrance, on a header map alone.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use vestibule_frame::head::{self as names, Head, PARAM_PREFIX, Problem};
use vestibule_terms::{Reject, Revision};

/// Largest value of one header (HDR-23): tokens of 9 KB are real.
const MAX_VALUE: usize = 24 * 1024;
/// Largest sum of all names and values.
const MAX_TOTAL: usize = 64 * 1024;

/// Everything that a later layer or room may want to read. The rest is dropped at the entrance, so
/// no header can switch anything that is not written here.
const KEPT: [&str; 20] = [
    "accept",
    "access-control-request-headers",
    "access-control-request-method",
    "authorization",
    "baggage",
    "content-encoding",
    "content-length",
    "content-type",
    "forwarded",
    "host",
    names::LAST_EVENT_ID,
    names::METHOD,
    names::NAME,
    names::PROTOCOL_VERSION,
    names::SESSION_ID,
    "origin",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-forwarded-for",
];

/// Headers whose repetition another stage refuses in its own words.
const LEFT_TO_OTHERS: [&str; 3] = ["authorization", "host", "origin"];

/// Checks the sizes of all headers.
pub(super) fn sizes(headers: &HeaderMap) -> Result<(), Reject> {
    let mut total = 0;
    for (name, value) in headers {
        if value.len() > MAX_VALUE {
            return Err(Reject::HeadersTooLarge);
        }
        total += name.as_str().len() + value.len();
    }
    if total > MAX_TOTAL {
        return Err(Reject::HeadersTooLarge);
    }
    Ok(())
}

/// T21: no control header stands twice or under an alias.
pub(super) fn single(headers: &HeaderMap, view: &Head) -> Result<(), Reject> {
    let fatal = view.findings.iter().find(|finding| {
        matches!(finding.problem, Problem::Repeated | Problem::Underscore)
            && !LEFT_TO_OTHERS.contains(&finding.header.as_str())
    });
    let Some(finding) = fatal else { return Ok(()) };
    Err(Reject::DuplicateHeader {
        name: canonical(&finding.header),
        modern: any_modern(headers),
    })
}

/// Whether any of the versions sent is a modern one.
fn any_modern(headers: &HeaderMap) -> bool {
    let values = headers.get_all(names::PROTOCOL_VERSION).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| text.split(','))
        .filter_map(|text| Revision::parse(text.trim()))
        .any(Revision::is_modern)
}

/// The control header that `header` is, or is an alias of.
fn canonical(header: &str) -> &'static str {
    let hyphens = header.replace('_', "-");
    if hyphens.starts_with(PARAM_PREFIX) {
        return "Mcp-Param-*";
    }
    let known = KEPT.iter().find(|name| **name == hyphens);
    known.copied().unwrap_or("control header")
}

/// Drops every header that is not in [`KEPT`] and every one that `Connection` names.
pub(super) fn strip(headers: &mut HeaderMap) {
    let hop: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value: &HeaderValue| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in hop {
        headers.remove(name);
    }
    let dropped: Vec<HeaderName> = headers
        .keys()
        .filter(|name| !is_kept(name.as_str()))
        .cloned()
        .collect();
    for name in dropped {
        headers.remove(name);
    }
}

fn is_kept(name: &str) -> bool {
    KEPT.contains(&name) || name.starts_with(PARAM_PREFIX)
}
