//! The configuration after every check: values that cannot be wrong, with every default filled in.
//!
//! Secrets are [`Secret`]s and show nothing in `Debug`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;
use url::Url;
use vestibule_terms::plan::Origins;
use vestibule_terms::{Secret, ServerId, ServerPlan, TenantId, UpstreamId};

pub use crate::scalar::Rate;

/// The whole configuration.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The data listener.
    pub listen: Listen,
    /// The admin listener.
    pub admin: Admin,
    /// Limits before authentication.
    pub limits: Limits,
    /// Where state is kept.
    pub store: Store,
    /// Sealing keys; empty: one is made at start.
    pub sealing: Sealing,
    /// Where the gateway may connect to.
    pub egress: Egress,
    /// How a stop is spread out.
    pub shutdown: Shutdown,
    /// Logs and the metrics listener.
    pub telemetry: Telemetry,
    /// Tenants, ordered by id.
    pub tenants: Vec<TenantChecked>,
    /// What is allowed and should be known, one line each with its place.
    pub warnings: Vec<String>,
}

/// The data listener.
#[derive(Debug, Clone)]
pub struct Listen {
    /// Where to bind.
    pub address: SocketAddr,
    /// Base of every resource identifier.
    pub public_url: Option<Url>,
    /// Certificate files, when it serves https.
    pub tls: Option<TlsFiles>,
    /// Largest request body in bytes.
    pub max_body: usize,
    /// Names accepted in Host, lower case, without port: configured or the default for the address.
    pub hosts: Vec<String>,
    /// Who may speak for the client's address.
    pub proxies: Proxies,
}

/// Certificate and key, PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Trusted proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxies {
    /// Their networks; empty: the peer is the client.
    pub trusted: Vec<IpNet>,
    /// The header they write.
    pub header: ProxyHeader,
}

/// The header in which proxies name the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// The admin listener.
#[derive(Debug, Clone)]
pub struct Admin {
    /// Where to bind.
    pub address: SocketAddr,
    /// Names accepted in Host, lower case, without port.
    pub hosts: Vec<String>,
    /// Certificate files, when it serves https.
    pub tls: Option<TlsFiles>,
    /// Whether an address that is not loopback may do without TLS.
    pub insecure: bool,
}

/// Limits before authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Per client address; absent when `off`.
    pub address: Option<AddressLimits>,
}

/// What one client address may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressLimits {
    /// Requests.
    pub rate: Rate,
    /// How many of them at once; at least 1.
    pub burst: u32,
    /// Connections.
    pub connections: u32,
}

/// Where state is kept.
#[derive(Debug, Clone)]
pub enum Store {
    /// In this process's memory, gone with it.
    Memory,
    /// On this process's own disk.
    Embedded {
        /// The folder.
        path: PathBuf,
        /// When what was written is forced to the disk.
        fsync: Fsync,
    },
    /// On a server that several processes share.
    Redis {
        /// Where; it may hold a password.
        url: Secret<String>,
        /// PEM of the authorities that TLS accepts, where they are not the machine's.
        ca: Option<PathBuf>,
    },
}

/// Two configurations are compared at every reload; nobody learns the time it took.
impl PartialEq for Store {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Store::Memory, Store::Memory) => true,
            (Store::Embedded { path, fsync }, Store::Embedded { path: p, fsync: f }) => {
                path == p && fsync == f
            }
            (Store::Redis { url, ca }, Store::Redis { url: u, ca: c }) => {
                url.expose() == u.expose() && ca == c
            }
            (Store::Memory | Store::Embedded { .. } | Store::Redis { .. }, _) => false,
        }
    }
}

impl Eq for Store {}

/// When what was written is forced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before a client sees it.
    Always,
    /// Every 100 ms.
    Interval,
    /// When the operating system does it.
    Never,
}

/// Sealing keys; the first seals, the others still open.
#[derive(Debug, Clone, Default)]
pub struct Sealing {
    /// In the order of the file.
    pub keys: Vec<SealingKey>,
}

/// One sealing key.
#[derive(Debug, Clone)]
pub struct SealingKey {
    /// Its name.
    pub id: String,
    /// Its bytes.
    pub secret: Secret<[u8; 32]>,
}

/// Where the gateway may connect to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egress {
    /// Private destinations that are allowed.
    pub private: Vec<Destination>,
    /// Destinations reached without TLS.
    pub http: Vec<Destination>,
    /// Destinations never reached.
    pub deny: Vec<Destination>,
}

/// A network or a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A network of addresses.
    Network(IpNet),
    /// A lower-case host name, or `*.` and one, which matches every name below it.
    Name(String),
}

/// How a stop is spread out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// Requests are served for so long while readiness already fails.
    pub delay: Duration,
    /// Longest drain after that.
    pub grace: Duration,
}

/// Logs and the metrics listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Telemetry {
    /// Form of the log lines.
    pub log: LogFormat,
    /// The third listener, if any.
    pub address: Option<SocketAddr>,
}

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// One tenant.
#[derive(Debug, Clone)]
pub struct TenantChecked {
    /// Its id.
    pub id: TenantId,
    /// How its callers authenticate.
    pub auth: TenantAuth,
    /// Its API keys, ordered by id; empty when `auth` is [`TenantAuth::None`].
    pub keys: Vec<ApiKey>,
    /// Accepted browser origins, the same as in every plan of the tenant.
    pub origins: Origins,
    /// Its budgets.
    pub limits: TenantLimits,
    /// What a stream does when its log fails.
    pub resume: Resume,
    /// Whether payloads are sealed in the shared store.
    pub store_encryption: bool,
    /// Whether the transport of 2024-11-05 is offered, the same as in every plan of the tenant.
    pub http_sse: bool,
    /// Its upstreams, ordered by id.
    pub upstreams: Vec<UpstreamChecked>,
    /// Its servers, ordered by id; `default` is always among them.
    pub servers: Vec<ServerPlan>,
}

/// How callers of a tenant authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantAuth {
    /// Open to everyone.
    None,
    /// API keys.
    Keys,
}

/// What a stream does when its log fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// It is held, then closed: nothing is sent that cannot be resumed.
    Required,
    /// It goes on live.
    BestEffort,
    /// Streams are never resumable.
    Off,
}

/// One API key of a tenant.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// Its id in the tenant, the middle part of the key.
    pub id: String,
    /// How the key is recognised.
    pub credential: Credential,
    /// Hash of the key before the last rotation, and until when (milliseconds) it is accepted.
    pub previous: Option<([u8; 32], u64)>,
    /// Who the caller is.
    pub subject: String,
    /// Groups of the caller.
    pub groups: Vec<String>,
    /// Scopes of the caller.
    pub scopes: Vec<String>,
    /// The only servers this key opens; empty: all of the tenant.
    pub servers: Vec<ServerId>,
    /// From when (milliseconds since the epoch) it is refused.
    pub expires: Option<u64>,
}

/// How an API key is recognised.
#[derive(Debug, Clone)]
pub enum Credential {
    /// The whole key, to be hashed by whoever keeps it.
    Key(Secret<String>),
    /// SHA-256 of the whole key.
    Sha256([u8; 32]),
}

/// Budgets of a tenant and of each caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantLimits {
    /// The whole tenant.
    pub tenant: Budget,
    /// Each caller.
    pub principal: Budget,
}

/// One budget; 0 means none allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Requests.
    pub rate: Rate,
    /// How many of them at once.
    pub burst: u32,
    /// POST requests being answered at once.
    pub in_flight: u32,
    /// GET streams open at once.
    pub streams: u32,
}

/// One upstream.
#[derive(Debug, Clone)]
pub struct UpstreamChecked {
    /// Its id.
    pub id: UpstreamId,
    /// How it is reached.
    pub reach: Reach,
    /// Which era it speaks.
    pub era: EraChoice,
    /// Its clocks.
    pub timeouts: Timeouts,
    /// Largest message accepted from it, in bytes.
    pub max_response: usize,
    /// Most sessions or processes of one caller; at least 1.
    pub max_sessions: u32,
}

/// How an upstream is reached.
#[derive(Debug, Clone)]
pub enum Reach {
    /// Over HTTP.
    Http {
        /// Its MCP endpoint.
        url: Url,
        /// Whether `url` names a literal loopback address, which the operator's own file may.
        loopback: bool,
        /// Headers sent with every request.
        headers: Vec<(HeaderName, Secret<String>)>,
        /// Which transport.
        transport: Transport,
    },
    /// As a child process that speaks on its standard input and output.
    Command {
        /// Program and arguments; never empty.
        command: Vec<String>,
        /// Its environment, besides PATH, HOME, LANG and TZ.
        env: Vec<(String, Secret<String>)>,
        /// Its working directory.
        cwd: PathBuf,
    },
}

/// Which transport an upstream speaks over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Found out by asking.
    Auto,
    /// Streamable HTTP.
    StreamableHttp,
}

/// Which era an upstream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EraChoice {
    /// Found out by asking.
    Auto,
    /// 2026-07-28 and later.
    Modern,
    /// 2025-11-25 and earlier.
    Legacy,
}

/// Clocks of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// Longest silence of a call.
    pub idle: Duration,
    /// End of a call, whatever happens.
    pub total: Duration,
}
