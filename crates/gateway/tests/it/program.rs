//! The commands as a person at a terminal meets them: what they print, and how they end.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::json;

use crate::process::{Folder, PROGRAM, Program, Served, configuration, gone};
use crate::talk::{modern_call, text};

const SOON: Duration = Duration::from_secs(10);

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .env_remove("VESTIBULE_LOG")
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const GOOD: &str = "  t:\n    auth: none\n    policy: allow_all\n    upstreams:\n      up: { url: \"http://127.0.0.1:9/mcp\" }\n";

#[test]
fn check_says_that_a_good_file_is_valid_and_exits_0() {
    let folder = Folder::new();
    let file = folder.write("good.yaml", &configuration("", GOOD));
    let output = run(&["check", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = stdout(&output);
    assert!(
        said.contains("valid: 1 tenants, 1 servers, 1 upstreams"),
        "{said}"
    );
    assert_eq!(stderr(&output), "");
}

/// Every mistake at once, each with its place, its key and the choices; exit 1.
#[test]
fn check_prints_every_mistake_with_its_place_and_exits_1() {
    let folder = Folder::new();
    let text = "listen: { adress: \"127.0.0.1:0\" }
store: { kind: embeded }
tenants:
  t:
    auth: open
    policy: allow_all
    upstreams:
      up: { url: \"http://127.0.0.1:9/mcp\", era: new }
    servers:
      default: { upstreams: [up, other] }
      s: { upstream: up, stream_after: soon }
";
    let file = folder.write("bad.yaml", text);
    let file = file.to_str().unwrap();
    let output = run(&["check", "--config", file]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = stdout(&output);
    for (place, key, choice) in [
        ("1:11", "listen.adress", "address"),
        ("2:16", "store.kind", "embedded"),
        ("5:11", "tenants.t.auth", "none"),
        ("8:49", "tenants.t.upstreams.up.era", "modern"),
        ("10:34", "tenants.t.servers.default.upstreams[1]", "up"),
        ("11:40", "tenants.t.servers.s.stream_after", ""),
    ] {
        let line = said
            .lines()
            .find(|line| line.contains(key))
            .unwrap_or_else(|| panic!("nothing about {key} in\n{said}"));
        assert!(line.starts_with(&format!("{file}:{place} {key}")), "{line}");
        assert!(line.contains(choice), "{line}");
    }
    assert_eq!(said.lines().count(), 6, "{said}");
}

#[test]
fn check_of_a_file_that_is_not_there_or_no_yaml_exits_1() {
    let folder = Folder::new();
    let absent = run(&["check", "--config", "/nonexistent/vestibule.yaml"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(
        format!("{}{}", stdout(&absent), stderr(&absent)).contains("/nonexistent/vestibule.yaml")
    );
    for text in ["tenants: [", "\u{0}", "a: 1\na: 2\n", "- x"] {
        let file = folder.write("no.yaml", text);
        let output = run(&["check", "--config", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{text:?}: {output:?}");
        assert!(stdout(&output).contains("no.yaml"), "{text:?}: {output:?}");
    }
}

#[test]
fn wrong_usage_exits_2() {
    for arguments in [
        &[][..],
        &["nonsense"],
        &["serve"],
        &["check"],
        &["serve", "--config"],
        &["demo", "--listen", "nonsense"],
        &["demo", "--nonsense"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_of_each_command_says_all_of_it() {
    for (arguments, texts) in [
        (
            &["--help"][..],
            &["demo", "serve", "check", "--version"][..],
        ),
        (
            &["demo", "--help"],
            &["--once", "--listen", "--admin-listen", "127.0.0.1:8080"],
        ),
        (
            &["serve", "--help"],
            &["--config <FILE>", "SIGHUP", "SIGTERM"],
        ),
        (&["check", "--help"], &["--config <FILE>", "offline"]),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0));
        let said = stdout(&output);
        for text in texts {
            assert!(said.contains(text), "{arguments:?}: {text}: {said}");
        }
        assert!(!said.contains("example-files"), "hidden");
    }
    let version = run(&["--version"]);
    assert!(stdout(&version).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn serve_refuses_a_bad_file_with_its_mistakes_and_exits_1() {
    let folder = Folder::new();
    let file = folder.write("bad.yaml", "tenants:\n  t: { policy: allow_all }\n");
    let output = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("bad.yaml:2:") && said.contains("tenants.t.auth"),
        "{said}"
    );
    assert!(stdout(&output).is_empty());
}

#[test]
fn demo_once_runs_its_transcript_and_exits_0() {
    let output = run(&[
        "demo",
        "--once",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = stdout(&output);
    for text in [
        "2025-11-25",
        "2026-07-28",
        "notes",
        "clock",
        "files",
        "0 not",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
}

#[test]
fn a_busy_port_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for arguments in [
        [
            "demo",
            "--listen",
            &address,
            "--admin-listen",
            "127.0.0.1:0",
        ],
        [
            "demo",
            "--admin-listen",
            &address,
            "--listen",
            "127.0.0.1:0",
        ],
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains(&address), "{output:?}");
    }
    let folder = Folder::new();
    let text = configuration("", GOOD).replace(
        "listen: { address: \"127.0.0.1:0\" }",
        &format!("listen: {{ address: \"{address}\" }}"),
    );
    let file = folder.write("busy.yaml", &text);
    let output = run(&["serve", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains(&address), "{output:?}");
}

/// Ctrl-C stops the demo and leaves nothing behind.
#[tokio::test]
async fn ctrl_c_ends_the_demo_and_its_children() {
    let mut demo = Program::start(&[
        "demo",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ]);
    demo.stdout.with("Ctrl-C stops it all").await;
    let children = demo.children();
    assert!(!children.is_empty(), "the stdio example");
    let address = demo.stdout.with("curl -s").await;
    let said = demo.stdout.all().join("\n");
    assert!(
        said.contains("mcpServers") && said.contains("/readyz"),
        "{said}"
    );
    let port: u16 = address
        .split(':')
        .nth(2)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    // the printed call works
    let call = modern_call(
        "/mcp",
        "files__read_file",
        &json!({ "path": "data/cities.csv" }),
    );
    let mut client = vestibule_testkit::RawClient::connect(([127, 0, 0, 1], port).into())
        .await
        .unwrap();
    let answer = client.ask(&call).await.unwrap();
    assert!(text(&answer.json()).contains("Tokyo"), "{:?}", answer.body);
    drop(client);
    demo.signal("INT");
    let status = demo.ended(SOON).await;
    assert_eq!(status.code(), Some(0));
    for child in children {
        gone(child).await;
    }
}

/// STD-05: children end with the gateway however it ends, also one that ignores what it is told.
#[tokio::test]
async fn std_05_children_do_not_outlive_the_gateway() {
    let folder = Folder::new();
    let program = json!(PROGRAM);
    let tenants = format!(
        "  t:
    auth: none
    policy: allow_all
    upstreams:
      files: {{ command: [{program}, example-files] }}
    servers:
      files: {{ upstream: files }}
"
    );
    let file = folder.write(
        "stdio.yaml",
        &configuration("shutdown: { delay: 0s, grace: 5s }", &tenants),
    );
    for signals in [&["TERM"][..], &["TERM", "TERM"], &["INT"], &["KILL"]] {
        let mut served = Served::start(&file).await;
        let call = modern_call(
            "/mcp/t/files",
            "read_file",
            &json!({ "path": "data/cities.csv" }),
        );
        let answer = served.ask(&call).await;
        assert!(text(&answer.json()).contains("Tokyo"), "{:?}", answer.body);
        let children = served.program.children();
        assert!(!children.is_empty());
        for signal in signals {
            served.program.signal(signal);
        }
        served.program.ended(SOON).await;
        for child in children {
            gone(child).await;
        }
    }
}
