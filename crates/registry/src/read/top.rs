//! The sections of the file beside `tenants`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use url::Url;

use super::{Item, Reader, Section, tenant};
use crate::checked::{
    AddressLimits, Admin, Checked, Destination, Egress, Fsync, Limits, Listen, LogFormat, Proxies,
    ProxyHeader, Rate, Sealing, SealingKey, Shutdown, Store, Telemetry, TlsFiles,
};
use crate::object;
use crate::scalar;
use crate::yaml::Node;

const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
const DEFAULT_MAX_BODY: usize = 4 << 20;

/// Reads the whole file.
pub(crate) fn file(reader: &mut Reader<'_>, root: &Node) -> Checked {
    let item = Item {
        path: String::new(),
        node: root,
    };
    let top = reader.section(&item, object::FILE);
    let listen = listen(reader, top.get("listen"));
    let egress = egress(reader, top.get("egress"));
    let admin = admin(reader, top.get("admin"));
    if listen.address == admin.address && listen.address.port() != 0 {
        let what = format!("{} is already the data plane's address", admin.address);
        reader.mistake(root.at, "admin.address", what);
    }
    let store = stored(reader, &top);
    let tenants = tenant::tenants(reader, top.get("tenants"), &listen, &egress);
    let sealed = tenants.iter().find(|tenant| tenant.store_encryption);
    if let (Some(tenant), false) = (sealed, matches!(store, Store::Redis { .. })) {
        let path = format!("tenants.{}.store_encryption", tenant.id);
        let what = "seals what is in a shared store; this one is not shared, encrypt its disk";
        reader.warn(root.at, &path, what);
    }
    Checked {
        admin,
        limits: limits(reader, top.get("limits")),
        store,
        sealing: sealing(reader, top.get("sealing")),
        shutdown: shutdown(reader, top.get("shutdown")),
        telemetry: telemetry(reader, top.get("telemetry")),
        tenants,
        listen,
        egress,
        warnings: Vec::new(),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_error| "is not an address and port such as 127.0.0.1:8080".to_owned())
}

fn listen(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Listen {
    let Some(item) = item else {
        return Listen {
            address: loopback(8080),
            public_url: None,
            tls: None,
            max_body: DEFAULT_MAX_BODY,
            hosts: default_hosts(loopback(8080).ip(), None),
            proxies: Proxies {
                trusted: Vec::new(),
                header: ProxyHeader::XForwardedFor,
            },
        };
    };
    let section = reader.section(&item, object::LISTEN);
    let address = reader.value_or(section.get("address"), loopback(8080), address);
    let public_url = section
        .get("public_url")
        .and_then(|item| reader.value(&item, public_url));
    let hosts = match section.get("hosts") {
        Some(item) => reader.list_of(Some(item), scalar::host_name),
        None => default_hosts(address.ip(), public_url.as_ref()),
    };
    if hosts.is_empty() {
        let what = "no name is accepted in Host, so every request gets 403: set listen.hosts or listen.public_url";
        reader.warn(section.at, "listen.hosts", what);
    }
    Listen {
        address,
        tls: tls(reader, section.get("tls")),
        max_body: reader.value_or(section.get("max_body"), DEFAULT_MAX_BODY, scalar::size),
        proxies: proxies(reader, section.get("proxies")),
        hosts,
        public_url,
    }
}

fn public_url(text: &str) -> Result<Url, String> {
    let url = scalar::http_url(text)?;
    if url.query().is_some() || url.path() != "/" {
        return Err("must be scheme, host and port alone".to_owned());
    }
    Ok(url)
}

fn default_hosts(ip: IpAddr, public_url: Option<&Url>) -> Vec<String> {
    let public = public_url.and_then(Url::host_str).map(str::to_owned);
    let names = LOOPBACK_NAMES.iter().map(|&name| name.to_owned());
    let mut hosts: Vec<String> = names.filter(|_name| ip.is_loopback()).collect();
    hosts.extend(public);
    hosts
}

fn tls(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Option<TlsFiles> {
    let section = reader.section(&item?, object::TLS);
    let certificate = readable(reader, &section, "certificate");
    let key = readable(reader, &section, "key");
    Some(TlsFiles {
        certificate: certificate?,
        key: key?,
    })
}

fn readable(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    key: &str,
) -> Option<std::path::PathBuf> {
    let Some(item) = section.get(key) else {
        reader.missing(section, key, &[]);
        return None;
    };
    let path = reader.path(&item)?;
    if let Err(error) = std::fs::File::open(&path) {
        let what = format!("{} cannot be read: {error}", path.display());
        reader.mistake(item.node.at, &item.path, what);
    }
    Some(path)
}

fn proxies(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Proxies {
    let none = Proxies {
        trusted: Vec::new(),
        header: ProxyHeader::XForwardedFor,
    };
    let Some(item) = item else { return none };
    let section = reader.section(&item, object::PROXIES);
    let headers = [
        ("x-forwarded-for", ProxyHeader::XForwardedFor),
        ("forwarded", ProxyHeader::Forwarded),
    ];
    Proxies {
        trusted: reader.list_of(section.get("trusted"), scalar::network),
        header: reader.choice(
            section.get("header"),
            none.header,
            &headers,
            &["proxy-protocol"],
        ),
    }
}

fn admin(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Admin {
    let default = loopback(8081);
    let Some(item) = item else {
        return Admin {
            address: default,
            hosts: default_hosts(default.ip(), None),
            tls: None,
            insecure: false,
        };
    };
    let section = reader.section(&item, object::ADMIN);
    let address_item = section.get("address");
    let at = address_item
        .as_ref()
        .map_or(section.at, |item| item.node.at);
    let address = reader.value_or(address_item, default, address);
    let tls_item = section.get("tls");
    let wants_tls = tls_item.is_some();
    let insecure = reader.value_or(section.get("insecure"), false, scalar::boolean);
    if !address.ip().is_loopback() && !wants_tls && !insecure {
        let what = "an address that is not loopback needs admin.tls or admin.insecure: true";
        reader.mistake(at, "admin.address", what);
    }
    if insecure && !address.ip().is_loopback() && !wants_tls {
        reader.warn(at, "admin.address", "the admin plane is open without TLS");
    }
    let hosts = match section.get("hosts") {
        Some(item) => reader.list_of(Some(item), scalar::host_name),
        None => default_hosts(address.ip(), None),
    };
    Admin {
        address,
        hosts,
        tls: tls(reader, tls_item),
        insecure,
    }
}

fn limits(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Limits {
    let default = AddressLimits {
        rate: Rate::per_second(2000),
        burst: 4000,
        connections: 4096,
    };
    let section = item.map(|item| reader.section(&item, object::LIMITS));
    let Some(item) = section.and_then(|section| section.get("address")) else {
        return Limits {
            address: Some(default),
        };
    };
    if matches!(&item.node.value, crate::yaml::Value::Scalar { text, .. } if text == "off") {
        return Limits { address: None };
    }
    let section = reader.section(&item, object::ADDRESS_LIMITS);
    let positive = |text: &str| match scalar::count(text)? {
        0 => Err("must be at least 1 (`address: off` lifts the limit)".to_owned()),
        count => Ok(count),
    };
    let positive_rate = |text: &str| match scalar::rate(text)? {
        Rate { count: 0, .. } => Err("must be more than 0".to_owned()),
        rate => Ok(rate),
    };
    Limits {
        address: Some(AddressLimits {
            rate: reader.value_or(section.get("rate"), default.rate, positive_rate),
            burst: reader.value_or(section.get("burst"), default.burst, positive),
            connections: reader.value_or(section.get("connections"), default.connections, positive),
        }),
    }
}

/// The store; one that is shared needs keys that are too.
fn stored(reader: &mut Reader<'_>, top: &Section<'_>) -> Store {
    let item = top.get("store");
    let at = item.as_ref().map_or(top.at, |item| item.node.at);
    let store = store(reader, item);
    let has_keys = top
        .get("sealing")
        .is_some_and(|item| reader.section(&item, object::SEALING).get("keys").is_some());
    if matches!(store, Store::Redis { .. }) && !has_keys {
        let what = "is needed with store.kind: redis, because every process has to open what \
                    another has sealed";
        reader.mistake(at, "sealing.keys", what);
    }
    store
}

fn store(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Store {
    let section = item.map(|item| reader.section(&item, object::STORE));
    let get = |key| section.as_ref().and_then(|section| section.get(key));
    let kinds = [("embedded", false), ("redis", true)];
    let is_redis = reader.choice(get("kind"), false, &kinds, &[]);
    let foreign: &[&str] = if is_redis {
        &["path", "fsync"]
    } else {
        &["url", "ca"]
    };
    for &key in foreign {
        if let Some(item) = get(key) {
            let kind = if is_redis { "embedded" } else { "redis" };
            let what = format!("belongs to kind: {kind}");
            reader.mistake(item.node.at, &item.path, what);
        }
    }
    if let Some(section) = section.as_ref().filter(|_| is_redis) {
        return redis(reader, section);
    }
    let rules = [
        ("always", Fsync::Always),
        ("100ms", Fsync::Interval),
        ("never", Fsync::Never),
    ];
    let fsync = reader.choice(get("fsync"), Fsync::Always, &rules, &[]);
    let path = match get("path") {
        None => reader.beside("vestibule-data"),
        Some(item) if reader.text(&item).as_deref() == Some("none") => return Store::Memory,
        Some(item) => match reader.path(&item) {
            Some(path) => path,
            None => return Store::Memory, // a mistake, and noted
        },
    };
    Store::Embedded { path, fsync }
}

fn redis(reader: &mut Reader<'_>, section: &Section<'_>) -> Store {
    let Some(item) = section.get("url") else {
        reader.missing(section, "url", &[]);
        return Store::Memory;
    };
    let url = reader.secret(&item);
    let wrong = url
        .as_ref()
        .and_then(|url| vestibule_store::redis::flaw(url.expose()));
    if let Some(what) = wrong {
        reader.mistake(item.node.at, &item.path, what);
    }
    let ca = section
        .get("ca")
        .and_then(|_| readable(reader, section, "ca"));
    match url {
        Some(url) => Store::Redis { url, ca },
        None => Store::Memory, // a mistake, and noted
    }
}

fn sealing(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Sealing {
    let Some(item) = item else {
        return Sealing::default();
    };
    let section = reader.section(&item, object::SEALING);
    let mut keys: Vec<SealingKey> = Vec::new();
    for item in reader.list(section.get("keys")) {
        let section = reader.section(&item, object::SEALING_KEY);
        let id = match section.get("id") {
            Some(item) => reader.value(&item, sealing_id).map(|id| (id, item)),
            None => {
                reader.missing(&section, "id", &[]);
                None
            }
        };
        let secret = match section.get("secret") {
            Some(item) => reader.secret_32(&item),
            None => {
                reader.missing(&section, "secret", &[]);
                None
            }
        };
        let (Some((id, item)), Some(secret)) = (id, secret) else {
            continue;
        };
        if keys.iter().any(|key| key.id == id) {
            reader.mistake(item.node.at, &item.path, "another sealing key has this id");
        }
        keys.push(SealingKey { id, secret });
    }
    Sealing { keys }
}

fn sealing_id(text: &str) -> Result<String, String> {
    vestibule_store::is_key_id(text)
        .then(|| text.to_owned())
        .ok_or_else(|| "is not 1 to 8 letters and digits".to_owned())
}

fn egress(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Egress {
    let Some(item) = item else {
        return Egress::default();
    };
    let section = reader.section(&item, object::EGRESS);
    let destination = |text: &str| {
        scalar::network(text)
            .map(Destination::Network)
            .or_else(|_what| scalar::name_pattern(text).map(Destination::Name))
    };
    Egress {
        private: reader.list_of(section.get("private"), destination),
        http: reader.list_of(section.get("http"), destination),
        deny: reader.list_of(section.get("deny"), destination),
    }
}

fn shutdown(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Shutdown {
    let default = Shutdown {
        delay: Duration::from_secs(5),
        grace: Duration::from_secs(45),
    };
    let Some(item) = item else { return default };
    let section = reader.section(&item, object::SHUTDOWN);
    Shutdown {
        delay: reader.value_or(
            section.get("delay"),
            default.delay,
            scalar::duration_or_zero,
        ),
        grace: reader.value_or(section.get("grace"), default.grace, scalar::duration),
    }
}

fn telemetry(reader: &mut Reader<'_>, item: Option<Item<'_>>) -> Telemetry {
    let default = Telemetry {
        log: LogFormat::Text,
        address: None,
    };
    let Some(item) = item else { return default };
    let section = reader.section(&item, object::TELEMETRY);
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    Telemetry {
        log: reader.choice(section.get("log"), default.log, &formats, &[]),
        address: section
            .get("address")
            .and_then(|item| reader.value(&item, address)),
    }
}
