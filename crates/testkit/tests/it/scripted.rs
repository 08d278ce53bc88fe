//! The scripted stdio server as a process.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use vestibule_testkit::scripted_stdio::{Script, UNEXPECTED};

struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(script: &Script) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_scripted-stdio"))
            .args(script.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn end(mut self) -> i32 {
        drop(self.input.take());
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn it_replies_in_order_with_noise_between_and_records_what_it_read() {
    let script = Script::new(&[
        json!({ "always": "ping", "reply": [{ "id": "$id", "result": {} }] }),
        json!({ "noise": "starting up" }),
        json!({ "expect": "initialize", "reply": [{ "id": "$id", "result": { "first": true } }] }),
        json!({ "expect": "tools/call", "reply": [{ "method": "notifications/progress", "token": "$token" }, { "id": "$id" }] }),
    ])
    .unwrap();
    let mut server = Running::start(&script);
    assert_eq!(server.line(), "starting up");
    server.say(&json!({ "id": "p", "method": "ping" }));
    assert_eq!(server.line(), r#"{"id":"p","result":{}}"#);
    server.say(&json!({ "id": 1, "method": "initialize" }));
    assert_eq!(server.line(), r#"{"id":1,"result":{"first":true}}"#);
    server.say(&json!({ "id": 2, "method": "tools/call", "params": { "_meta": { "progressToken": "t" } } }));
    assert_eq!(
        server.line(),
        r#"{"method":"notifications/progress","token":"t"}"#
    );
    assert_eq!(server.line(), r#"{"id":2}"#);
    server.say(&json!({ "id": 3, "method": "ping" }));
    assert_eq!(server.line(), r#"{"id":3,"result":{}}"#);
    assert_eq!(server.end(), 0);
    assert_eq!(script.record().len(), 4);
    assert_eq!(script.record()[1], r#"{"id":1,"method":"initialize"}"#);
}

#[test]
fn another_method_than_expected_ends_it() {
    let script = Script::new(&[json!({ "expect": "initialize" })]).unwrap();
    let mut server = Running::start(&script);
    server.say(&json!({ "id": 1, "method": "tools/list" }));
    assert_eq!(server.end(), UNEXPECTED);
}

#[test]
fn it_exits_when_told_even_within_a_line() {
    let script = Script::new(&[json!({ "partial": "{\"id\":" }), json!({ "exit": 9 })]).unwrap();
    let mut server = Running::start(&script);
    let mut output = String::new();
    server.output.read_to_string(&mut output).unwrap();
    assert_eq!(output, "{\"id\":");
    assert_eq!(server.end(), 9);
}

#[test]
fn a_stubborn_one_outlives_the_end_of_its_input_and_termination() {
    let script = Script::new(&[
        json!({ "stubborn": true }),
        json!({ "noise": "ready" }),
        json!({ "expect": "x", "reply": ["still here"] }),
    ])
    .unwrap();
    let mut server = Running::start(&script);
    assert_eq!(server.line(), "ready");
    let pid = server.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    server.say(&json!({ "method": "x" }));
    assert_eq!(server.line(), "still here");
    drop(server.input.take());
    assert!(server.child.try_wait().unwrap().is_none());
}
