//! JSONTestSuite through a running gateway: each text as the value of an argument, from a stateless
//! client and from one with a session. What is taken reaches the upstream byte for byte; what is
//! refused reaches nobody.

use std::collections::BTreeMap;

use serde_json::json;
use vestibule_testkit::recording::{Answer, legacy_basics, modern_basics};
use vestibule_testkit::{RawRequest, RecordingUpstream};

use crate::harness::Gateway;
use crate::suite::{OPEN, Open, files};
use crate::talk::{META, SESSIONS, Session, at, modern_text, open_tenant};

/// The page that tells users what [`OPEN`] decides.
const PAGE: &str = include_str!("../../../../docs/JSON.md");

/// What the gateway does with a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Taken,
    /// 400 with this code.
    Refused(i64),
}

fn decided(open: Open) -> Verdict {
    match open {
        Open::Number | Open::HalfPair => Verdict::Taken,
        Open::NotUtf8 | Open::NoJson => Verdict::Refused(-32700),
        Open::Deep => Verdict::Refused(-32600),
    }
}

/// What must become of the file.
fn wanted(name: &str) -> Verdict {
    match name.get(..2) {
        Some("y_") => Verdict::Taken,
        Some("i_") => {
            let open = OPEN.iter().find(|(open, _)| *open == name);
            let (_, open) = open.unwrap_or_else(|| panic!("{name} is not decided"));
            decided(*open)
        }
        // deeper than the limit, which is found before the end is missed
        _ if name.starts_with("n_structure_100000_opening")
            || name.starts_with("n_structure_open_array_object") =>
        {
            Verdict::Refused(-32600)
        }
        _ => Verdict::Refused(-32700),
    }
}

const BEFORE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"v":"#;

/// A call with the text as the value of an argument; the mark says which file it is.
fn call(name: &str, text: &[u8], meta: &str) -> Vec<u8> {
    let behind = format!(r#"}},"file":"{name}"{meta}}}}}"#);
    [BEFORE.as_bytes(), text, behind.as_bytes()].concat()
}

/// An upstream that answers every call, even one that no test peer can parse.
async fn upstream(modern: bool) -> RecordingUpstream {
    let upstream = RecordingUpstream::start(move |request| {
        let capabilities = json!({ "tools": {} });
        if let Some(id) = own_id(&request.body) {
            let typed = if modern {
                r#","resultType":"complete""#
            } else {
                ""
            };
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{"content":[]{typed}}}}}"#);
            return Answer::Full {
                status: 200,
                fields: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: body.into(),
            };
        }
        let basics = match modern {
            true => modern_basics(request, &capabilities),
            false => legacy_basics(request, &capabilities),
        };
        basics.unwrap_or_else(|| Answer::empty(404))
    });
    upstream.await.unwrap()
}

/// The id of a call with a text of the suite.
fn own_id(body: &[u8]) -> Option<String> {
    let start = br#"{"jsonrpc":"2.0","id":""#;
    let rest = body.strip_prefix(start)?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let (id, rest) = rest.split_at(end);
    let called = br#"","method":"tools/call","params":{"name":"t","arguments":{"v":"#;
    rest.starts_with(called)
        .then(|| String::from_utf8(id.to_vec()).unwrap())
}

/// Texts that reached the upstream, by file: what stands between the value's place and the mark.
fn arrived(upstream: &RecordingUpstream) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for request in upstream.requests() {
        let Some(id) = own_id(&request.body) else {
            continue;
        };
        let before = BEFORE.replacen("\"id\":1", &format!("\"id\":\"{id}\""), 1);
        let rest = request.body.strip_prefix(before.as_bytes()).unwrap();
        let mark = br#"},"file":""#;
        let at = rest.windows(mark.len()).rposition(|part| part == mark);
        let (text, rest) = rest.split_at(at.expect("the mark"));
        let name = rest.get(mark.len()..).unwrap();
        let end = name.iter().position(|byte| *byte == b'"').unwrap();
        let name = String::from_utf8(name[..end].to_vec()).unwrap();
        let again = found.insert(name.clone(), text.to_vec());
        assert!(again.is_none(), "{name} came twice");
    }
    found
}

/// Sends every file and compares verdicts and bytes.
async fn run(
    gateway: &Gateway,
    upstream: &RecordingUpstream,
    request: &dyn Fn(&str, &[u8]) -> RawRequest,
) {
    let files = files();
    let mut connection = gateway.connect().await;
    for (name, text) in &files {
        let answer = connection.ask(&request(name, text)).await.unwrap();
        let verdict = match answer.status {
            200 => {
                assert!(
                    answer.json()["result"].is_object(),
                    "{name}: {:?}",
                    answer.body
                );
                Verdict::Taken
            }
            400 => Verdict::Refused(answer.json()["error"]["code"].as_i64().unwrap()),
            other => panic!("{name}: {other} {:?}", answer.body),
        };
        assert_eq!(verdict, wanted(name), "{name}");
    }
    let arrived = arrived(upstream);
    let mut counts = [0; 3];
    for (name, text) in &files {
        let taken = wanted(name) == Verdict::Taken;
        let expected = taken.then_some(text);
        assert_eq!(arrived.get(name), expected, "{name} at the upstream");
        counts[["n_", "y_", "i_"]
            .iter()
            .position(|kind| name.starts_with(kind))
            .unwrap()] += 1;
    }
    assert_eq!(counts, [188, 95, 35], "the whole suite");
}

/// T10, T11, T12, FRM-02, FRM-24: 188 of 188 refused, 95 of 95 taken byte for byte, 35 of 35 decided,
/// for clients of both eras.
#[tokio::test]
async fn t11_t12_json_test_suite_through_the_gateway() {
    let (new, old) = (upstream(true).await, upstream(false).await);
    let reach = [("new", at(&new.url())), ("old", at(&old.url()))];
    let gateway = Gateway::start(&open_tenant(&reach, ""));
    run(&gateway, &new, &|name, text| {
        let body = call(name, text, &format!(",{META}"));
        modern_text("/mcp/t/new", "tools/call", Some("t"), body)
    })
    .await;
    let session = Session::open(&gateway, "/mcp/t/old", SESSIONS[0]).await;
    run(&gateway, &old, &|name, text| {
        session.text(call(name, text, ""))
    })
    .await;
}

/// The page for users says of each open file what is done with it, and of no other.
#[test]
fn docs_json_md_says_what_is_decided() {
    let rows: BTreeMap<&str, bool> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `i_"))
        .map(|row| {
            let (name, rest) = row.split_once('`').unwrap();
            (name, rest.split('|').nth(1).unwrap().trim() == "passes")
        })
        .collect();
    for (name, open) in OPEN {
        let taken = decided(open) == Verdict::Taken;
        let name = name.strip_prefix("i_").unwrap();
        assert_eq!(rows.get(name), Some(&taken), "i_{name} in docs/JSON.md");
    }
    assert_eq!(rows.len(), OPEN.len());
}
