//! One upstream: how it is reached, how the gateway authenticates to it, its clocks and bounds.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use url::{Host, Url};
use vestibule_terms::{Secret, UpstreamId};

use super::{Item, Reader, Section};
use crate::checked::{Destination, Egress, EraChoice, Reach, Timeouts, Transport, UpstreamChecked};
use crate::object;
use crate::scalar;

const DEFAULT_MAX_RESPONSE: usize = 16 << 20;

/// Reads one upstream.
pub(crate) fn upstream(
    reader: &mut Reader<'_>,
    id: UpstreamId,
    item: &Item<'_>,
    egress: &Egress,
) -> Option<UpstreamChecked> {
    let section = reader.section(item, object::UPSTREAM);
    let reach = reach(reader, &section, egress);
    let eras = [
        ("auto", EraChoice::Auto),
        ("modern", EraChoice::Modern),
        ("legacy", EraChoice::Legacy),
    ];
    let later = ["per_call", "handle"];
    reader.choice(section.get("session_mode"), (), &[("pooled", ())], &later);
    let at_least_one = |text: &str| match scalar::count(text)? {
        0 => Err("must be at least 1".to_owned()),
        count => Ok(count),
    };
    Some(UpstreamChecked {
        era: reader.choice(section.get("era"), EraChoice::Auto, &eras, &[]),
        timeouts: timeouts(reader, &section),
        max_response: reader.value_or(
            section.get("max_response"),
            DEFAULT_MAX_RESPONSE,
            scalar::size,
        ),
        max_sessions: reader.value_or(section.get("max_sessions"), 8, at_least_one),
        id,
        reach: reach?,
    })
}

fn reach(reader: &mut Reader<'_>, section: &Section<'_>, egress: &Egress) -> Option<Reach> {
    for key in ["command", "env"] {
        if let Some(item) = section.get(key) {
            let seen = (item.node.at, item.path.clone());
            reader.starts_programs.get_or_insert(seen);
        }
    }
    match (section.get("url"), section.get("command")) {
        (Some(item), None) => {
            for key in ["env", "cwd"] {
                if let Some(item) = section.get(key) {
                    let what = "belongs to an upstream with `command`";
                    reader.mistake(item.node.at, &item.path, what);
                }
            }
            http(reader, section, &item, egress)
        }
        (None, Some(item)) => {
            for key in ["auth", "transport"] {
                if let Some(item) = section.get(key) {
                    let what = "belongs to an upstream with `url`";
                    reader.mistake(item.node.at, &item.path, what);
                }
            }
            command(reader, section, item)
        }
        (Some(_), Some(_)) | (None, None) => {
            let what = "exactly one of these is needed";
            reader.mistake_of(section.at, &section.path, what, &["url", "command"]);
            None
        }
    }
}

fn http(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    item: &Item<'_>,
    egress: &Egress,
) -> Option<Reach> {
    let transports = [
        ("auto", Transport::Auto),
        ("streamable-http", Transport::StreamableHttp),
    ];
    let transport = reader.choice(
        section.get("transport"),
        Transport::Auto,
        &transports,
        &["sse"],
    );
    let headers = headers(reader, section);
    let url = reader.value(item, scalar::http_url)?;
    let loopback = is_loopback(&url);
    if loopback {
        let what =
            "this upstream is reached at a loopback address, which the operator's own file may do";
        reader.warn(item.node.at, &item.path, what);
    } else if url.scheme() == "http" && !allowed_without_tls(&url, egress) {
        let what = "this upstream is reached without TLS and egress.http does not list it: every call will be refused";
        reader.warn(item.node.at, &item.path, what);
    }
    Some(Reach::Http {
        url,
        loopback,
        headers,
        transport,
    })
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(_)) | None => false,
    }
}

fn allowed_without_tls(url: &Url, egress: &Egress) -> bool {
    egress.http.iter().any(|destination| match destination {
        Destination::Network(network) => match url.host() {
            Some(Host::Ipv4(ip)) => network.contains(&std::net::IpAddr::V4(ip)),
            Some(Host::Ipv6(ip)) => network.contains(&std::net::IpAddr::V6(ip)),
            // Decided when the name is resolved.
            Some(Host::Domain(_)) => true,
            None => false,
        },
        Destination::Name(pattern) => match (url.host_str(), pattern.strip_prefix('*')) {
            (Some(host), Some(suffix)) => host.ends_with(suffix),
            (Some(host), None) => host == pattern,
            (None, _) => false,
        },
    })
}

fn headers(reader: &mut Reader<'_>, section: &Section<'_>) -> Vec<(HeaderName, Secret<String>)> {
    let Some(item) = section.get("auth") else {
        return Vec::new();
    };
    let auth = reader.section(&item, object::UPSTREAM_AUTH);
    let mut headers: Vec<(HeaderName, Secret<String>)> = Vec::new();
    for (key, item) in reader.map(auth.get("headers")) {
        let value = reader.secret(&item);
        let name = match header_name(&key.text) {
            Ok(name) => name,
            Err(what) => {
                reader.mistake(key.at, &item.path, what);
                continue;
            }
        };
        if headers.iter().any(|(other, _)| *other == name) {
            reader.mistake(key.at, &item.path, "this header stands here twice");
        }
        let Some(value) = value else { continue };
        if HeaderValue::from_str(value.expose()).is_err() {
            let what = "the value holds characters a header may not hold";
            reader.mistake(item.node.at, &item.path, what);
            continue;
        }
        headers.push((name, value));
    }
    headers
}

/// A header the operator may set: not one of those the gateway itself writes, and none that names
/// the caller (case 13).
fn header_name(text: &str) -> Result<HeaderName, String> {
    const EXACT: [&str; 14] = [
        "accept",
        "connection",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "last-event-id",
        "origin",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    const PREFIXES: [&str; 3] = ["content-", "mcp-", "x-forwarded-"];
    let name: HeaderName = text
        .parse()
        .map_err(|_error| "is not the name of a header".to_owned())?;
    let plain = name.as_str().replace('_', "-");
    let refused = EXACT.contains(&plain.as_str())
        || plain == "trailer"
        || PREFIXES.iter().any(|prefix| plain.starts_with(prefix));
    if refused {
        return Err(
            "may not be set: Host, Content-*, Transfer-Encoding, Connection, Cookie, Origin, Forwarded, X-Forwarded-*, Mcp-* and their like belong to the gateway"
                .to_owned(),
        );
    }
    Ok(name)
}

fn command(reader: &mut Reader<'_>, section: &Section<'_>, item: Item<'_>) -> Option<Reach> {
    let no_nul = |text: &str| match text.contains('\0') {
        true => Err("holds a NUL byte".to_owned()),
        false => Ok(text.to_owned()),
    };
    let (node, path) = (item.node, item.path.clone());
    let command = reader.list_of(Some(item), no_nul);
    if command.first().is_none_or(String::is_empty) {
        if matches!(node.value, crate::yaml::Value::Sequence(_)) {
            reader.mistake(node.at, &path, "must begin with the program to start");
        }
        return None;
    }
    let mut env = Vec::new();
    for (key, item) in reader.map(section.get("env")) {
        let named = !key.text.is_empty() && !key.text.contains(['=', '\0']);
        if !named {
            reader.mistake(
                key.at,
                &item.path,
                "is not the name of an environment variable",
            );
        }
        let value = environment_value(reader, &item);
        env.extend(value.map(|value| (key.text.clone(), value)));
    }
    let cwd = match section.get("cwd") {
        Some(item) => reader.path(&item)?,
        None => PathBuf::from("/"),
    };
    Some(Reach::Command { command, env, cwd })
}

/// A value of `env`: a secret that may be empty when written as a plain string.
fn environment_value(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<Secret<String>> {
    let empty = matches!(
        &item.node.value,
        crate::yaml::Value::Scalar { text, plain: false } if text.is_empty()
    );
    if empty {
        return Some(Secret::new(String::new()));
    }
    let value = reader.secret(item)?;
    if value.expose().contains('\0') {
        reader.mistake(item.node.at, &item.path, "the value holds a NUL byte");
        return None;
    }
    Some(value)
}

fn timeouts(reader: &mut Reader<'_>, upstream: &Section<'_>) -> Timeouts {
    let mut timeouts = Timeouts {
        connect: Duration::from_secs(5),
        idle: Duration::from_secs(60),
        total: Duration::from_secs(600),
    };
    let short = upstream.get("timeout");
    if let Some(item) = &short {
        timeouts.idle = reader
            .value(item, scalar::duration)
            .unwrap_or(timeouts.idle);
    }
    let mut at = short.as_ref().map(|item| item.node.at);
    if let Some(item) = upstream.get("timeouts") {
        at = Some(item.node.at);
        let section = reader.section(&item, object::TIMEOUTS);
        let idle = section.get("idle");
        if let (Some(_), Some(item)) = (&short, &idle) {
            let what = "`timeout` says the same; keep one of them";
            reader.mistake(item.node.at, &item.path, what);
        }
        timeouts = Timeouts {
            connect: reader.value_or(section.get("connect"), timeouts.connect, scalar::duration),
            idle: reader.value_or(idle, timeouts.idle, scalar::duration),
            total: reader.value_or(section.get("total"), timeouts.total, scalar::duration),
        };
    }
    if let Some(at) = at.filter(|_at| timeouts.idle > timeouts.total) {
        let path = format!("{}.timeouts", upstream.path);
        reader.mistake(
            at,
            &path,
            "idle is longer than total, so it would never end a call",
        );
    }
    timeouts
}
