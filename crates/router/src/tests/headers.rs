//! `Mcp-Param-*`: validated down, synthesised up (XMH rows).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vestibule_exchange::{Events, Final, Outbound, Profile};
use vestibule_terms::{Method, Revision};

use crate::testing::{World, error, legacy, modern, plan, result, transparent};

const TOOLS: &str = r#"{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{
    "region":{"type":"string","x-mcp-header":"Region"},
    "n":{"type":"integer","x-mcp-header":"N"},
    "o":{"type":"object","properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}}}}],"ttlMs":60000}"#;

fn script(outbound: &Outbound) -> Events {
    match outbound.method {
        Method::ToolsList => result(TOOLS),
        _ => result("{}"),
    }
}

fn headers(list: &[(&str, &str)]) -> Vec<(String, Result<String, ()>)> {
    list.iter()
        .map(|(name, value)| ((*name).to_owned(), Ok((*value).to_owned())))
        .collect()
}

fn params(arguments: &str) -> String {
    format!(r#"{{"name":"t","arguments":{arguments}}}"#)
}

async fn code(world: &World, arguments: &str) -> i64 {
    match world.end(Method::ToolsCall, &params(arguments)).await {
        Final::Error(error) => error.code,
        _ => 0,
    }
}

/// HDR-19, XT-406, XT-409, XT-410: header and argument agree, or nothing goes upstream.
#[tokio::test(start_paused = true)]
async fn hdr_19_param_headers_agree_with_the_arguments() {
    for profile in [modern(), legacy()] {
        let mut world = World::new(transparent("a"), &[("a", profile)], script);
        for (list, arguments, expected) in [
            (headers(&[("region", "eu")]), r#"{"region":"eu"}"#, 0),
            (headers(&[("region", "us")]), r#"{"region":"eu"}"#, -32020),
            (headers(&[]), r#"{"region":"eu"}"#, -32020),
            (headers(&[("region", "eu")]), r#"{"region":null}"#, -32020),
            (headers(&[("region", "")]), r#"{"region":""}"#, 0),
            (headers(&[("n", "42")]), r#"{"n":42.0}"#, 0),
            (headers(&[("b", "true")]), r#"{"o":{"b":true}}"#, 0),
            (headers(&[("foo", "x")]), "{}", 0),
            (
                vec![("region".to_owned(), Err(()))],
                r#"{"region":"eu"}"#,
                -32020,
            ),
        ] {
            world.param_headers = list;
            assert_eq!(code(&world, arguments).await, expected, "{arguments}");
            assert_eq!(
                world.asked().len(),
                usize::from(expected == 0),
                "{arguments}"
            );
        }
    }
}

/// XMH-05, XT-408, XT-410: headers are made from the arguments, for a legacy client too; those that
/// no annotation asks for go nowhere, and a legacy upstream gets none.
#[tokio::test(start_paused = true)]
async fn xt_408_headers_are_made_from_the_arguments() {
    let arguments = r#"{"region":" é ","n":42.0,"o":{"b":false}}"#;
    let world = World::new(transparent("a"), &[("a", modern())], script).legacy();
    assert_eq!(code(&world, arguments).await, 0);
    let mut made = world.asked().remove(0).param_headers;
    made.sort();
    let expected = [("B", "false"), ("N", "42"), ("Region", " é ")];
    assert_eq!(
        made,
        expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    let silent = World::new(transparent("a"), &[("a", legacy())], script).legacy();
    assert_eq!(code(&silent, arguments).await, 0);
    assert!(silent.asked()[0].param_headers.is_empty());
    let stdio = Profile {
        over_http: false,
        ..(*modern()).clone()
    };
    let silent = World::new(transparent("a"), &[("a", Arc::new(stdio))], script).legacy();
    assert_eq!(code(&silent, arguments).await, 0);
    assert!(silent.asked()[0].param_headers.is_empty());
}

/// XT-409, XMH-02: an integer that no header carries exactly is refused before sending.
#[tokio::test(start_paused = true)]
async fn xt_409_integers_beyond_the_safe_range_are_refused() {
    let world = World::new(transparent("a"), &[("a", modern())], script).legacy();
    for (n, expected) in [
        ("9007199254740991", 0),
        ("9007199254740992", -32602),
        ("1.5", -32602),
    ] {
        assert_eq!(
            code(&world, &format!(r#"{{"n":{n}}}"#)).await,
            expected,
            "{n}"
        );
    }
    // A value of another type has no header; the upstream's schema decides.
    assert_eq!(code(&world, r#"{"region":{"x":1}}"#).await, 0);
}

/// A federated server validates against the exposed definition of the current generation.
#[tokio::test(start_paused = true)]
async fn xt_391_a_federated_tool_is_validated_too() {
    let mut world = World::new(plan(&["a"]), &[("a", modern())], script);
    let call = r#"{"name":"a__t","arguments":{"region":"eu"}}"#;
    assert_eq!(world.error(Method::ToolsCall, call).await.code, -32020);
    world.param_headers = headers(&[("region", "eu")]);
    world.message(Method::ToolsCall, call).await;
    assert_eq!(
        world.asked()[0].param_headers,
        [("Region".to_owned(), "eu".to_owned())]
    );
}

/// Lists annotate `region` from the second list on; calls without its header are refused.
fn changing(stubborn: bool) -> impl Fn(&Outbound) -> Events + Send + Sync {
    let lists = AtomicUsize::new(0);
    move |outbound| match outbound.method {
        Method::ToolsList if lists.fetch_add(1, Ordering::SeqCst) == 0 => {
            result(r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"ttlMs":60000}"#)
        }
        Method::ToolsList => result(TOOLS),
        _ if stubborn || outbound.param_headers.is_empty() => {
            error(r#"{"code":-32020,"message":"mismatch"}"#)
        }
        _ => result("{}"),
    }
}

/// XT-407, XMH-06: refresh and one retry; a second refusal is the upstream's fault.
#[tokio::test(start_paused = true)]
async fn xt_407_a_refused_header_is_made_anew_once() {
    for revision in [Revision::R2026_07_28, Revision::R2025_11_25] {
        let mut world = World::new(transparent("a"), &[("a", modern())], changing(false));
        world.revision = revision;
        assert_eq!(code(&world, r#"{"region":"eu"}"#).await, 0);
        assert_eq!(world.asked().len(), 2);
    }
    let world = World::new(transparent("a"), &[("a", modern())], changing(true));
    assert_eq!(code(&world, r#"{"region":"eu"}"#).await, -31003);
    assert_eq!(world.asked().len(), 2);
}
