//! `docs/CONFIGURATION.md` is made from the key tables, so page and reader cannot part. With
//! `VESTIBULE_UPDATE=1` this writes the page; without, it fails when the page is not what the tables
//! say. What a key takes is written down here, key by key, and for every closed set of choices the
//! reader is asked whether it knows the same ones.

use std::fmt::Write as _;
use std::path::Path;

use vestibule_registry::object::{self, Key};
use vestibule_registry::parse;

/// What a key takes.
#[derive(Clone, Copy)]
enum Takes {
    /// Text for the page.
    Text(&'static str),
    /// One of these, and nothing else.
    Choice(&'static [&'static str]),
}

use Takes::{Choice, Text};

const TRUE_OR_FALSE: Takes = Text("`true` or `false`");
const DURATION: Takes = Text("a duration, longer than 0");
const SIZE: Takes = Text("a size");
const COUNT: Takes = Text("a whole number");
const POSITIVE: Takes = Text("a whole number from 1");
const RATE: Takes = Text("a rate");
const ADDRESS: Takes = Text("address and port, `127.0.0.1:8080`");
const TIME: Takes = Text("`2027-01-01` or `2027-01-01T12:00:00Z`");
const TEXTS: Takes = Text("a list of texts");
const DESTINATIONS: Takes = Text("a list of networks and names, `10.0.0.0/8`, `*.internal`");
const GLOBS: Takes = Text("`{ allow: [...] }`");
const MAPPING: Takes = Text("a mapping, below");

/// One object of the file.
struct Object {
    /// Where it stands, as the page shows it.
    path: &'static str,
    keys: &'static [Key],
    /// The keys that are served, in the order of the table, with what they take.
    takes: &'static [(&'static str, Takes)],
    /// Where it stands in YAML, for asking the reader: text before and behind one more member.
    yaml: (&'static str, &'static str),
    /// Where it stands in the key paths of mistakes.
    reported: &'static str,
}

const OBJECTS: &[Object] = &[
    Object {
        path: "The file",
        keys: object::FILE,
        takes: &[
            ("listen", MAPPING),
            ("admin", MAPPING),
            ("limits", MAPPING),
            ("store", MAPPING),
            ("sealing", MAPPING),
            ("egress", MAPPING),
            ("shutdown", MAPPING),
            ("telemetry", MAPPING),
            ("tenants", Text("a mapping of tenant ids, below")),
        ],
        yaml: ("{", "}"),
        reported: "",
    },
    Object {
        path: "`listen`",
        keys: object::LISTEN,
        takes: &[
            ("address", ADDRESS),
            (
                "public_url",
                Text("scheme, host and port, `https://mcp.example.com`"),
            ),
            ("tls", MAPPING),
            ("max_body", SIZE),
            ("hosts", Text("a list of host names without ports")),
            ("proxies", MAPPING),
        ],
        yaml: ("{listen: {", "}}"),
        reported: "listen.",
    },
    Object {
        path: "`listen.tls` and `admin.tls`",
        keys: object::TLS,
        takes: &[("certificate", Text("a path")), ("key", Text("a path"))],
        yaml: ("{listen: {tls: {", "}}}"),
        reported: "listen.tls.",
    },
    Object {
        path: "`listen.proxies`",
        keys: object::PROXIES,
        takes: &[
            ("trusted", Text("a list of networks and addresses")),
            ("header", Choice(&["x-forwarded-for", "forwarded"])),
        ],
        yaml: ("{listen: {proxies: {", "}}}"),
        reported: "listen.proxies.",
    },
    Object {
        path: "`admin`",
        keys: object::ADMIN,
        takes: &[
            ("address", ADDRESS),
            ("hosts", Text("a list of host names without ports")),
            ("tls", MAPPING),
            ("insecure", TRUE_OR_FALSE),
        ],
        yaml: ("{admin: {", "}}"),
        reported: "admin.",
    },
    Object {
        path: "`limits`",
        keys: object::LIMITS,
        takes: &[("address", Text("a mapping, below, or `off`"))],
        yaml: ("{limits: {", "}}"),
        reported: "limits.",
    },
    Object {
        path: "`limits.address`",
        keys: object::ADDRESS_LIMITS,
        takes: &[
            ("rate", Text("a rate, more than 0")),
            ("burst", POSITIVE),
            ("connections", POSITIVE),
        ],
        yaml: ("{limits: {address: {", "}}}"),
        reported: "limits.address.",
    },
    Object {
        path: "`store`",
        keys: object::STORE,
        takes: &[
            ("kind", Choice(&["embedded", "redis"])),
            ("path", Text("a path, or `none`")),
            ("fsync", Choice(&["always", "100ms", "never"])),
            ("url", Text("a URL of Redis, as a secret")),
            ("ca", Text("a path to a PEM file")),
        ],
        yaml: ("{store: {", "}}"),
        reported: "store.",
    },
    Object {
        path: "`sealing`",
        keys: object::SEALING,
        takes: &[("keys", Text("a list of mappings, below"))],
        yaml: ("{sealing: {", "}}"),
        reported: "sealing.",
    },
    Object {
        path: "One of `sealing.keys`",
        keys: object::SEALING_KEY,
        takes: &[
            ("id", Text("1 to 8 of `a-z` and `0-9`, each once")),
            ("secret", Text("a secret: `openssl rand -base64 32`")),
        ],
        yaml: ("{sealing: {keys: [{", "}]}}"),
        reported: "sealing.keys[0].",
    },
    Object {
        path: "`egress`",
        keys: object::EGRESS,
        takes: &[
            ("private", DESTINATIONS),
            ("http", DESTINATIONS),
            ("deny", DESTINATIONS),
        ],
        yaml: ("{egress: {", "}}"),
        reported: "egress.",
    },
    Object {
        path: "`shutdown`",
        keys: object::SHUTDOWN,
        takes: &[("delay", Text("a duration")), ("grace", DURATION)],
        yaml: ("{shutdown: {", "}}"),
        reported: "shutdown.",
    },
    Object {
        path: "`telemetry`",
        keys: object::TELEMETRY,
        takes: &[("log", Choice(&["text", "json"])), ("address", ADDRESS)],
        yaml: ("{telemetry: {", "}}"),
        reported: "telemetry.",
    },
    Object {
        path: "One of `tenants`",
        keys: object::TENANT,
        takes: &[
            ("auth", Choice(&["none", "{ keys: true }"])),
            ("keys", Text("a mapping of key ids, below")),
            (
                "origins",
                Text("a list of origins, `https://chat.example.com`"),
            ),
            ("limits", MAPPING),
            ("policy", Choice(&["allow_all"])),
            ("resume", Choice(&["required", "best_effort", "off"])),
            ("store_encryption", TRUE_OR_FALSE),
            ("http_sse", TRUE_OR_FALSE),
            ("upstreams", Text("a mapping of upstream ids, below")),
            ("servers", Text("a mapping of server ids, below")),
        ],
        yaml: ("{tenants: {t: {", "}}}"),
        reported: "tenants.t.",
    },
    Object {
        path: "`tenants.<t>.auth`, unless it is `none`",
        keys: object::AUTH,
        takes: &[("keys", Text("`true`"))],
        yaml: ("{tenants: {t: {auth: {", "}}}}"),
        reported: "tenants.t.auth.",
    },
    Object {
        path: "One of `tenants.<t>.keys`",
        keys: object::API_KEY,
        takes: &[
            ("secret", Text("a secret, or `sha256`")),
            ("sha256", Text("64 hexadecimal digits")),
            ("previous_sha256", Text("64 hexadecimal digits")),
            ("previous_until", TIME),
            ("subject", Text("a text")),
            ("groups", TEXTS),
            ("scopes", TEXTS),
            ("servers", Text("a list of server ids of the tenant")),
            ("expires", TIME),
        ],
        yaml: ("{tenants: {t: {auth: {keys: true}, keys: {k: {", "}}}}}"),
        reported: "tenants.t.keys.k.",
    },
    Object {
        path: "`tenants.<t>.limits`",
        keys: object::TENANT_LIMITS,
        takes: &[("tenant", MAPPING), ("principal", MAPPING)],
        yaml: ("{tenants: {t: {limits: {", "}}}}"),
        reported: "tenants.t.limits.",
    },
    Object {
        path: "`tenants.<t>.limits.tenant` and `tenants.<t>.limits.principal`",
        keys: object::BUDGET,
        takes: &[
            ("rate", RATE),
            ("burst", COUNT),
            ("in_flight", COUNT),
            ("streams", COUNT),
        ],
        yaml: ("{tenants: {t: {limits: {tenant: {", "}}}}}"),
        reported: "tenants.t.limits.tenant.",
    },
    Object {
        path: "One of `tenants.<t>.upstreams`",
        keys: object::UPSTREAM,
        takes: &[
            (
                "url",
                Text("an `http` or `https` address without credentials"),
            ),
            ("command", Text("a list: the program, then its arguments")),
            (
                "env",
                Text("a mapping of names to secrets; `\"\"` is empty"),
            ),
            ("cwd", Text("a path")),
            ("auth", MAPPING),
            ("era", Choice(&["auto", "modern", "legacy"])),
            ("transport", Choice(&["auto", "streamable-http"])),
            ("session_mode", Choice(&["pooled"])),
            ("timeout", DURATION),
            ("timeouts", MAPPING),
            ("max_response", SIZE),
            ("max_sessions", POSITIVE),
        ],
        yaml: (
            "{tenants: {t: {upstreams: {u: {url: \"https://u.example/\", ",
            "}}}}}",
        ),
        reported: "tenants.t.upstreams.u.",
    },
    Object {
        path: "`tenants.<t>.upstreams.<u>.auth`",
        keys: object::UPSTREAM_AUTH,
        takes: &[("headers", Text("a mapping of header names to secrets"))],
        yaml: (
            "{tenants: {t: {upstreams: {u: {url: \"https://u.example/\", auth: {",
            "}}}}}}",
        ),
        reported: "tenants.t.upstreams.u.auth.",
    },
    Object {
        path: "`tenants.<t>.upstreams.<u>.timeouts`",
        keys: object::TIMEOUTS,
        takes: &[
            ("connect", DURATION),
            ("idle", Text("a duration, at most `total`")),
            ("total", DURATION),
        ],
        yaml: (
            "{tenants: {t: {upstreams: {u: {url: \"https://u.example/\", timeouts: {",
            "}}}}}}",
        ),
        reported: "tenants.t.upstreams.u.timeouts.",
    },
    Object {
        path: "One of `tenants.<t>.servers`",
        keys: object::SERVER,
        takes: &[
            ("upstream", Text("an upstream id of the tenant")),
            ("upstreams", Text("a list of upstream ids of the tenant")),
            ("tools", GLOBS),
            ("prompts", GLOBS),
            ("resources", GLOBS),
            ("revisions", Text("a list of the revisions in the default")),
            ("strict_fields", TRUE_OR_FALSE),
            ("name_limit", Text("32 to 128")),
            ("instructions", Text("a text")),
            ("poll_close", TRUE_OR_FALSE),
            ("sessions", Choice(&["required", "optional"])),
            ("stream_after", Text("a duration")),
        ],
        yaml: ("{tenants: {t: {servers: {s: {", "}}}}}"),
        reported: "tenants.t.servers.s.",
    },
    Object {
        path: "`tools`, `prompts` and `resources` of a server",
        keys: object::ALLOW,
        takes: &[("allow", Text("a list of globs of 1 to 512 bytes"))],
        yaml: ("{tenants: {t: {servers: {s: {tools: {", "}}}}}}"),
        reported: "tenants.t.servers.s.tools.",
    },
];

const INTRODUCTION: &str = "\
# Configuration

One YAML file, `vestibule serve --config vestibule.yaml`. Every key there is, with its default; a key
that is not here is refused, with its line and the keys that would be valid. `vestibule check` reads
a file as `serve` does and tells every mistake at once. The file is read again when it changes and on
SIGHUP; one with a mistake leaves the running configuration in place.

<!-- Made from the key tables of crates/registry/src/object.rs:
     VESTIBULE_UPDATE=1 cargo test -p vestibule-registry --test reference -->

| written as | is |
|---|---|
| a duration | `500ms`, `60s`, `2m`, `1h` |
| a size | `512KiB`, `4MiB`, `1048576` (bytes) |
| a rate | `50/s`, `300/m`, `1000/h`; `0` lets nothing through |
| a secret | the text itself, `{ from_env: NAME }` or `{ from_file: PATH }` |
| a path | relative ones from the folder of the file |
| `${NAME}` in a value | the environment variable of that name; `$${` is `${` itself |

A file that holds `command` or `env` must belong to root or to the process's own user, and neither its
group nor others may write to it.
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for object in OBJECTS {
        write!(page, "\n## {}\n\n", object.path).expect("a string grows");
        page.push_str("| key | default | valid values | meaning |\n|---|---|---|---|\n");
        let served = object.keys.iter().filter(|key| key.served);
        for (key, (_, takes)) in served.zip(object.takes) {
            let default = match key.default {
                "" => needed(key.name),
                default => default,
            };
            let values = match takes {
                Text(text) => (*text).to_owned(),
                Choice(choices) => codes(choices),
            };
            let (name, about) = (key.name, key.about.replace('<', "\\<"));
            writeln!(page, "| `{name}` | {default} | {values} | {about} |")
                .expect("a string grows");
        }
    }
    page.push_str(
        "\n## Not available in this version\n\nKnown, and refused with a message that says so.\n\n| in | keys |\n|---|---|\n",
    );
    for object in OBJECTS {
        let later = object.keys.iter().filter(|key| !key.served);
        let names: Vec<&str> = later.map(|key| key.name).collect();
        if !names.is_empty() {
            writeln!(page, "| {} | {} |", object.path, codes(&names)).expect("a string grows");
        }
    }
    page
}

/// When a key without a default must be given.
fn needed(name: &str) -> &'static str {
    match name {
        "url" => "this or `command`",
        "command" => "this or `url`",
        "sha256" => "this or `secret`",
        "upstream" => "this or `upstreams`",
        "previous_until" => "needed with `previous_sha256`",
        _ => "must be given",
    }
}

/// Choices as the page shows them.
fn codes(choices: &[&str]) -> String {
    let codes: Vec<String> = choices.iter().map(|choice| format!("`{choice}`")).collect();
    codes.join(", ")
}

#[test]
fn the_page_says_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CONFIGURATION.md");
    let page = page();
    if std::env::var_os("VESTIBULE_UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (found, expected)) in found.lines().zip(page.lines()).enumerate() {
        assert_eq!(found, expected, "line {}", number + 1);
    }
    assert_eq!(
        found, page,
        "mend: VESTIBULE_UPDATE=1 cargo test -p vestibule-registry --test reference"
    );
}

#[test]
fn every_served_key_has_its_values_written_down() {
    for object in OBJECTS {
        let served = object.keys.iter().filter(|key| key.served);
        let served: Vec<&str> = served.map(|key| key.name).collect();
        let written: Vec<&str> = object.takes.iter().map(|(name, _)| *name).collect();
        assert_eq!(served, written, "{}", object.path);
    }
}

/// The reader names the page's choices when it is given something else.
#[test]
fn the_choices_of_the_page_are_the_readers() {
    let mut asked = 0;
    for object in OBJECTS {
        for (name, takes) in object.takes {
            let Choice(choices) = takes else { continue };
            let (before, behind) = object.yaml;
            let text = format!("{before}{name}: \"no such thing\"{behind}");
            let mistakes = parse(&text, "choices.yaml", &|_| None).expect_err("a mistake");
            let path = format!("{}{name}", object.reported);
            let mistake = mistakes.iter().find(|mistake| mistake.key_path == path);
            let mistake = mistake.unwrap_or_else(|| panic!("no mistake at {path} in {text}"));
            assert_eq!(mistake.one_of, *choices, "{path}");
            asked += 1;
        }
    }
    assert!(asked > 10, "{asked} closed sets of choices");
}

/// The reader refuses what the last table lists, and says why.
#[test]
fn keys_of_the_last_table_are_refused_as_not_available() {
    let mut asked = 0;
    for object in OBJECTS {
        for key in object.keys.iter().filter(|key| !key.served) {
            let (before, behind) = object.yaml;
            let text = format!("{before}{}: {{}}{behind}", key.name);
            let mistakes = parse(&text, "later.yaml", &|_| None).expect_err("a mistake");
            let path = format!("{}{}", object.reported, key.name);
            let said = mistakes.iter().any(|mistake| {
                mistake.key_path == path && mistake.what.contains("not available in this version")
            });
            assert!(said, "{path}");
            asked += 1;
        }
    }
    assert!(asked > 20, "{asked} keys");
}
