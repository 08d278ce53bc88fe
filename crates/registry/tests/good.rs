//! Configurations that are accepted, and what becomes of them.

use std::time::Duration;

use vestibule_registry::checked::{
    Credential, Destination, Fsync, LogFormat, ProxyHeader, Reach, Resume, Store, TenantAuth,
    Transport,
};
use vestibule_registry::object::{self, Key};
use vestibule_registry::{Checked, parse};
use vestibule_terms::Revision;
use vestibule_terms::plan::{ServerKind, Visibility};

const SECRET: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn env(name: &str) -> Option<String> {
    match name {
        "CI_KEY" => Some(format!("vsk_ci_{SECRET}")),
        "SEAL" => Some("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned()),
        "PORT" => Some("9000".to_owned()),
        "TOKEN" => Some("Bearer hunter2".to_owned()),
        _ => None,
    }
}

fn check(text: &str) -> Checked {
    parse(text, "good.yaml", &env).unwrap_or_else(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        panic!("{}", lines.join("\n"))
    })
}

const FULL: &str = r#"
listen:
  address: 0.0.0.0:${PORT}
  public_url: https://mcp.example.com
  max_body: 2MiB
  hosts: [mcp.example.com, MCP2.example.com]
  proxies: { trusted: [10.0.0.0/8, 192.0.2.1], header: forwarded }
admin:
  address: 0.0.0.0:8081
  hosts: [admin.example.com]
  insecure: true
limits:
  address: { rate: 100/s, burst: 200, connections: 10 }
store: { kind: embedded, path: data, fsync: 100ms }
sealing: { keys: [ { id: k1, secret: { from_env: SEAL } } ] }
egress: { private: [10.20.0.0/16, "*.svc.cluster.local"], http: ["*.internal"], deny: [192.0.2.0/24] }
shutdown: { delay: 0s, grace: 10s }
telemetry: { log: json, address: 0.0.0.0:8082 }
tenants:
  acme:
    auth: { keys: true }
    keys:
      ci: { secret: { from_env: CI_KEY }, subject: ci-bot, groups: [bots], scopes: [mcp], servers: [default], expires: 2027-01-01 }
      ops:
        sha256: 00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF
        previous_sha256: ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff
        previous_until: 2026-06-01T12:00:00Z
    origins: ["https://chat.acme.example"]
    limits:
      tenant:    { rate: 500/s, burst: 1000, in_flight: 2000, streams: 5000 }
      principal: { rate: 50/s,  burst: 100,  in_flight: 64,   streams: 0 }
    policy: allow_all
    resume: required
    store_encryption: true
    http_sse: false
    upstreams:
      github:
        url: https://github-mcp.example/mcp
        auth: { headers: { Authorization: { from_env: TOKEN }, X-Team: "plain" } }
        era: modern
        transport: streamable-http
        session_mode: pooled
        timeouts: { connect: 1s, idle: 2m, total: 20m }
        max_response: 1MiB
        max_sessions: 2
      files:
        command: [mcp-files, --root, /srv/files]
        env: { LOG_LEVEL: info, TOKEN: { from_env: TOKEN }, EMPTY: "" }
        cwd: /srv
        timeout: 30s
    servers:
      default: { upstreams: [github, files] }
      github: { upstream: github }
      readonly:
        upstreams: [files]
        tools: { allow: ["files__read_*"] }
        prompts: { allow: [] }
        resources: { allow: ["*"] }
        revisions: ["2026-07-28", "2025-11-25"]
        strict_fields: true
        name_limit: 64
        instructions: "Be careful."
        poll_close: true
        sessions: optional
        stream_after: 500ms
"#;

#[test]
fn the_whole_file_is_read_into_checked_values() {
    let checked = check(FULL);
    assert_eq!(checked.listen.address.to_string(), "0.0.0.0:9000");
    assert_eq!(checked.listen.max_body, 2 << 20);
    assert_eq!(
        checked.listen.hosts,
        ["mcp.example.com", "mcp2.example.com"]
    );
    assert_eq!(checked.listen.proxies.header, ProxyHeader::Forwarded);
    assert_eq!(
        checked.listen.proxies.trusted[1].to_string(),
        "192.0.2.1/32"
    );
    assert_eq!(checked.limits.address.unwrap().connections, 10);
    assert_eq!(checked.sealing.keys[0].secret.expose()[31], 31);
    let data = Store::Embedded {
        path: "data".into(), // from the folder of the file
        fsync: Fsync::Interval,
    };
    assert_eq!(checked.store, data);
    assert_eq!(
        checked.egress.private[1],
        Destination::Name("*.svc.cluster.local".to_owned())
    );
    assert_eq!(checked.shutdown.delay, Duration::ZERO);
    assert_eq!(checked.telemetry.log, LogFormat::Json);
    let tenant = &checked.tenants[0];
    assert_eq!(tenant.auth, TenantAuth::Keys);
    assert_eq!(tenant.resume, Resume::Required);
    assert!(tenant.store_encryption);
    assert_eq!(tenant.origins.listed, ["https://chat.acme.example"]);
    assert_eq!(tenant.limits.principal.streams, 0);
}

#[test]
fn keys_keep_their_hash_or_the_key_itself() {
    let checked = check(FULL);
    let [ci, ops] = checked.tenants[0].keys.as_slice() else {
        panic!("two keys")
    };
    assert_eq!((ci.id.as_str(), ci.subject.as_str()), ("ci", "ci-bot"));
    assert!(matches!(&ci.credential, Credential::Key(key) if key.expose().starts_with("vsk_ci_")));
    assert_eq!(ci.expires, Some(1_798_761_600_000));
    assert_eq!(ci.servers.len(), 1);
    assert_eq!(ops.subject, "ops");
    assert!(
        matches!(&ops.credential, Credential::Sha256(hash) if hash[1] == 0x11 && hash[31] == 0xff)
    );
    assert_eq!(ops.previous.unwrap().0, [0xff; 32]);
}

#[test]
fn upstreams_and_servers_are_resolved_and_ordered() {
    let checked = check(FULL);
    let tenant = &checked.tenants[0];
    let [files, github] = tenant.upstreams.as_slice() else {
        panic!("two upstreams")
    };
    assert!(matches!(&files.reach, Reach::Command { command, env, cwd }
        if command.len() == 3 && env.len() == 3 && cwd.as_os_str() == "/srv"));
    assert_eq!(files.timeouts.idle, Duration::from_secs(30));
    let Reach::Http {
        headers,
        transport,
        loopback: false,
        ..
    } = &github.reach
    else {
        panic!("reached over http")
    };
    assert_eq!(headers[0].0.as_str(), "authorization");
    assert_eq!(headers[0].1.expose(), "Bearer hunter2");
    assert_eq!(*transport, Transport::StreamableHttp);
    let [default, transparent, readonly] = tenant.servers.as_slice() else {
        panic!("three servers")
    };
    assert_eq!(
        default.kind,
        ServerKind::Federated(vec![files.id.clone(), github.id.clone()])
    );
    assert_eq!(default.call_idle, Duration::from_secs(120));
    assert_eq!(default.call_total, Duration::from_secs(1200));
    assert_eq!(transparent.kind, ServerKind::Transparent(github.id.clone()));
    assert_eq!(
        readonly.revisions,
        [Revision::R2025_11_25, Revision::R2026_07_28]
    );
    assert_eq!(readonly.allow.prompts, Some(Vec::new()));
    assert_eq!(readonly.allow.tools, Some(vec!["files__read_*".to_owned()]));
    assert!(readonly.poll_close && readonly.strict_fields && readonly.sessions_optional);
    assert_eq!(readonly.call_idle, Duration::from_secs(30));
    assert_eq!(readonly.visibility, Visibility::Everything);
    assert!(tenant.servers.iter().all(|plan| !plan.http_sse), "HSE-01");
}

/// ORG-04: without a word the gateway listens on loopback and accepts loopback names alone.
#[test]
fn org_04_an_empty_file_listens_on_loopback() {
    let checked = check("");
    assert_eq!(checked.listen.address.to_string(), "127.0.0.1:8080");
    assert_eq!(checked.admin.address.to_string(), "127.0.0.1:8081");
    assert_eq!(checked.listen.hosts, ["localhost", "127.0.0.1", "[::1]"]);
    assert_eq!(checked.listen.max_body, 4 << 20);
    let data = Store::Embedded {
        path: "vestibule-data".into(),
        fsync: Fsync::Always,
    };
    assert_eq!(checked.store, data);
    assert!(checked.tenants.is_empty());
    assert!(checked.warnings.is_empty());
}

/// EL-23: a shared store is named by its URL, which is a secret; keys are configured with it.
#[test]
fn el_23_a_shared_store_is_named_by_its_url() {
    for url in [
        "redis://redis",
        "rediss://user:pass%20word@redis:6380/2",
        "redis-sentinel://a:26379,b:26379/mymaster",
        "redis-cluster://a:7000,b:7000",
    ] {
        let text = format!(
            "store: {{ kind: redis, url: {url:?} }}\nsealing: {{ keys: [{{ id: a, secret: {{ from_env: SEAL }} }}] }}"
        );
        let checked = check(&text);
        let Store::Redis { url: read, ca } = &checked.store else {
            panic!("{:?}", checked.store)
        };
        assert_eq!(read.expose(), url);
        assert_eq!(*ca, None);
        assert!(!format!("{:?}", checked.store).contains("pass"), "a secret");
    }
}

/// ORG-01: loopback origins are accepted on a loopback listener only, and only while none is listed.
#[test]
fn org_01_loopback_origins_follow_the_listener() {
    let tenant = "tenants: { t: { auth: none, policy: allow_all } }";
    let listed = "tenants: { t: { auth: none, policy: allow_all, origins: [] } }";
    let open = "listen: { address: 0.0.0.0:80, hosts: [a.example] }";
    assert!(check(tenant).tenants[0].origins.loopback);
    assert!(!check(listed).tenants[0].origins.loopback);
    let outside = check(&format!("{open}\n{tenant}"));
    assert!(!outside.tenants[0].origins.loopback);
    assert!(
        outside.warnings[0].contains("open to everyone"),
        "{outside:?}"
    );
}

#[test]
fn a_tenant_without_servers_has_a_default_of_all_its_upstreams() {
    let checked = check(
        "tenants: { t: { auth: none, upstreams: { b: { url: 'http://127.0.0.1:1/mcp' }, a: { url: 'https://a.example' } } } }",
    );
    let tenant = &checked.tenants[0];
    assert_eq!(tenant.servers.len(), 1);
    assert_eq!(tenant.servers[0].server.as_str(), "default");
    let ids = tenant.servers[0].upstreams();
    assert_eq!(
        ids.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(tenant.servers[0].visibility, Visibility::Nothing);
    let warnings = checked.warnings.join("\n");
    assert!(warnings.contains("nobody sees anything"), "{warnings}");
    assert!(warnings.contains("loopback address"), "{warnings}");
}

/// T69: no secret shows in the debug form of the whole configuration.
#[test]
fn t69_debug_of_the_configuration_shows_no_secret() {
    let shown = format!("{:?}", check(FULL));
    for secret in [SECRET, "hunter2", "AAECAwQF"] {
        assert!(!shown.contains(secret), "{secret}");
    }
}

/// Every key that a table calls served stands in the file above, so that none is served in name only.
#[test]
fn every_served_key_is_used_by_the_full_file() {
    let tables: [&[Key]; 21] = [
        object::FILE,
        object::LISTEN,
        object::PROXIES,
        object::ADMIN,
        object::LIMITS,
        object::ADDRESS_LIMITS,
        object::STORE,
        object::SEALING,
        object::SEALING_KEY,
        object::EGRESS,
        object::SHUTDOWN,
        object::TELEMETRY,
        object::TENANT,
        object::AUTH,
        object::API_KEY,
        object::TENANT_LIMITS,
        object::BUDGET,
        object::UPSTREAM,
        object::UPSTREAM_AUTH,
        object::TIMEOUTS,
        object::SERVER,
    ];
    for key in tables.into_iter().flatten().filter(|key| key.served) {
        // Certificates need files; they are covered beside the mistakes about them.
        let used = matches!(key.name, "tls" | "ca") || FULL.contains(&format!("{}:", key.name));
        assert!(used, "{}", key.name);
        assert!(!key.about.is_empty(), "{}", key.name);
    }
}

/// T53: payloads are sealed in a store that others can read; elsewhere that is said to do nothing.
#[test]
fn t53_store_encryption_is_for_a_shared_store() {
    let tenant = "tenants: { t: { auth: none, policy: allow_all, store_encryption: true } }";
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let redis = format!(
        "store: {{ kind: redis, url: \"redis://127.0.0.1:1\" }}
sealing: {{ keys: [{{ id: k1, secret: {key} }}] }}"
    );
    let shared = check(&format!("{redis}\n{tenant}"));
    assert!(shared.tenants[0].store_encryption);
    assert!(shared.warnings.is_empty(), "{:?}", shared.warnings);
    let alone = check(tenant);
    let warnings = alone.warnings.join("\n");
    assert!(
        warnings.contains("tenants.t.store_encryption"),
        "{warnings}"
    );
    let default = check("tenants: { t: { auth: none, policy: allow_all } }");
    assert!(!default.tenants[0].store_encryption);
}

/// HSE-01, HSE-08: the transport of 2024-11-05 and its revision are served unless they are switched
/// off, and nothing is said about it.
#[test]
fn hse_01_http_sse_is_on_by_default() {
    for more in ["", "\n    http_sse: true"] {
        let text = format!("tenants:\n  t:\n    auth: none\n    policy: allow_all{more}\n");
        let checked = check(&text);
        assert!(checked.warnings.is_empty(), "{:?}", checked.warnings);
        let tenant = &checked.tenants[0];
        assert!(tenant.http_sse && tenant.servers[0].http_sse);
        assert!(tenant.servers[0].serves(Revision::R2024_11_05));
    }
}
