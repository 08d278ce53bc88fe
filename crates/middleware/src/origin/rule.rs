//! The two comparisons, as pure functions.

use vestibule_terms::plan::Origins;

/// Whether `host` (a value of Host, with or without port) names one of `hosts`.
pub fn is_listed_host(host: &str, hosts: &[String]) -> bool {
    let Some(name) = without_port(host) else {
        return false;
    };
    hosts.iter().any(|listed| name.eq_ignore_ascii_case(listed))
}

/// The name of `name[:port]`; absent when it is not of that form.
fn without_port(host: &str) -> Option<&str> {
    // An address of IPv6 has colons of its own, inside brackets.
    let end = if host.starts_with('[') {
        host.find(']')? + 1
    } else {
        host.find(':').unwrap_or(host.len())
    };
    let (name, port) = host.split_at_checked(end)?;
    let Some(port) = port.strip_prefix(':') else {
        return port.is_empty().then_some(name);
    };
    let is_port = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    is_port.then_some(name)
}

/// Whether `origin`, as sent, is one of `origins`: scheme, host and port are compared after
/// parsing, and nothing else may stand in it. `null` has no host and is never one.
pub fn is_allowed_origin(origin: &str, origins: &Origins) -> bool {
    let Some(parsed) = parse(origin) else {
        return false;
    };
    let serialised = parsed.origin().ascii_serialization();
    if origins.listed.contains(&serialised) {
        return true;
    }
    origins.loopback
        && matches!(parsed.scheme(), "http" | "https")
        && matches!(parsed.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

fn parse(origin: &str) -> Option<url::Url> {
    let (_, rest) = origin.split_once("://")?;
    // The parser forgives far more than a browser sends: user names, backslashes, paths, spaces.
    let bare = rest
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':' | b'[' | b']' | b'_'));
    if rest.is_empty() || !bare {
        return None;
    }
    let parsed = url::Url::parse(origin).ok()?;
    parsed.origin().is_tuple().then_some(parsed)
}
