//! Upstreams that are processes, of both eras: what is written to them, what is made of what they
//! say, and what becomes of calls when they end.

use serde_json::{Value, json};
use vestibule_testkit::binaries::binary;
use vestibule_testkit::scripted_stdio::Script;

use crate::harness::Gateway;
use crate::peers::{MODERN, Session, Stream, VERSION, modern, notification, request};

/// A tenant whose upstream `up` is this program with these arguments.
fn process(program: &std::path::Path, arguments: &[String], env: &str) -> String {
    let mut command = vec![program.display().to_string()];
    command.extend_from_slice(arguments);
    let command = json!(command);
    format!(
        "  t:\n    auth: none\n    policy: allow_all\n    upstreams:\n      up: {{ command: {command}{env} }}\n    servers:\n      default: {{ upstreams: [up] }}\n      up: {{ upstream: up }}\n"
    )
}

async fn scripted(script: &Script) -> Gateway {
    let program = tokio::task::spawn_blocking(|| binary("scripted-stdio").unwrap())
        .await
        .unwrap();
    Gateway::start(&process(&program, &script.arguments(), ""))
}

pub(crate) fn initialized() -> Value {
    json!({ "always": "initialize", "reply": [{ "jsonrpc": "2.0", "id": "$id", "result": {
        "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" }
    } }] })
}

pub(crate) fn undiscovered() -> Value {
    json!({ "always": "server/discover", "reply": [{ "jsonrpc": "2.0", "id": "$id", "error": { "code": -32601, "message": "no" } }] })
}

/// A list with the tool `t`, in both eras' terms.
pub(crate) fn lists() -> Value {
    answers(
        "tools/list",
        &json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }], "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public" }),
    )
}

/// What a stateless server says to a handshake.
fn uninitialized() -> Value {
    json!({ "always": "initialize", "reply": [{ "jsonrpc": "2.0", "id": "$id", "error": { "code": -32601, "message": "no" } }] })
}

fn discovered() -> Value {
    json!({ "always": "server/discover", "reply": [{ "jsonrpc": "2.0", "id": "$id", "result": {
        "resultType": "complete", "supportedVersions": [MODERN], "capabilities": { "tools": {} }, "ttlMs": 60_000, "cacheScope": "public"
    } }] })
}

fn answers(method: &str, result: &Value) -> Value {
    json!({ "always": method, "reply": [{ "jsonrpc": "2.0", "id": "$id", "result": result }] })
}

fn done() -> Value {
    json!({ "content": [{ "type": "text", "text": "done" }], "resultType": "complete" })
}

pub(crate) fn record(script: &Script) -> Vec<Value> {
    let lines = script.record();
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of<'a>(record: &'a [Value], method: &str) -> Vec<&'a Value> {
    record
        .iter()
        .filter(|line| line["method"] == method)
        .collect()
}

/// Waits until the process has read a message of that method.
async fn read(script: &Script, method: &str) -> Value {
    let found = async {
        loop {
            if let Some(message) = of(&record(script), method).pop() {
                return message.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(vestibule_testkit::PATIENCE, found)
        .await
        .unwrap_or_else(|_| panic!("no {method} in {:?}", script.record()))
}

async fn call(gateway: &Gateway, target: &str, name: &str) -> Value {
    let params = json!({ "name": name });
    gateway
        .ask(modern(target, &json!(1), "tools/call", &params))
        .await
        .answer()
}

/// STD-01, STD-02, STD-03, STD-04, XT-021, XT-470: a process with a handshake: one message a line, noise and standard error
/// are no messages, and a body over several lines becomes one.
#[tokio::test]
async fn std_01_a_process_with_a_handshake_is_spoken_to_line_by_line() {
    let script = Script::new(&[
        json!({ "noise": "starting up" }),
        json!({ "noise": "" }),
        json!({ "stderr": "a word of warning" }),
        undiscovered(),
        initialized(),
        answers(
            "tools/call",
            &json!({ "content": [{ "type": "text", "text": "done" }] }),
        ),
        lists(),
    ])
    .unwrap();
    let gateway = scripted(&script).await;
    let answer = call(&gateway, "/mcp/t/up", "t").await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    assert_eq!(answer["result"]["resultType"], "complete");
    let session = Session::open(&gateway, "/mcp/t", json!({})).await;
    let body = "{\"jsonrpc\":\"2.0\",\r\n\"id\":5,\n\"method\":\"tools/call\",\"params\":{\"name\":\"up__t\",\n\"arguments\":{\"n\":1.0,\r\"s\":\"a\\nb\"}}}";
    let answer = gateway
        .ask(session.message(&Value::Null).body(body))
        .await
        .answer();
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    let lines = script.record();
    let last = lines.iter().rfind(|line| line.contains("\"s\"")).unwrap();
    assert!(
        last.contains(r#""arguments":{"n":1.0,"s":"a\nb"}"#),
        "{last}"
    );
    let all = record(&script);
    assert!(all.iter().all(
        |line| !line.to_string().contains("io.modelcontextprotocol/")
            || line["method"] == "server/discover"
    ));
    let initialized = all
        .iter()
        .position(|line| line["method"] == "notifications/initialized")
        .unwrap();
    let first = all
        .iter()
        .position(|line| line["method"] == "tools/call")
        .unwrap();
    assert!(initialized < first, "LIF-03");
}

/// STD-09, STD-12, XT-053, XT-023: a stateless process: metadata on every request, one process for all callers, requests of
/// it are ignored.
#[tokio::test]
async fn std_09_a_stateless_process_serves_all_callers() {
    let asks = json!({ "jsonrpc": "2.0", "id": "ask", "method": "ping" });
    let script = Script::new(&[
        discovered(),
        json!({ "always": "tools/call", "reply": [asks, { "jsonrpc": "2.0", "id": "$id", "result": done() }] }),
        uninitialized(),
        lists(),
    ])
    .unwrap();
    let gateway = scripted(&script).await;
    for _ in 0..2 {
        let answer = call(&gateway, "/mcp/t", "up__t").await;
        assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    }
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let answer = session.call(2, "tools/call", json!({ "name": "t" })).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    let all = record(&script);
    assert_eq!(of(&all, "tools/call").len(), 3);
    for line in all.iter().filter(|line| line["method"] != "initialize") {
        assert!(
            line["method"].is_string(),
            "nothing but requests and notifications: {line}"
        );
        assert_eq!(line["params"]["_meta"][VERSION], MODERN, "{line}");
    }
}

/// STD-07, CAN-09, XT-250: over a process a cancellation is a notification, in both eras.
#[tokio::test]
async fn std_07_cancellation_is_a_notification() {
    let modern_script = Script::new(&[discovered(), lists()]).unwrap();
    let gateway = scripted(&modern_script).await;
    let client = Stream::send(
        &gateway,
        modern(
            "/mcp/t/up",
            &json!(1),
            "tools/call",
            &json!({ "name": "t" }),
        ),
    )
    .await;
    let sent = read(&modern_script, "tools/call").await;
    client.abandon();
    let cancelled = read(&modern_script, "notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], sent["id"]);

    let legacy_script = Script::new(&[undiscovered(), initialized(), lists()]).unwrap();
    let gateway = scripted(&legacy_script).await;
    let session = Session::open(&gateway, "/mcp/t/up", json!({})).await;
    let mut client = session
        .begin(&request(7, "tools/call", &json!({ "name": "t" })))
        .await;
    let sent = read(&legacy_script, "tools/call").await;
    let cancel = notification("notifications/cancelled", &json!({ "requestId": 7 }));
    assert_eq!(session.post(&cancel).await.status, 202);
    let cancelled = read(&legacy_script, "notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], sent["id"]);
    assert_eq!(client.rest().await, Vec::<Value>::new());
}

/// Progress, logs and questions over a process with a handshake; the answer goes back as a line.
#[tokio::test]
async fn xt_052_questions_of_a_process_reach_the_caller() {
    let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": { "message": "?", "requestedSchema": { "type": "object", "properties": {} } } });
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": "$token", "progress": 1 } });
    let script = Script::new(&[
        undiscovered(),
        initialized(),
        lists(),
        json!({ "always": "notifications/initialized" }),
        json!({ "expect": "tools/call", "reply": [progress, question] }),
    ])
    .unwrap();
    let gateway = scripted(&script).await;
    let session = Session::open(&gateway, "/mcp/t/up", json!({ "elicitation": {} })).await;
    let params = json!({ "name": "t", "_meta": { "progressToken": "p" } });
    let mut client = session.begin(&request(7, "tools/call", &params)).await;
    assert_eq!(client.next().await["params"]["progressToken"], "p");
    let asked = client.next().await;
    assert_eq!(asked["method"], "elicitation/create");
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "decline" } });
    assert_eq!(session.post(&answer).await.status, 202);
    let back = async {
        loop {
            let all = record(&script);
            if let Some(line) = all
                .iter()
                .find(|line| line["id"] == 0 && line["method"].is_null())
            {
                return line["result"].clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let back = tokio::time::timeout(vestibule_testkit::PATIENCE, back)
        .await
        .unwrap();
    assert_eq!(back, json!({ "action": "decline" }));
}

/// STD-06, XT-476: a process that ends in a call fails that call, with its outcome unknown, and is
/// started again for the next.
#[tokio::test]
async fn std_06_a_process_that_ends_is_started_again() {
    for opening in [vec![discovered()], vec![undiscovered(), initialized()]] {
        let mut steps = opening;
        steps.push(lists());
        steps.push(json!({ "always": "notifications/initialized" }));
        steps.push(json!({ "expect": "tools/call" }));
        steps.push(json!({ "exit": 1 }));
        let script = Script::new(&steps).unwrap();
        let gateway = scripted(&script).await;
        for round in 1..3 {
            let answer = call(&gateway, "/mcp/t/up", "t").await;
            assert_eq!(answer["error"]["code"], -31001, "{answer}");
            assert_eq!(answer["error"]["data"]["reason"], "outcome_unknown");
            assert_eq!(
                of(&record(&script), "tools/call").len(),
                round,
                "never sent twice"
            );
        }
    }
}

/// A program that is not there, and one that says nothing sensible, are unavailable, at once.
#[tokio::test]
async fn a_program_that_cannot_start_is_unavailable() {
    let missing = std::path::Path::new("/nonexistent/program");
    let gateway = Gateway::start(&process(missing, &[], ""));
    let answer = call(&gateway, "/mcp/t/up", "t").await;
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
    let answer = answer.to_string();
    assert!(
        !answer.contains("nonexistent"),
        "no paths to clients: {answer}"
    );
}

/// STD-08: the environment is what is named and nothing else.
#[tokio::test]
async fn std_08_the_environment_is_what_is_named() {
    let program = std::path::Path::new("/bin/sh");
    let script = r#"read -r line; id=$(printf %s "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/'); env=$(env | cut -d= -f1 | sort | tr '\n' ' '); printf '{"jsonrpc":"2.0","id":"%s","result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"instructions":"%s"}}\n' "$id" "$env"; cat >/dev/null"#;
    let arguments = ["-c".to_owned(), script.to_owned()];
    let gateway = Gateway::start(&process(program, &arguments, ", env: { MY_OWN: \"x\" }"));
    let answer = gateway
        .ask(modern(
            "/mcp/t/up",
            &json!(1),
            "server/discover",
            &json!({}),
        ))
        .await;
    let text = answer.answer()["result"]["instructions"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(text.contains("MY_OWN"), "{:?}", answer.body);
    for name in text.split(' ').filter(|name| !name.is_empty()) {
        let own = [
            "PATH", "HOME", "LANG", "TZ", "MY_OWN", "PWD", "OLDPWD", "SHLVL", "_",
        ];
        assert!(own.contains(&name), "{name} in {text}");
    }
}
