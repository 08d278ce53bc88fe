//! The keys of every object of the configuration: name, default and meaning, one table an object.
//!
//! The readers take the valid names from here, so a key that is not in its table cannot be read
//! and one that is cannot be forgotten: a test reads a file that uses every one of them. Keys that
//! the contract names and this version does not serve stand at the end of each table; using one is
//! a mistake that says so.

/// One key of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// As written in the file.
    pub name: &'static str,
    /// What holds without it; empty when it must be given.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Whether this version serves it.
    pub served: bool,
}

const fn key(name: &'static str, default: &'static str, about: &'static str) -> Key {
    Key {
        name,
        default,
        about,
        served: true,
    }
}

const fn later(name: &'static str) -> Key {
    Key {
        name,
        default: "",
        about: "not available in this version",
        served: false,
    }
}

/// The file itself.
pub const FILE: &[Key] = &[
    key("listen", "127.0.0.1:8080", "The address clients reach."),
    key("admin", "127.0.0.1:8081", "The address operators reach."),
    key(
        "limits",
        "see limits.address",
        "Limits before authentication.",
    ),
    key(
        "store",
        "embedded, ./vestibule-data",
        "Where state is kept.",
    ),
    key(
        "sealing",
        "a key made at the first start",
        "Keys that seal what leaves the process.",
    ),
    key(
        "egress",
        "public addresses over https",
        "Where the gateway may connect to.",
    ),
    key("shutdown", "5s, then 45s", "How a stop is spread out."),
    key("telemetry", "text logs", "Logs and the metrics listener."),
    key("tenants", "none", "The tenants, by id."),
];

/// `listen`.
pub const LISTEN: &[Key] = &[
    key(
        "address",
        "127.0.0.1:8080",
        "Address and port; port 0 takes any free one.",
    ),
    key(
        "public_url",
        "none",
        "Base of every resource identifier; its host is accepted in Host.",
    ),
    key("tls", "none", "Certificate and key to serve https with."),
    key("max_body", "4MiB", "Largest request body; above it 413."),
    key(
        "hosts",
        "public_url's host, and loopback names on a loopback address",
        "Names accepted in Host; others get 403.",
    ),
    key(
        "proxies",
        "none trusted",
        "Whose word about the client's address counts.",
    ),
];

/// `listen.tls` and `admin.tls`.
pub const TLS: &[Key] = &[
    key("certificate", "", "PEM file with the certificate chain."),
    key("key", "", "PEM file with the private key."),
];

/// `listen.proxies`.
pub const PROXIES: &[Key] = &[
    key(
        "trusted",
        "none",
        "Networks of the proxies before the gateway.",
    ),
    key("header", "x-forwarded-for", "x-forwarded-for or forwarded."),
];

/// `admin`.
pub const ADMIN: &[Key] = &[
    key(
        "address",
        "127.0.0.1:8081",
        "Address and port; port 0 takes any free one.",
    ),
    key(
        "hosts",
        "loopback names on a loopback address",
        "Names accepted in Host under /admin/.",
    ),
    key("tls", "none", "Certificate and key to serve https with."),
    key(
        "insecure",
        "false",
        "Allows an address that is not loopback without TLS.",
    ),
    later("keys"),
    later("oidc"),
    later("enabled"),
];

/// `limits`.
pub const LIMITS: &[Key] = &[key(
    "address",
    "2000/s, burst 4000, 4096 connections",
    "Per client address; `off` is possible.",
)];

/// `limits.address`.
pub const ADDRESS_LIMITS: &[Key] = &[
    key("rate", "2000/s", "Requests of one client address."),
    key("burst", "4000", "How many of them at once."),
    key("connections", "4096", "Connections of one client address."),
];

/// `store`.
pub const STORE: &[Key] = &[
    key(
        "kind",
        "embedded",
        "`embedded`: on this process's disk. `redis`: Redis 7 or later, or Valkey, shared by any \
         number of processes that stand in for each other.",
    ),
    key(
        "path",
        "./vestibule-data",
        "The folder in which sessions, streams and a sealing key outlive the process; one process \
         at a time. `none` keeps everything in memory.",
    ),
    key(
        "fsync",
        "always",
        "When what was written is forced to the disk. A process that is killed loses nothing a \
         client has seen in any case; a power failure loses nothing with `always`, the last 100 ms \
         with `100ms`, more with `never`, and with either of these all of it if it leaves the file \
         unusable.",
    ),
    key(
        "url",
        "",
        "Of `redis`: redis://host:6379, rediss:// for TLS; redis-sentinel://host:26379,…/master-name; \
         redis-cluster://host:6379,…; each may carry user:password@. A secret: may be `from_env` or \
         `from_file`.",
    ),
    key(
        "ca",
        "the machine's certificates",
        "Of `redis`: PEM file of the authorities that TLS accepts.",
    ),
];

/// `sealing`.
pub const SEALING: &[Key] = &[key(
    "keys",
    "one made at the first start, kept in sealing.key of store.path",
    "The first seals, the others still open.",
)];

/// One of `sealing.keys`.
pub const SEALING_KEY: &[Key] = &[
    key("id", "", "Name of the key, as handles carry it."),
    key("secret", "", "32 random bytes in base64."),
];

/// `egress`.
pub const EGRESS: &[Key] = &[
    key(
        "private",
        "none",
        "Private networks, and names that may resolve to private addresses.",
    ),
    key("http", "none", "Names and networks reached without TLS."),
    key("deny", "none", "Networks and names never reached."),
];

/// `shutdown`.
pub const SHUTDOWN: &[Key] = &[
    key(
        "delay",
        "5s",
        "Requests are still served for so long after SIGTERM.",
    ),
    key("grace", "45s", "Longest drain after that."),
];

/// `telemetry`.
pub const TELEMETRY: &[Key] = &[
    key("log", "text", "text or json."),
    key(
        "address",
        "none",
        "A third listener for /metrics, /livez and /readyz alone.",
    ),
    later("otlp"),
];

/// One of `tenants`.
pub const TENANT: &[Key] = &[
    key(
        "auth",
        "",
        "How callers authenticate: none, or { keys: true }.",
    ),
    key("keys", "none", "API keys, by id."),
    key(
        "origins",
        "none; on a loopback address every loopback origin",
        "Browser origins that may call.",
    ),
    key(
        "limits",
        "see limits.tenant and limits.principal",
        "Budgets of the tenant and of each caller.",
    ),
    key("policy", "none: nobody sees anything", "allow_all."),
    key(
        "resume",
        "best_effort",
        "required, best_effort or off: what a stream does when its log fails.",
    ),
    key(
        "store_encryption",
        "false",
        "Whether events and answers are sealed in the shared store, with a key of the tenant.",
    ),
    key(
        "http_sse",
        "true",
        "Whether the HTTP+SSE transport of 2024-11-05 is offered on the same addresses.",
    ),
    key(
        "upstreams",
        "none",
        "The MCP servers behind the gateway, by id.",
    ),
    key(
        "servers",
        "default: every upstream, federated",
        "The servers clients see, by id.",
    ),
    later("audience"),
    later("audit"),
    later("delegate"),
    later("egress"),
    later("tap_reveal"),
];

/// `tenants.<t>.auth`, when it is not `none`.
pub const AUTH: &[Key] = &[
    key("keys", "true", "API keys are accepted."),
    later("oauth"),
    later("claims"),
    later("mtls"),
];

/// One of `tenants.<t>.keys`.
pub const API_KEY: &[Key] = &[
    key(
        "secret",
        "",
        "The whole key, vsk_<id>_<43 characters of base64url>; or its hash, below.",
    ),
    key(
        "sha256",
        "",
        "SHA-256 of the whole key in hex, instead of the key.",
    ),
    key(
        "previous_sha256",
        "none",
        "Hash of the key before the last rotation.",
    ),
    key(
        "previous_until",
        "",
        "Until when the previous key is accepted.",
    ),
    key("subject", "the key's id", "Who the caller is."),
    key("groups", "none", "Groups of the caller, for policy."),
    key("scopes", "none", "Scopes of the caller."),
    key(
        "servers",
        "all of the tenant",
        "The only servers this key opens.",
    ),
    key(
        "expires",
        "never",
        "A date or a time in UTC from which the key is refused.",
    ),
];

/// `tenants.<t>.limits`.
pub const TENANT_LIMITS: &[Key] = &[
    key(
        "tenant",
        "500/s, burst 1000, 2000 in flight, 5000 streams",
        "The whole tenant.",
    ),
    key(
        "principal",
        "50/s, burst 100, 64 in flight, 32 streams",
        "Each caller.",
    ),
    later("upstreams"),
    later("tools"),
    later("stored"),
];

/// `tenants.<t>.limits.tenant` and `….principal`.
pub const BUDGET: &[Key] = &[
    key("rate", "500/s; principal 50/s", "Requests; 0 means none."),
    key("burst", "1000; principal 100", "How many of them at once."),
    key(
        "in_flight",
        "2000; principal 64",
        "POST requests being answered at once.",
    ),
    key("streams", "5000; principal 32", "GET streams open at once."),
    later("sessions"),
];

/// One of `tenants.<t>.upstreams`.
pub const UPSTREAM: &[Key] = &[
    key("url", "", "Address of its MCP endpoint; or `command`."),
    key(
        "command",
        "",
        "Program and arguments of a stdio server; or `url`.",
    ),
    key(
        "env",
        "none",
        "Environment of the program, besides PATH, HOME, LANG and TZ.",
    ),
    key("cwd", "/", "Working directory of the program."),
    key("auth", "none", "How the gateway authenticates to it."),
    key("era", "auto", "auto, modern or legacy."),
    key("transport", "auto", "auto or streamable-http."),
    key(
        "session_mode",
        "pooled",
        "Sessions of modern callers on a legacy upstream: shared by the calls of one caller.",
    ),
    key("timeout", "60s", "Short for timeouts.idle."),
    key(
        "timeouts",
        "5s, 60s, 10m",
        "Connecting, silence and total of a call.",
    ),
    key("max_response", "16MiB", "Largest message accepted from it."),
    key(
        "max_sessions",
        "8",
        "Most sessions or processes of one caller.",
    ),
    later("elicitation"),
    later("endpoints"),
    later("gateway_peer"),
    later("health"),
    later("lint"),
    later("pin_first"),
    later("pins"),
    later("sampling"),
    later("share_with"),
    later("tls"),
    later("trusted"),
    later("ui_trusted"),
    later("uris"),
];

/// `tenants.<t>.upstreams.<u>.auth`.
pub const UPSTREAM_AUTH: &[Key] = &[
    key(
        "headers",
        "none",
        "Headers sent with every request, each a secret.",
    ),
    later("id_jag"),
    later("oauth_client_credentials"),
    later("token_exchange"),
    later("user_grant"),
];

/// `tenants.<t>.upstreams.<u>.timeouts`.
pub const TIMEOUTS: &[Key] = &[
    key("connect", "5s", "Until the connection stands; 10s at most."),
    key(
        "idle",
        "60s",
        "Longest silence of a call; progress starts it anew.",
    ),
    key("total", "10m", "End of a call, whatever happens."),
];

/// One of `tenants.<t>.servers`.
pub const SERVER: &[Key] = &[
    key(
        "upstream",
        "",
        "The one upstream of a transparent server: nothing is renamed; or `upstreams`.",
    ),
    key(
        "upstreams",
        "all of the tenant",
        "The upstreams of a federated server: names carry the upstream's id.",
    ),
    key("tools", "all", "{ allow: [globs over exposed names] }."),
    key("prompts", "all", "{ allow: [globs over exposed names] }."),
    key("resources", "all", "{ allow: [globs over exposed URIs] }."),
    key(
        "revisions",
        "2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28",
        "Revisions of the protocol served here.",
    ),
    key(
        "strict_fields",
        "false",
        "Removes members newer than the receiver's revision.",
    ),
    key("name_limit", "48", "Longest exposed name."),
    key(
        "instructions",
        "none",
        "Text before the upstreams' own instructions.",
    ),
    key(
        "poll_close",
        "false",
        "Ends a client's stream when the upstream's ends before its answer, or while a question of a stateless one takes long.",
    ),
    key(
        "sessions",
        "required",
        "required or optional: serves legacy clients that never send their session id back.",
    ),
    key(
        "stream_after",
        "2s",
        "An answer that takes longer becomes an event stream.",
    ),
    later("prefix"),
    later("search"),
];

/// `tools`, `prompts` and `resources` of a server.
pub const ALLOW: &[Key] = &[key(
    "allow",
    "all",
    "Globs: * for any characters, ? for one.",
)];
