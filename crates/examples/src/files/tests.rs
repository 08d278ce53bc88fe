//! The server as a client drives it: lines in, lines out.

use super::*;

/// Sends the lines and returns the answers.
fn talk(lines: &[&str]) -> Vec<Value> {
    let input = lines.join("\n");
    let mut output = Vec::new();
    run_files(input.as_bytes(), &mut output).unwrap();
    let output = String::from_utf8(output).unwrap();
    output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const OPEN: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}"#;
const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn ask(method: &str, params: Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": "x", "method": method, "params": params });
    let answers = talk(&[OPEN, READY, &request.to_string()]);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(answers[1]["id"], "x");
    answers[1].clone()
}

fn tool(name: &str, arguments: Value) -> (String, bool) {
    let answer = ask(
        "tools/call",
        json!({ "name": name, "arguments": arguments }),
    );
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    (text, result["isError"] == json!(true))
}

/// STD-01: one answer a line, in order; notifications and empty lines have none.
#[test]
fn std_01_a_conversation_is_one_message_a_line() {
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let answers = talk(&[OPEN, READY, "", list, "{", "[]"]);
    assert_eq!(answers.len(), 4);
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(answers[1]["result"]["tools"].as_array().unwrap().len(), 3);
    assert_eq!(answers[2]["error"]["code"], rpc::PARSE);
    assert_eq!(answers[3]["error"]["code"], INVALID_REQUEST);
}

/// VER-01: a version that is not served is answered with one that is.
#[test]
fn ver_01_the_version_is_negotiated() {
    for (asked, given) in [
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let open = OPEN.replace("2025-11-25", asked);
        assert_eq!(talk(&[&open])[0]["result"]["protocolVersion"], given);
    }
}

/// LIF-01, VER-13: a client that first asks for a stateless server gets an error it can tell.
#[test]
fn lif_01_nothing_but_ping_is_answered_before_initialize() {
    let discover = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}"#;
    let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    let answers = talk(&[discover, ping]);
    assert_eq!(answers[0]["error"]["code"], INVALID_REQUEST);
    assert_eq!(answers[1]["result"], json!({}));
    let answer = ask("server/discover", json!({}));
    assert_eq!(answer["error"]["code"], rpc::METHOD_NOT_FOUND);
}

#[test]
fn tools_list_read_and_search_the_tree() {
    assert_eq!(tool("list_dir", json!({})).0, "README.md\ndata/\nguide/");
    assert_eq!(
        tool("list_dir", json!({ "path": "guide/" })).0,
        "start.md\ntenants.md"
    );
    assert!(
        tool("read_file", json!({ "path": "guide/start.md" }))
            .0
            .starts_with("# Start")
    );
    assert_eq!(
        tool("search", json!({ "text": "TOKYO" })).0,
        "data/cities.csv:5: Tokyo,Japan,+09:00"
    );
}

/// ERR-12: what the model can correct is a tool error, an unknown tool is none of its results.
#[test]
fn err_12_bad_arguments_are_tool_errors() {
    for (name, arguments) in [
        ("list_dir", json!({ "path": "nowhere" })),
        ("read_file", json!({ "path": "../README.md" })),
        ("read_file", json!({})),
        ("search", json!({ "text": "" })),
    ] {
        assert!(tool(name, arguments).1, "{name}");
    }
    let answer = ask("tools/call", json!({ "name": "nothing" }));
    assert_eq!(answer["error"]["code"], rpc::INVALID_PARAMS);
}

/// RSC-02: a URI with dot segments is no resource.
#[test]
fn rsc_02_resources_are_read_by_exact_uri() {
    let listed = ask("resources/list", json!({}));
    for resource in listed["result"]["resources"].as_array().unwrap() {
        let answer = ask("resources/read", json!({ "uri": resource["uri"] }));
        let content = &answer["result"]["contents"][0];
        assert_eq!(content["uri"], resource["uri"]);
        assert_eq!(content["text"].as_str().unwrap().len(), resource["size"]);
    }
    for uri in [
        "file:///guide/../README.md",
        "file:///etc/passwd",
        "README.md",
    ] {
        let answer = ask("resources/read", json!({ "uri": uri }));
        assert_eq!(answer["error"]["code"], RESOURCE_NOT_FOUND, "{uri}");
        assert_eq!(answer["error"]["data"]["uri"], uri);
    }
}

#[test]
fn a_line_that_is_too_long_does_not_end_the_server() {
    let long = format!("\"{}\"", "x".repeat(3 << 20));
    let answers = talk(&[&long, OPEN]);
    assert_eq!(answers[0]["error"]["code"], INVALID_REQUEST);
    assert!(answers[1]["result"].is_object());
}
