use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use vestibule_exchange::view::CacheScope;
use vestibule_exchange::{Final, ListPage};
use vestibule_frame::Id;
use vestibule_terms::{Method, Revision};

use super::Encoder;
use crate::identity::Identity;
use crate::testing::{draft, result};

const A: Revision = Revision::R2024_11_05;
const B: Revision = Revision::R2025_03_26;
const C: Revision = Revision::R2025_06_18;
const D: Revision = Revision::R2025_11_25;
const E: Revision = Revision::R2026_07_28;
const LEGACY: [Revision; 4] = [A, B, C, D];

fn text_of(end: Final, method: Method, revision: Revision, strict: bool) -> String {
    let identity = Identity::new("vestibule", "1", Some("Vestibule"));
    let encoder = Encoder {
        revision,
        identity: &identity,
        strict,
        served: &[E],
    };
    encoder.reply(end, method, &Id::integer(1)).unwrap().text()
}

fn called(content: &str, revision: Revision) -> Value {
    let text = text_of(result(content), Method::ToolsCall, revision, false);
    serde_json::from_str::<Value>(&text).unwrap()["result"].take()
}

fn listed(items: &[&str], revision: Revision, strict: bool) -> Value {
    let page = ListPage {
        member: "tools",
        items: items
            .iter()
            .map(|item| Bytes::copy_from_slice(item.as_bytes()))
            .collect(),
        next_cursor: None,
        ttl_ms: 0,
        scope: CacheScope::Private,
    };
    let text = text_of(Final::List(page), Method::ToolsList, revision, strict);
    serde_json::from_str::<Value>(&text).unwrap()["result"]["tools"].take()
}

const AUDIO: &str = r#"{"content":[{"type":"audio","data":"AAAA","mimeType":"audio/wav","annotations":{"priority":1}}]}"#;
const LINK: &str = r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n","title":"T"}]}"#;

/// XT-350: audio for readers that have only embedded resources.
#[test]
fn xt_350_audio_becomes_an_embedded_resource_for_the_oldest_revision() {
    let resource = json!({"uri": "audio:", "mimeType": "audio/wav", "blob": "AAAA"});
    let block = json!({"type": "resource", "resource": resource, "annotations": {"priority": 1}});
    assert_eq!(called(AUDIO, A)["content"], json!([block]));
    for revision in [B, C, D, E] {
        assert_eq!(called(AUDIO, revision)["content"][0]["type"], "audio");
    }
}

/// XT-351: links for readers that have none.
#[test]
fn xt_351_resource_links_become_text_for_older_revisions() {
    for revision in [A, B] {
        let content = called(LINK, revision)["content"].take();
        assert_eq!(
            content,
            json!([{"type": "text", "text": "Resource: T a:b"}])
        );
    }
    for revision in [C, D, E] {
        assert_eq!(
            called(LINK, revision)["content"][0]["type"],
            "resource_link"
        );
    }
}

/// XT-351: what the router has rewritten is what the client reads.
#[test]
fn xt_351_levelling_sees_the_edits_made_before_it() {
    let Final::Message(mut link) = result(LINK) else {
        panic!()
    };
    let frame = link.frame().clone();
    let content = frame.member(frame.result().unwrap(), "content").unwrap();
    let block = frame.elements(content).next().unwrap();
    link.replace(
        frame.member(block, "uri").unwrap(),
        Bytes::from_static(b"\"up+a:b\""),
    );
    let text = text_of(Final::Message(link), Method::ToolsCall, A, false);
    assert!(text.contains("Resource: T up+a:b"), "{text}");
}

/// AMB-35, 11.3: kinds that no revision knows are text for legacy readers.
#[test]
fn amb_35_unknown_kinds_of_content_become_text() {
    let hologram = r#"{"content":[{"type":"hologram","x":1},{"type":"text","text":"t"}]}"#;
    for revision in LEGACY {
        let content = called(hologram, revision)["content"].take();
        assert_eq!(content[0]["type"], "text");
        assert_eq!(content[0]["text"], r#"{"type":"hologram","x":1}"#);
        assert_eq!(content[1]["text"], "t");
    }
    assert_eq!(called(hologram, E)["content"][0]["type"], "hologram");
}

/// TOL-11, XT-352: a value that is no object is removed where it would be refused, and said as
/// text where it may be missed.
#[test]
fn tol_11_structured_content_that_is_no_object() {
    let list = r#"{"content":[],"structuredContent":[1,2]}"#;
    for (revision, kept) in [(A, true), (B, true), (C, false), (D, false), (E, true)] {
        let result = called(list, revision);
        assert_eq!(
            result.get("structuredContent").is_some(),
            kept,
            "{revision}"
        );
        assert_eq!(
            result["content"],
            json!([{"type": "text", "text": "[1,2]"}]),
            "TOL-10"
        );
    }
}

/// TOL-10: text is added where it is missing and never twice.
#[test]
fn tol_10_text_of_structured_content_is_there_once() {
    let told = r#"{"content":[{"type":"text","text":"{ \"b\":2, \"a\":1 }"}],"structuredContent":{"a":1,"b":2}}"#;
    let human = r#"{"content":[{"type":"text","text":"one"}],"structuredContent":{"a":1}}"#;
    let silent = r#"{"content":[],"structuredContent":{"a":1}}"#;
    let blocks = |text: &str, revision| called(text, revision)["content"].as_array().unwrap().len();
    for revision in LEGACY {
        assert_eq!(blocks(told, revision), 1, "compared as JSON, {revision}");
        assert_eq!(blocks(silent, revision), 1, "{revision}");
    }
    assert_eq!(
        [A, B, C, D, E].map(|revision| blocks(human, revision)),
        [2, 2, 1, 1, 1]
    );
    assert_eq!(
        blocks(silent, E),
        0,
        "a stateless reader understands objects"
    );
}

/// 11.5: a tool result without content gets an empty one.
#[test]
fn a_tool_result_without_content_gets_an_empty_one() {
    for revision in Revision::ALL {
        assert_eq!(
            called(r#"{"isError":true}"#, revision)["content"],
            json!([]),
            "{revision}"
        );
    }
}

/// XT-353: prompts are levelled block by block.
#[test]
fn xt_353_prompt_messages_are_levelled() {
    let prompt = r#"{"messages":[{"role":"user","content":{"type":"audio","data":"AA","mimeType":"audio/wav"}},{"role":"user","content":{"type":"resource_link","uri":"a:b","name":"n"}}]}"#;
    let got = |revision| {
        let text = text_of(result(prompt), Method::PromptsGet, revision, false);
        let messages = serde_json::from_str::<Value>(&text).unwrap()["result"]["messages"].take();
        [0, 1].map(|index| {
            messages[index]["content"]["type"]
                .as_str()
                .unwrap()
                .to_owned()
        })
    };
    assert_eq!(got(A), ["resource", "text"]);
    assert_eq!(got(B), ["audio", "text"]);
    assert_eq!(got(D), ["audio", "resource_link"]);
}

/// TOL-11: an output schema that is no object schema would make the whole list unreadable.
#[test]
fn tol_11_output_schemas_that_are_no_objects_are_removed_where_refused() {
    let tools = [
        r#"{"name":"a","outputSchema":{"type":"array"},"x":1}"#,
        r#"{"name":"b","outputSchema":{"type":"object"}}"#,
        r#"{"name":"c","outputSchema":{"anyOf":[]}}"#,
    ];
    for (revision, kept) in [(A, 3), (B, 3), (C, 1), (D, 1), (E, 3)] {
        let listed = listed(&tools, revision, false);
        let tools = listed.as_array().unwrap();
        let with = tools
            .iter()
            .filter(|tool| tool.get("outputSchema").is_some())
            .count();
        assert_eq!(with, kept, "{revision}");
        assert_eq!(tools[0]["x"], 1);
    }
}

/// XT-366: display fields pass; under `strict_fields` the newer ones go.
#[test]
fn xt_366_newer_display_fields_pass_unless_fields_are_strict() {
    let tool = [
        r#"{"name":"a","title":"A","icons":[],"annotations":{},"execution":{"taskSupport":"optional"},"inputSchema":{"type":"object"}}"#,
    ];
    for revision in Revision::ALL {
        let keys = |strict| {
            listed(&tool, revision, strict)[0]
                .as_object()
                .unwrap()
                .len()
        };
        assert_eq!(keys(false), 6, "{revision}");
        let strict = match revision {
            A => 2,
            B => 3,
            C => 4,
            Revision::R2025_11_25 | Revision::R2026_07_28 => 6,
        };
        assert_eq!(keys(true), strict, "{revision}");
    }
}

/// FRM-04: error responses of upstreams pass under the client's id.
#[test]
fn frm_04_an_upstreams_error_passes_under_the_clients_id() {
    let text =
        r#"{"jsonrpc":"2.0","id":"g-1","error":{"code":-32602,"message":"no","data":[1.50]}}"#;
    for revision in Revision::ALL {
        let end = Final::Message(draft(text));
        let expected = text.replace("\"g-1\"", "1");
        assert_eq!(text_of(end, Method::ToolsCall, revision, false), expected);
    }
}

/// CCH-03: what an upstream says of a lifetime is made sense of.
#[test]
fn cch_03_missing_and_negative_lifetimes_are_none() {
    for (stated, ttl) in [("", 0), (",\"ttlMs\":-5", 0), (",\"ttlMs\":60", 60)] {
        let text = format!(r#"{{"contents":[]{stated}}}"#);
        let text = text_of(result(&text), Method::ResourcesRead, E, false);
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(body["result"]["ttlMs"], ttl);
        assert_eq!(body["result"]["cacheScope"], "private");
    }
}

proptest! {
    /// XT-541: members that are nobody's pass byte for byte into every revision.
    #[test]
    fn xt_541_foreign_members_pass_byte_for_byte(
        number in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        key in "[a-z]{1,8}x",
        space in "[ \\t\\n]{0,3}",
    ) {
        let member = format!("\"{key}\":{space}{number}{space}");
        let text = format!("{{\"content\":[{{\"type\":\"text\",\"text\":\"t\",{member}}}],{member}}}");
        for revision in Revision::ALL {
            let got = text_of(result(&text), Method::ToolsCall, revision, false);
            prop_assert_eq!(got.matches(&member).count(), 2, "{}", got);
        }
    }
}
