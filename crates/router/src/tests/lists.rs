//! Lists of transparent and federated servers.

use bytes::Bytes;
use vestibule_exchange::{Final, Sharing};
use vestibule_frame::json;
use vestibule_terms::plan::Visibility;
use vestibule_terms::{Method, Revision};

use crate::testing::{World, error, legacy, modern, plan, result, text, transparent};

const TOOL: &str = r#"{"name" : "t","inputSchema":{"type":"object"},"x":1e2}"#;

/// XT-540, PAG-04: a page passes byte for byte but for its cursor, which is sealed and comes back.
#[tokio::test(start_paused = true)]
async fn pag_04_a_transparent_cursor_is_sealed_and_opened() {
    let world = World::new(transparent("a"), &[("a", legacy())], |outbound| {
        let asked = text(&outbound.message);
        if asked.contains(r#""cursor":"up\n1""#) {
            result(&format!(r#"{{"tools":[{TOOL}],"z":null}}"#))
        } else {
            result(&format!(
                r#"{{"tools":[ {TOOL} ],"nextCursor":"up\u000a1"}}"#
            ))
        }
    })
    .legacy();
    let first = world.message(Method::ToolsList, "{}").await;
    let result = json::member(first.as_bytes(), "result").unwrap();
    let cursor = json::string(json::member(result, "nextCursor").unwrap())
        .unwrap()
        .into_owned();
    assert!(first.contains(&format!(
        r#"{{"tools":[ {TOOL} ],"nextCursor":"{cursor}"}}"#
    )));
    let second = world
        .message(Method::ToolsList, &format!(r#"{{"cursor":"{cursor}"}}"#))
        .await;
    assert!(second.contains(&format!(r#"{{"tools":[{TOOL}],"z":null}}"#)));
    assert!(matches!(world.asked()[0].sharing, Sharing::Session(_)));
    // PAG-02: for another list, a foreign one, no string. PAG-03: null is none.
    for bad in [
        format!(r#"{{"cursor":"{cursor}"}}"#),
        r#"{"cursor":"x"}"#.into(),
        r#"{"cursor":1}"#.into(),
    ] {
        assert_eq!(world.error(Method::PromptsList, &bad).await.code, -32602);
    }
    world.asked();
    world.message(Method::ToolsList, r#"{"cursor":null}"#).await;
    assert!(!text(&world.asked()[0].message).contains("cursor"));
}

/// XT-514: the cursor of a page that anyone may keep works for anyone.
#[tokio::test(start_paused = true)]
async fn xt_514_public_pages_have_public_cursors() {
    for (scope, shared) in [("public", true), ("private", false)] {
        let page = format!(r#"{{"tools":[],"nextCursor":"u","cacheScope":"{scope}"}}"#);
        let world = World::new(transparent("a"), &[("a", modern())], move |_| result(&page));
        let first = world.message(Method::ToolsList, "{}").await;
        let result = json::member(first.as_bytes(), "result").unwrap();
        let cursor = json::member(result, "nextCursor").unwrap();
        let params = format!(r#"{{"cursor":{}}}"#, std::str::from_utf8(cursor).unwrap());
        let mut call = world.call_of(Method::ToolsList, &params);
        let mut stranger = (*call.principal).clone();
        stranger.subject = std::sync::Arc::from("stranger");
        call.principal = std::sync::Arc::new(stranger);
        let events = tower::Service::call(&mut world.router.clone(), call)
            .await
            .unwrap();
        let accepted = matches!(events.into_ready(), Ok(Final::Message(_)));
        assert_eq!(accepted, shared, "{scope}");
    }
}

/// Case 26, XMH-04: an unsound tool goes alone; one annotated wrongly goes, or its annotation does.
#[tokio::test(start_paused = true)]
async fn case_26_unsound_tools_are_cut_out_of_a_page() {
    let odd = r#"{"name":"o","inputSchema":{"type":"object","properties":{"n":{"type":"number","x-mcp-header":"N"}}}}"#;
    let page = format!(r#"{{"tools":[{{"name":"bad"}}, {TOOL},{odd}],"k":1}}"#);
    for (profile, kept) in [
        (modern(), format!("[{TOOL}]")),
        (
            legacy(),
            format!("[{TOOL},{}]", odd.replace(r#","x-mcp-header":"N""#, "")),
        ),
    ] {
        let page = page.clone();
        let world = World::new(transparent("a"), &[("a", profile)], move |_| result(&page));
        let got = world.message(Method::ToolsList, "{}").await;
        assert!(
            got.contains(&format!(r#"{{"tools":{kept},"k":1}}"#)),
            "{got}"
        );
    }
}

/// T46: what may not be seen is not listed, on a transparent server too.
#[tokio::test(start_paused = true)]
async fn t46_a_transparent_list_shows_what_is_permitted() {
    let page = r#"{"resources":[{"uri":"x:1"},{"uri":"y:1"},{"name":"no uri"}]}"#;
    let mut world = World::new(transparent("a"), &[("a", modern())], |_| result(page));
    let all = world.message(Method::ResourcesList, "{}").await;
    assert!(all.contains(page));
    world.plan.allow.resources = Some(vec!["x:*".to_owned()]);
    let some = world.message(Method::ResourcesList, "{}").await;
    assert!(some.contains(r#"{"resources":[{"uri":"x:1"}]}"#), "{some}");
    world.asked();
    world.plan.visibility = Visibility::Nothing;
    let Final::List(none) = world.end(Method::ResourcesList, "{}").await else {
        panic!("no list")
    };
    assert!(none.items.is_empty() && world.asked().is_empty());
}

/// RSC-11: a list that a server has no method for is empty, not a violation.
#[tokio::test(start_paused = true)]
async fn rsc_11_a_missing_list_method_is_an_empty_list() {
    let world = World::new(transparent("a"), &[("a", modern())], |_| {
        error(r#"{"code":-32601,"message":"no"}"#)
    });
    let Final::List(page) = world.end(Method::ResourcesTemplatesList, "{}").await else {
        panic!("no list");
    };
    assert_eq!((page.member, page.items.len()), ("resourceTemplates", 0));
}

/// XT-373, APP-01, case 33: an app's resource has one name in the tool, in the list and in the read.
#[tokio::test(start_paused = true)]
async fn xt_373_apps_are_named_alike_everywhere() {
    let world = World::new(
        plan(&["a"]),
        &[("a", modern())],
        |outbound| match outbound.method {
            Method::ToolsList => result(
                r#"{"tools":[{"name":"t","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://p/r"}}}]}"#,
            ),
            Method::ResourcesList => result(r#"{"resources":[{"uri":"ui://p/r"}]}"#),
            _ => result(r#"{"contents":[{"uri":"ui://p/r","text":"ui://p/r"}]}"#),
        },
    );
    for method in [Method::ToolsList, Method::ResourcesList] {
        let Final::List(page) = world.end(method, "{}").await else {
            panic!("no list")
        };
        let text = String::from_utf8_lossy(&page.items[0]).into_owned();
        assert!(text.contains(r#""ui://a.p/r""#), "{text}");
    }
    let read = world
        .message(Method::ResourcesRead, r#"{"uri":"ui://a.p/r"}"#)
        .await;
    assert!(
        read.contains(r#"[{"uri":"ui://a.p/r","text":"ui://p/r"}]"#),
        "{read}"
    );
}

/// A legacy client's federated list says what a modern client's does.
#[tokio::test(start_paused = true)]
async fn both_eras_see_one_federated_list() {
    let page = format!(r#"{{"tools":[{TOOL}]}}"#);
    let profiles = [("a", modern()), ("b", legacy())];
    let mut world = World::new(plan(&["a", "b"]), &profiles, move |_| result(&page));
    let mut seen: Vec<Vec<Bytes>> = Vec::new();
    for revision in [Revision::R2025_03_26, Revision::R2026_07_28] {
        world.revision = revision;
        let Final::List(page) = world.end(Method::ToolsList, "{}").await else {
            panic!("no list")
        };
        seen.push(page.items);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].len(), 2);
}
