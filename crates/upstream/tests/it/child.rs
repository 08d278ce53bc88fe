//! The other side of the stdio tests: this test binary, started again with a part to play.
//!
//! The test harness writes lines of its own to stdout before and after; they are no messages and
//! have to be skipped, which every one of these tests thereby shows (STD-03).

use std::io::{BufRead, Write};

use serde_json::{Value, json};

/// The variable that names the part.
pub(crate) const PART: &str = "VESTIBULE_TEST_PART";

/// The command that plays a part.
pub(crate) fn command() -> Vec<String> {
    let me = std::env::current_exe()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let arguments = [
        "--exact",
        "child::plays_its_part",
        "--nocapture",
        "--test-threads=1",
    ];
    std::iter::once(me)
        .chain(arguments.map(str::to_owned))
        .collect()
}

fn say(message: &Value) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{message}").unwrap();
    stdout.flush().unwrap();
}

fn result(request: &Value, result: Value) {
    say(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
}

fn error(request: &Value, code: i64) {
    say(
        &json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": code, "message": "no" } }),
    );
}

/// Not a test of its own: without a part to play there is nothing to do.
#[test]
fn plays_its_part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    println!(); // ends the line that the harness has begun
    if part == "stubborn" {
        // goes on when asked to end, and leaves a grandchild behind
        let grandchild = std::process::Command::new("sleep").arg("300").spawn();
        std::mem::forget(grandchild.unwrap());
    }
    let mut waiting: Vec<Value> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let message: Value = serde_json::from_str(&line).unwrap();
        play(&part, &message, &mut waiting);
    }
    if part == "stubborn" {
        loop {
            std::thread::park();
        }
    }
    std::process::exit(0);
}

fn play(part: &str, message: &Value, waiting: &mut Vec<Value>) {
    let method = message["method"].as_str().unwrap_or_default();
    match (part, method) {
        ("modern", "server/discover") => result(
            message,
            json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {},
                "ttlMs": 1000, "cacheScope": "public", "instructions": "hi" }),
        ),
        ("picky", "server/discover") => std::process::exit(3),
        ("silent", "server/discover") => {}
        (_, "server/discover") => error(message, -32601),
        (_, "initialize") => result(
            message,
            json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                "serverInfo": { "name": "c", "version": "1" }, "instructions": format!("{}", std::process::id()) }),
        ),
        (_, "tools/list") => result(message, json!({ "tools": [], "pid": std::process::id() })),
        (_, "tools/call") => tool(message, waiting),
        (_, "subscriptions/listen") => {
            let meta = json!({ "io.modelcontextprotocol/subscriptionId": message["id"] });
            say(
                &json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                "params": { "_meta": meta } }),
            );
            say(
                &json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": { "_meta": meta } }),
            );
        }
        (_, "notifications/cancelled") => {
            // the next answer says which request was cancelled
            waiting.retain(|request| request["id"] != message["params"]["requestId"]);
        }
        (_, "") => answered(message, waiting),
        (_, _) => {}
    }
}

fn tool(message: &Value, waiting: &mut Vec<Value>) {
    let token = message["params"]["_meta"]["progressToken"].clone();
    match message["params"]["name"].as_str().unwrap_or_default() {
        "hang" => waiting.push(message.clone()),
        "count" => result(message, json!({ "waiting": waiting.len() })),
        "crash" => std::process::exit(1),
        "env" => {
            let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
            let cwd = std::env::current_dir().unwrap();
            result(
                message,
                json!({ "env": names, "cwd": cwd, "pid": std::process::id() }),
            );
        }
        "progress" => {
            for value in [1, 2] {
                say(
                    &json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                    "params": { "progressToken": token, "progress": value } }),
                );
            }
            result(message, json!({}));
        }
        "batch" => say(&json!([
            { "jsonrpc": "2.0", "id": "x", "method": "ping" },
            { "jsonrpc": "2.0", "id": message["id"], "result": { "batched": true } },
        ])),
        "noise" => {
            for _ in 0..200 {
                println!("oops");
            }
        }
        "some noise" => {
            eprintln!("a line for the log");
            println!("oops");
            println!("{{\"jsonrpc\":\"2.0\",\"id\":\"nobody\",\"result\":{{}}}}");
            result(message, json!({}));
        }
        "both" => say(
            &json!({ "jsonrpc": "2.0", "id": message["id"], "result": {}, "error": { "code": 1, "message": "x" } }),
        ),
        "ask" => {
            waiting.push(message.clone());
            say(
                &json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": {} }),
            );
        }
        "long" => println!("{}", "x".repeat(70_000)),
        _ => result(
            message,
            json!({ "pid": std::process::id(), "line": message }),
        ),
    }
}

/// An answer to our question ends the call that waits for it.
fn answered(message: &Value, waiting: &mut Vec<Value>) {
    if let Some(request) = waiting.pop() {
        result(
            &request,
            json!({ "answer": message["result"], "to": message["id"] }),
        );
    }
}
