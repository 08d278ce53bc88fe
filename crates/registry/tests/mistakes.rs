//! Bad configurations: each mistake is reported with its line, its key path and the alternatives.

use vestibule_registry::object::{self, Key};
use vestibule_registry::{Mistake, load, parse};

const SECRET: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn env(name: &str) -> Option<String> {
    match name {
        "KEY" => Some(format!("vsk_other_{SECRET}")),
        "HIDDEN" => Some("s3cr3t-value".to_owned()),
        _ => None,
    }
}

fn mistakes(text: &str) -> Vec<Mistake> {
    parse(text, "bad.yaml", &env).err().unwrap_or_default()
}

/// A tenant `t` with `body` under it, from line 3.
fn tenant(body: &str) -> String {
    let indented: Vec<String> = body.lines().map(|line| format!("    {line}")).collect();
    format!("tenants:\n  t:\n{}\n", indented.join("\n"))
}

/// Line, key path, words of the message, and one of the alternatives ("" for none).
type Expected = (usize, &'static str, &'static str, &'static str);

fn assert_one(text: &str, expected: Expected) {
    let (line, path, words, alternative) = expected;
    let found = mistakes(text);
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    let [mistake] = found.as_slice() else {
        panic!("one mistake expected for\n{text}\n{}", shown.join("\n"))
    };
    assert_eq!(mistake.line, line, "{text}\n{mistake}");
    assert_eq!(mistake.key_path, path, "{text}\n{mistake}");
    assert!(mistake.what.contains(words), "{text}\n{mistake}");
    match alternative {
        "" => assert!(mistake.one_of.is_empty(), "{mistake}"),
        alternative => assert!(
            mistake.one_of.iter().any(|text| text == alternative),
            "{mistake}"
        ),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a flat table, one row a mistake")]
fn mistakes_of_the_top_sections() {
    let table: [(&str, Expected); 41] = [
        ("listne: {}", (1, "listne", "unknown key", "listen")),
        (
            "listen: [a]",
            (1, "listen", "must be a mapping, not a list", ""),
        ),
        (
            "listen:\n  address: 8080",
            (2, "listen.address", "`8080` is not an address", ""),
        ),
        (
            "listen:\n  address: [a]",
            (2, "listen.address", "must be a single value", ""),
        ),
        (
            "listen:\n  address:",
            (2, "listen.address", "has no value", ""),
        ),
        (
            "listen:\n  address: ${NOPE}",
            (2, "listen.address", "NOPE is not set", ""),
        ),
        (
            "listen:\n  address: ${NO",
            (2, "listen.address", "not closed", ""),
        ),
        (
            "listen:\n  max_body: lots",
            (2, "listen.max_body", "is not a size", ""),
        ),
        (
            "listen:\n  max_body: 0",
            (2, "listen.max_body", "larger than 0", ""),
        ),
        (
            "listen:\n  public_url: https://a.b/x",
            (2, "listen.public_url", "alone", ""),
        ),
        (
            "listen:\n  public_url: ftp://a.b",
            (2, "listen.public_url", "http or https", ""),
        ),
        (
            "listen:\n  hosts: [\"http://a.b\"]",
            (2, "listen.hosts[0]", "not a host name", ""),
        ),
        (
            "listen:\n  hosts: [\"a.b:80\"]",
            (2, "listen.hosts[0]", "not a host name", ""),
        ),
        (
            "listen:\n  hosts: a.b",
            (2, "listen.hosts", "must be a list", ""),
        ),
        (
            "listen:\n  proxies: { header: via }",
            (2, "listen.proxies.header", "`via`", "forwarded"),
        ),
        (
            "listen:\n  proxies: { header: proxy-protocol }",
            (
                2,
                "listen.proxies.header",
                "not available in this version",
                "x-forwarded-for",
            ),
        ),
        (
            "listen:\n  proxies: { trusted: [10.0.0.0/33] }",
            (2, "listen.proxies.trusted[0]", "is not a network", ""),
        ),
        (
            "listen:\n  tls: { key: /dev/null }",
            (2, "listen.tls.certificate", "is missing", ""),
        ),
        (
            "admin:\n  address: 0.0.0.0:8081",
            (2, "admin.address", "needs admin.tls", ""),
        ),
        (
            "admin:\n  keys: []",
            (2, "admin.keys", "not available in this version", ""),
        ),
        (
            "admin:\n  insecure: yes",
            (2, "admin.insecure", "neither true nor false", ""),
        ),
        (
            "listen:\n  address: 127.0.0.1:8081",
            (1, "admin.address", "already the data plane", ""),
        ),
        (
            "limits:\n  address: { rate: 10 }",
            (2, "limits.address.rate", "is not a rate", ""),
        ),
        (
            "limits:\n  address: { rate: 0/s }",
            (2, "limits.address.rate", "more than 0", ""),
        ),
        (
            "limits:\n  address: { burst: 0 }",
            (2, "limits.address.burst", "at least 1", ""),
        ),
        (
            "limits:\n  address: on",
            (2, "limits.address", "must be a mapping", ""),
        ),
        ("store:\n  kind: memory", (2, "store.kind", "", "embedded")),
        (
            "store:\n  kind: redis\nsealing:\n  keys: []",
            (2, "store.url", "missing", ""),
        ),
        (
            "store:\n  kind: redis\n  url: http://redis\nsealing:\n  keys: []",
            (3, "store.url", "redis://", ""),
        ),
        (
            "store:\n  url: redis://redis",
            (2, "store.url", "kind: redis", ""),
        ),
        (
            "store:\n  kind: redis\n  url: redis://redis\n  path: x\nsealing:\n  keys: []",
            (4, "store.path", "kind: embedded", ""),
        ),
        (
            "store:\n  kind: redis\n  url: redis://redis",
            (2, "sealing.keys", "store.kind: redis", ""),
        ),
        (
            "store:\n  path: \"\"",
            (2, "store.path", "must be a path", ""),
        ),
        (
            "store:\n  fsync: sometimes",
            (2, "store.fsync", "", "always"),
        ),
        (
            "sealing:\n  keys:\n  - { id: k1, secret: c2hvcnQ= }",
            (3, "sealing.keys[0].secret", "32 random bytes", ""),
        ),
        (
            "sealing:\n  keys:\n  - { id: K_1, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8= }",
            (3, "sealing.keys[0].id", "letters and digits", ""),
        ),
        (
            "egress:\n  private: [\"a b\"]",
            (2, "egress.private[0]", "neither a network nor a name", ""),
        ),
        (
            "shutdown:\n  grace: 5",
            (2, "shutdown.grace", "is not a duration", ""),
        ),
        (
            "telemetry:\n  log: xml",
            (2, "telemetry.log", "`xml`", "json"),
        ),
        (
            "telemetry:\n  otlp: http://c:4317",
            (2, "telemetry.otlp", "not available in this version", ""),
        ),
        (
            "shutdown: { delay: 1s }\nshutdown: { delay: 2s }",
            (2, "shutdown", "twice", ""),
        ),
    ];
    for (text, expected) in table {
        assert_one(text, expected);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a flat table, one row a mistake")]
fn mistakes_of_a_tenant() {
    let table: [(&str, Expected); 31] = [
        (
            "policy: allow_all",
            (3, "tenants.t.auth", "is missing", "none"),
        ),
        (
            "auth: open",
            (3, "tenants.t.auth", "not a way to authenticate", "none"),
        ),
        (
            "auth: { oauth: {} }",
            (
                3,
                "tenants.t.auth.oauth",
                "not available in this version",
                "",
            ),
        ),
        (
            "auth: { keys: false }",
            (3, "tenants.t.auth.keys", "no other way", "true"),
        ),
        (
            "auth: none\nkeys: { a: {} }",
            (4, "tenants.t.keys", "no effect", ""),
        ),
        (
            "auth: none\npolicy: a.cedar",
            (
                4,
                "tenants.t.policy",
                "not available in this version",
                "allow_all",
            ),
        ),
        (
            "auth: none\norigins: [\"*\"]",
            (4, "tenants.t.origins[0]", "is not an origin", ""),
        ),
        (
            "auth: none\nresume: maybe",
            (4, "tenants.t.resume", "`maybe`", "best_effort"),
        ),
        (
            "auth: none\nlimits: { tenant: { rate: fast } }",
            (4, "tenants.t.limits.tenant.rate", "is not a rate", ""),
        ),
        (
            "auth: none\nlimits: { tools: {} }",
            (4, "tenants.t.limits.tools", "not available", ""),
        ),
        (
            "auth: none\naudience: []",
            (4, "tenants.t.audience", "not available", ""),
        ),
        (
            "auth: none\nupstreams:\n  git: { url: 'https://a.b' }",
            (5, "tenants.t.upstreams.git", "git", ""),
        ),
        (
            "auth: none\nupstreams:\n  a: {}",
            (5, "tenants.t.upstreams.a", "exactly one", "command"),
        ),
        (
            "auth: none\nupstreams:\n  a: { url: 'https://a.b', command: [x] }",
            (5, "tenants.t.upstreams.a", "exactly one", "url"),
        ),
        (
            "auth: none\nupstreams:\n  a: { url: 'https://u:p@a.b' }",
            (5, "tenants.t.upstreams.a.url", "carries credentials", ""),
        ),
        (
            "auth: none\nupstreams:\n  a: { url: 'https://a.b', cwd: / }",
            (5, "tenants.t.upstreams.a.cwd", "`command`", ""),
        ),
        (
            "auth: none\nupstreams:\n  a: { command: [] }",
            (
                5,
                "tenants.t.upstreams.a.command",
                "begin with the program",
                "",
            ),
        ),
        (
            "auth: none\nupstreams:\n  a: { command: mcp }",
            (5, "tenants.t.upstreams.a.command", "must be a list", ""),
        ),
        (
            "auth: none\nupstreams:\n  a: { url: 'https://a.b', transport: sse }",
            (
                5,
                "tenants.t.upstreams.a.transport",
                "not available",
                "auto",
            ),
        ),
        (
            "auth: none\nupstreams:\n  a: { url: 'https://a.b', era: old }",
            (5, "tenants.t.upstreams.a.era", "`old`", "legacy"),
        ),
        (
            "auth: none\nupstreams:\n  a: { url: 'https://a.b', session_mode: per_call }",
            (
                5,
                "tenants.t.upstreams.a.session_mode",
                "not available in this version",
                "pooled",
            ),
        ),
        (
            "auth: none\nupstreams:\n  a: { url: 'https://a.b', timeout: 1s, timeouts: { idle: 1s } }",
            (
                5,
                "tenants.t.upstreams.a.timeouts.idle",
                "says the same",
                "",
            ),
        ),
        (
            "auth: none\nupstreams:\n  a: { url: 'https://a.b', timeout: 1h }",
            (5, "tenants.t.upstreams.a.timeouts", "longer than total", ""),
        ),
        (
            "auth: none\nupstreams:\n  a: { url: 'https://a.b', auth: { user_grant: {} } }",
            (
                5,
                "tenants.t.upstreams.a.auth.user_grant",
                "not available",
                "",
            ),
        ),
        (
            "auth: none\nservers:\n  default: { upstreams: [b] }\nupstreams:\n  a: { url: 'https://a.b' }",
            (
                5,
                "tenants.t.servers.default.upstreams[0]",
                "no upstream `b`",
                "a",
            ),
        ),
        (
            "auth: none\nservers:\n  x: { upstream: b, upstreams: [] }",
            (5, "tenants.t.servers.x", "only one", "upstreams"),
        ),
        (
            "auth: none\nservers:\n  x: { revisions: [2024-10-07, 2025-11-25] }",
            (
                5,
                "tenants.t.servers.x.revisions[0]",
                "not a valid choice",
                "2025-11-25",
            ),
        ),
        (
            "auth: none\nservers:\n  x: { revisions: [] }",
            (
                5,
                "tenants.t.servers.x.revisions",
                "at least one",
                "2026-07-28",
            ),
        ),
        (
            "auth: none\nservers:\n  x: { name_limit: 8 }",
            (
                5,
                "tenants.t.servers.x.name_limit",
                "between 32 and 128",
                "",
            ),
        ),
        (
            "auth: none\nservers:\n  x: { tools: { deny: [] } }",
            (5, "tenants.t.servers.x.tools.deny", "unknown key", "allow"),
        ),
        (
            "auth: none\nservers:\n  X: {}",
            (5, "tenants.t.servers.X", "a-z", ""),
        ),
    ];
    for (text, expected) in table {
        assert_one(&tenant(text), expected);
    }
}

#[test]
fn mistakes_of_keys() {
    let hash = "0".repeat(64);
    let hashed = format!("auth: {{ keys: true }}\nkeys:\n  a: {{ sha256: '{hash}', ");
    let table: [(String, Expected); 8] = [
        (
            "auth: { keys: true }\nkeys:\n  a: {}".to_owned(),
            (5, "tenants.t.keys.a", "exactly one", "sha256"),
        ),
        (
            "auth: { keys: true }\nkeys:\n  a: { secret: { from_env: KEY } }".to_owned(),
            (5, "tenants.t.keys.a.secret", "vsk_a_", ""),
        ),
        (
            "auth: { keys: true }\nkeys:\n  a: { secret: { from_env: NOPE } }".to_owned(),
            (5, "tenants.t.keys.a.secret.from_env", "NOPE is not set", ""),
        ),
        (
            "auth: { keys: true }\nkeys:\n  a: { secret: {} }".to_owned(),
            (5, "tenants.t.keys.a.secret", "exactly one", "from_file"),
        ),
        (
            "auth: { keys: true }\nkeys:\n  a: { sha256: 'abc' }".to_owned(),
            (5, "tenants.t.keys.a.sha256", "64 hexadecimal", ""),
        ),
        (
            format!("{hashed} servers: [x] }}"),
            (5, "tenants.t.keys.a.servers[0]", "no server `x`", "default"),
        ),
        (
            format!("{hashed} expires: never }}"),
            (5, "tenants.t.keys.a.expires", "is not a date", ""),
        ),
        (
            format!("{hashed} previous_until: 2027-01-01 }}"),
            (5, "tenants.t.keys.a.previous_sha256", "is missing", ""),
        ),
    ];
    for (text, expected) in table {
        assert_one(&tenant(&text), expected);
    }
}

/// Case 13: no header that names the caller or that the gateway writes can be set for an upstream.
#[test]
fn case_13_headers_that_belong_to_the_gateway_are_refused() {
    for name in [
        "Host",
        "content-type",
        "Content-Length",
        "Transfer-Encoding",
        "connection",
        "Cookie",
        "Origin",
        "Forwarded",
        "X-Forwarded-Authorization",
        "x_forwarded_for",
        "Mcp-Session-Id",
        "mcp_name",
        "Proxy-Authorization",
        "TE",
        "a b",
    ] {
        let text = tenant(&format!(
            "auth: none\nupstreams:\n  a:\n    url: https://a.b\n    auth: {{ headers: {{ '{name}': x }} }}"
        ));
        let found = mistakes(&text);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!(found[0].line, 7);
        assert!(found[0].key_path.ends_with(name), "{}", found[0]);
    }
}

#[test]
fn all_mistakes_are_reported_at_once_in_order_of_lines() {
    let found = mistakes(&format!(
        "{}shutdown: {{ grace: x }}\nlisten: {{ addres: y, max_body: 0 }}\n",
        tenant("auth: maybe\npolicy: p.cedar")
    ));
    let lines: Vec<usize> = found.iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 6]);
    assert_eq!(
        found[3].to_string().split("; ").next().unwrap(),
        "bad.yaml:6:11 listen.addres: unknown key"
    );
}

#[test]
fn a_syntax_error_names_its_line() {
    let found = mistakes("listen:\n  hosts: [a\nadmin: {}\n");
    assert_eq!(found.len(), 1);
    assert!((2..=3).contains(&found[0].line), "{}", found[0]);
}

/// T69: what an environment variable or a secret holds is never repeated in a message.
#[test]
fn t69_messages_do_not_repeat_secrets_or_variables() {
    let text =
        "listen: { address: '${HIDDEN}' }\nsealing: { keys: [ { id: k, secret: '${HIDDEN}' } ] }\n";
    let found = mistakes(text);
    assert_eq!(found.len(), 2);
    for mistake in found {
        assert!(!mistake.to_string().contains("s3cr3t-value"), "{mistake}");
    }
}

/// Every key the contract names for later says so instead of being ignored.
#[test]
fn keys_of_later_versions_are_refused_by_name() {
    let later = |table: &'static [Key]| table.iter().filter(|key| !key.served);
    for key in later(object::TENANT) {
        let text = tenant(&format!("auth: none\n{}: x", key.name));
        assert!(
            mistakes(&text)[0].what.contains("not available"),
            "{}",
            key.name
        );
    }
    for key in later(object::UPSTREAM) {
        let text = tenant(&format!(
            "auth: none\nupstreams:\n  a: {{ url: 'https://a.b', {}: x }}",
            key.name
        ));
        assert!(
            mistakes(&text)[0].what.contains("not available"),
            "{}",
            key.name
        );
    }
    for key in later(object::SERVER) {
        let text = tenant(&format!("auth: none\nservers:\n  a: {{ {}: x }}", key.name));
        assert!(
            mistakes(&text)[0].what.contains("not available"),
            "{}",
            key.name
        );
    }
}

#[test]
fn a_file_that_starts_programs_must_not_be_writable_by_others() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("vestibule-registry-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("config.yaml");
    let starts = tenant("auth: none\nupstreams:\n  a: { command: [x] }");
    std::fs::write(&path, starts).unwrap();
    let set =
        |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o664);
    let found = load(&path).unwrap_err();
    assert_eq!(found[0].key_path, "tenants.t.upstreams.a.command");
    assert!(found[0].what.contains("writable"), "{}", found[0]);
    set(0o644);
    load(&path).unwrap();
    std::fs::write(&path, tenant("auth: none")).unwrap();
    set(0o666);
    load(&path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(load(&path).unwrap_err()[0].what.contains("cannot be read"));
}
