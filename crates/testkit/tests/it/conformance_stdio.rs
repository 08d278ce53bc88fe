//! The conformance upstream over stdio, opened in each era.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};
use vestibule_testkit::PATIENCE;

struct Server {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(era: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_conformance-upstream"))
            .args(["--stdio", "--era", era])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            input,
            output,
        }
    }

    async fn say(&mut self, message: Value) {
        self.input
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = timeout(PATIENCE, self.output.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.say(message).await;
        self.next().await
    }
}

fn modern(id: u64, method: &str, params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn initialize(id: u64) -> Value {
    let info = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": info });
    json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": params })
}

#[tokio::test]
async fn a_probe_with_discovery_may_be_followed_by_either_era() {
    let mut server = Server::start("both");
    let discovered = server.ask(modern(1, "server/discover", json!({}))).await;
    assert!(
        discovered["result"]["supportedVersions"]
            .as_array()
            .unwrap()
            .contains(&json!("2026-07-28"))
    );
    let listed = server.ask(modern(2, "tools/list", json!({}))).await;
    assert_eq!(listed["result"]["resultType"], "complete");

    let mut server = Server::start("both");
    server.ask(modern(1, "server/discover", json!({}))).await;
    assert_eq!(
        server.ask(initialize(2)).await["result"]["protocolVersion"],
        "2025-11-25"
    );
}

#[tokio::test]
async fn a_legacy_only_server_answers_discovery_as_an_unknown_method() {
    let mut server = Server::start("legacy");
    assert_eq!(
        server.ask(modern(1, "server/discover", json!({}))).await["error"]["code"],
        -32601
    );
    assert_eq!(
        server.ask(initialize(2)).await["result"]["protocolVersion"],
        "2025-11-25"
    );
}

#[tokio::test]
async fn a_modern_only_server_advertises_no_other_revision() {
    let mut server = Server::start("modern");
    let discovered = server.ask(modern(1, "server/discover", json!({}))).await;
    assert_eq!(
        discovered["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
}

#[tokio::test]
async fn a_legacy_question_is_a_request_of_the_server() {
    let mut server = Server::start("both");
    server.ask(initialize(1)).await;
    server
        .say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
        .await;
    let params = json!({ "name": "test_elicitation", "arguments": { "message": "Who?" } });
    let question = server
        .ask(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }))
        .await;
    assert_eq!(
        (&question["method"], &question["params"]["message"]),
        (&json!("elicitation/create"), &json!("Who?"))
    );
    let answer = json!({ "action": "accept", "content": { "username": "ada", "email": "a@b.c" } });
    let done = server
        .ask(json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }))
        .await;
    assert!(
        done["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("ada")
    );
}

#[tokio::test]
async fn it_ends_with_its_input() {
    let mut server = Server::start("both");
    server.ask(initialize(1)).await;
    drop(server.input);
    assert!(
        timeout(PATIENCE, server.child.wait())
            .await
            .unwrap()
            .unwrap()
            .success()
    );
}
