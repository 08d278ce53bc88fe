//! One tenant: authentication, keys, limits, and the order in which its parts refer to each other
//! (upstreams, then servers, then keys).

use vestibule_terms::plan::{Origins, Visibility};
use vestibule_terms::{Secret, ServerId, TenantId};

use super::{Item, Reader, Section, server, upstream};
use crate::checked::{
    ApiKey, Budget, Credential, Egress, Listen, Rate, Resume, TenantAuth, TenantChecked,
    TenantLimits, UpstreamChecked,
};
use crate::object;
use crate::scalar;
use crate::yaml;

const TENANT_BUDGET: Budget = Budget {
    rate: Rate::per_second(500),
    burst: 1000,
    in_flight: 2000,
    streams: 5000,
};
const PRINCIPAL_BUDGET: Budget = Budget {
    rate: Rate::per_second(50),
    burst: 100,
    in_flight: 64,
    streams: 32,
};

/// Reads every tenant, ordered by id.
pub(crate) fn tenants(
    reader: &mut Reader<'_>,
    item: Option<Item<'_>>,
    listen: &Listen,
    egress: &Egress,
) -> Vec<TenantChecked> {
    let entries = reader.map(item);
    let mut tenants: Vec<TenantChecked> = Vec::new();
    for (key, item) in entries {
        let Some(id) = id(reader, key, &item.path, TenantId::new) else {
            continue;
        };
        tenants.push(tenant(reader, id, &item, listen, egress));
    }
    tenants.sort_by(|a, b| a.id.cmp(&b.id));
    tenants
}

/// The key of a map as an identifier.
pub(crate) fn id<T>(
    reader: &mut Reader<'_>,
    key: &yaml::Key,
    path: &str,
    new: impl Fn(&str) -> Result<T, vestibule_terms::id::InvalidId>,
) -> Option<T> {
    new(&key.text)
        .map_err(|error| reader.mistake(key.at, path, error.to_string()))
        .ok()
}

fn tenant(
    reader: &mut Reader<'_>,
    id: TenantId,
    item: &Item<'_>,
    listen: &Listen,
    egress: &Egress,
) -> TenantChecked {
    let section = reader.section(item, object::TENANT);
    let loopback = listen.address.ip().is_loopback();
    let auth = auth(reader, &section, loopback);
    let origins = origins(reader, section.get("origins"), loopback);
    let visibility = policy(reader, &section);
    let upstreams = upstreams(reader, section.get("upstreams"), egress);
    let http_sse = reader.value_or(section.get("http_sse"), true, scalar::boolean);
    let context = server::Context {
        tenant: &id,
        origins: &origins,
        visibility,
        http_sse,
        upstreams: &upstreams,
    };
    let servers = server::servers(reader, section.get("servers"), &context);
    let server_ids: Vec<ServerId> = servers.iter().map(|plan| plan.server.clone()).collect();
    let keys = keys(reader, &section, auth, &server_ids);
    TenantChecked {
        auth,
        keys,
        limits: limits(reader, section.get("limits")),
        resume: reader.choice(
            section.get("resume"),
            Resume::BestEffort,
            &[
                ("required", Resume::Required),
                ("best_effort", Resume::BestEffort),
                ("off", Resume::Off),
            ],
            &[],
        ),
        store_encryption: reader.value_or(section.get("store_encryption"), false, scalar::boolean),
        http_sse,
        origins,
        upstreams,
        servers,
        id,
    }
}

fn auth(reader: &mut Reader<'_>, tenant: &Section<'_>, loopback: bool) -> TenantAuth {
    let choices = ["none", "{ keys: true }"];
    let Some(item) = tenant.get("auth") else {
        reader.missing(tenant, "auth", &choices);
        return TenantAuth::Keys;
    };
    if let yaml::Value::Scalar { .. } = &item.node.value {
        if reader.text(&item).is_some_and(|text| text == "none") {
            if !loopback {
                let what = "this tenant is open to everyone who reaches the listener";
                reader.warn(item.node.at, &item.path, what);
            }
            return TenantAuth::None;
        }
        reader.mistake_of(
            item.node.at,
            &item.path,
            "is not a way to authenticate",
            &choices,
        );
        return TenantAuth::Keys;
    }
    let section = reader.section(&item, object::AUTH);
    if let Some(item) = section.get("keys")
        && reader.value(&item, scalar::boolean) == Some(false)
    {
        let what = "no other way to authenticate is available in this version";
        reader.mistake_of(item.node.at, &item.path, what, &["true"]);
    }
    TenantAuth::Keys
}

fn origins(reader: &mut Reader<'_>, item: Option<Item<'_>>, loopback: bool) -> Origins {
    Origins {
        loopback: loopback && item.is_none(),
        listed: reader.list_of(item, scalar::origin),
    }
}

fn policy(reader: &mut Reader<'_>, tenant: &Section<'_>) -> Visibility {
    let Some(item) = tenant.get("policy") else {
        let path = format!("{}.policy", tenant.path);
        let what = "there is no policy, so nobody sees anything; policy: allow_all shows everything to whoever is let in";
        reader.warn(tenant.at, &path, what);
        return Visibility::Nothing;
    };
    match reader.text(&item).as_deref() {
        Some("allow_all") => Visibility::Everything,
        Some(_) => {
            let what = "policy files are not available in this version";
            reader.mistake_of(item.node.at, &item.path, what, &["allow_all"]);
            Visibility::Nothing
        }
        None => Visibility::Nothing,
    }
}

fn upstreams(
    reader: &mut Reader<'_>,
    item: Option<Item<'_>>,
    egress: &Egress,
) -> Vec<UpstreamChecked> {
    let entries = reader.map(item);
    let mut upstreams = Vec::new();
    for (key, item) in entries {
        if let Some(id) = id(reader, key, &item.path, vestibule_terms::UpstreamId::new) {
            upstreams.extend(upstream::upstream(reader, id, &item, egress));
        }
    }
    upstreams.sort_by(|a, b| a.id.cmp(&b.id));
    upstreams
}

fn limits(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> TenantLimits {
    let Some(item) = item else {
        return TenantLimits {
            tenant: TENANT_BUDGET,
            principal: PRINCIPAL_BUDGET,
        };
    };
    let section = reader.section(&item, object::TENANT_LIMITS);
    TenantLimits {
        tenant: budget(reader, section.get("tenant"), TENANT_BUDGET),
        principal: budget(reader, section.get("principal"), PRINCIPAL_BUDGET),
    }
}

fn budget(reader: &mut Reader<'_>, item: Option<Item<'_>>, default: Budget) -> Budget {
    let Some(item) = item else { return default };
    let section = reader.section(&item, object::BUDGET);
    Budget {
        rate: reader.value_or(section.get("rate"), default.rate, scalar::rate),
        burst: reader.value_or(section.get("burst"), default.burst, scalar::count),
        in_flight: reader.value_or(section.get("in_flight"), default.in_flight, scalar::count),
        streams: reader.value_or(section.get("streams"), default.streams, scalar::count),
    }
}

// === API keys ===

fn keys(
    reader: &mut Reader<'_>,
    tenant: &Section<'_>,
    auth: TenantAuth,
    servers: &[ServerId],
) -> Vec<ApiKey> {
    let item = tenant.get("keys");
    if let (TenantAuth::None, Some(item)) = (auth, &item) {
        let what = "keys have no effect where auth is none";
        reader.mistake(item.node.at, &item.path, what);
        return Vec::new();
    }
    let entries = reader.map(item);
    if entries.is_empty() && auth == TenantAuth::Keys {
        let path = format!("{}.keys", tenant.path);
        reader.warn(tenant.at, &path, "there is no key, so nobody is let in");
    }
    let mut keys = Vec::new();
    for (key, item) in entries {
        if TenantId::new(&key.text).is_err() {
            let what = "a key id is 1 to 63 characters of a-z, 0-9 and -";
            reader.mistake(key.at, &item.path, what);
            continue;
        }
        keys.extend(api_key(reader, &key.text, &item, servers));
    }
    keys.sort_by(|a: &ApiKey, b| a.id.cmp(&b.id));
    keys
}

fn api_key(
    reader: &mut Reader<'_>,
    id: &str,
    item: &Item<'_>,
    servers: &[ServerId],
) -> Option<ApiKey> {
    let section = reader.section(item, object::API_KEY);
    let credential = credential(reader, id, &section);
    let previous = previous(reader, &section);
    let text = |text: &str| match text {
        "" => Err("must not be empty".to_owned()),
        text => Ok(text.to_owned()),
    };
    let names: Vec<&str> = servers.iter().map(ServerId::as_str).collect();
    let mut only = Vec::new();
    for item in reader.list(section.get("servers")) {
        let Some(name) = reader.text(&item) else {
            continue;
        };
        match servers.iter().find(|server| server.as_str() == name) {
            Some(server) => only.push(server.clone()),
            None => {
                let what = format!("there is no server `{name}`");
                reader.mistake_of(item.node.at, &item.path, what, &names);
            }
        }
    }
    if let Some(item) = section.get("servers")
        && matches!(&item.node.value, yaml::Value::Sequence(list) if list.is_empty())
    {
        let what = "an empty list would open no server; leave it out for all of them";
        reader.mistake_of(item.node.at, &item.path, what, &names);
    }
    Some(ApiKey {
        id: id.to_owned(),
        previous,
        subject: reader.value_or(section.get("subject"), id.to_owned(), text),
        groups: reader.list_of(section.get("groups"), text),
        scopes: reader.list_of(section.get("scopes"), text),
        servers: only,
        expires: section
            .get("expires")
            .and_then(|item| reader.value(&item, scalar::instant)),
        credential: credential?,
    })
}

fn credential(reader: &mut Reader<'_>, id: &str, section: &Section<'_>) -> Option<Credential> {
    match (section.get("secret"), section.get("sha256")) {
        (Some(item), None) => {
            let secret = reader.secret(&item)?;
            if !is_key(secret.expose(), id) {
                let what = format!(
                    "the whole key is vsk_{id}_ and 43 characters of base64url (A-Z a-z 0-9 - _)"
                );
                reader.mistake(item.node.at, &item.path, what);
                return None;
            }
            Some(Credential::Key(Secret::new(secret.expose().clone())))
        }
        (None, Some(item)) => Some(Credential::Sha256(reader.value(&item, sha256)?)),
        (Some(_), Some(_)) | (None, None) => {
            let what = "exactly one of these is needed";
            reader.mistake_of(section.at, &section.path, what, &["secret", "sha256"]);
            None
        }
    }
}

fn is_key(text: &str, id: &str) -> bool {
    let secret = text
        .strip_prefix("vsk_")
        .and_then(|rest| rest.strip_prefix(id))
        .and_then(|rest| rest.strip_prefix('_'));
    secret.is_some_and(|secret| {
        secret.len() == 43
            && secret
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    })
}

fn previous(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<([u8; 32], u64)> {
    match (
        section.get("previous_sha256"),
        section.get("previous_until"),
    ) {
        (Some(hash), Some(until)) => {
            let hash = reader.value(&hash, sha256);
            let until = reader.value(&until, scalar::instant);
            Some((hash?, until?))
        }
        (None, None) => None,
        (Some(_), None) => {
            reader.missing(section, "previous_until", &[]);
            None
        }
        (None, Some(_)) => {
            reader.missing(section, "previous_sha256", &[]);
            None
        }
    }
}

fn sha256(text: &str) -> Result<[u8; 32], String> {
    let what = || "is not 64 hexadecimal digits".to_owned();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return Err(what());
    }
    let mut hash = [0; 32];
    for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
        let value = digit(*high).zip(digit(*low)).ok_or_else(what)?;
        *byte = u8::try_from(value.0 * 16 + value.1).map_err(|_error| what())?;
    }
    Ok(hash)
}
