//! Resources, subscriptions and completions: whose a URI is, and how it reads.

use vestibule_exchange::{Events, Final, Outbound};
use vestibule_terms::Method;

use crate::testing::{World, error, legacy, modern, plan, result, text, transparent};

fn script(outbound: &Outbound) -> Events {
    match outbound.method {
        Method::ToolsList => result(r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}"#),
        Method::PromptsList => result(r#"{"prompts":[{"name":"p"}]}"#),
        Method::ResourcesList if outbound.upstream.as_str() == "a" => {
            result(r#"{"resources":[{"uri":"https://h/1"},{"uri":"x:both"}]}"#)
        }
        Method::ResourcesList => result(r#"{"resources":[{"uri":"x:both"}]}"#),
        Method::ResourcesTemplatesList => result(r#"{"resourceTemplates":[]}"#),
        Method::ResourcesRead => match outbound.name.as_deref() {
            Some("x:gone") => error(r#"{"code":-32602,"message":"no","data":{"uri":"x:gone"}}"#),
            Some("x:old") => error(r#"{"code":-32002,"message":"no","data":{"uri":"x:old"}}"#),
            _ => result(r#"{"contents":[{"uri":"x:%2F?a#b","text":"x:%2F"}]}"#),
        },
        Method::CompletionComplete => {
            let values: Vec<String> = (0..150).map(|n| format!("\"{n}\"")).collect();
            result(&format!(
                r#"{{"completion":{{"values":[{}]}}}}"#,
                values.join(",")
            ))
        }
        _ => result(
            r#"{"content":[{"type":"resource_link","uri":"x:1","name":"x:1"},{"type":"resource","resource":{"uri":"https://h/2","text":"t"}},{"type":"resource","resource":{"uri":"ui://p/r"}},{"type":"text","text":"see x:1"}],"structuredContent":{"uri":"x:1","type":"resource_link"}}"#,
        ),
    }
}

fn both() -> World {
    World::new(
        plan(&["a", "b"]),
        &[("a", modern()), ("b", modern())],
        script,
    )
}

fn uri(uri: &str) -> String {
    format!(r#"{{"uri":"{uri}"}}"#)
}

/// XT-375, XT-376, case 34: URIs in content blocks are exposed; text and structured content are not.
#[tokio::test(start_paused = true)]
async fn xt_375_uris_in_results_are_exposed() {
    let got = both()
        .message(Method::ToolsCall, r#"{"name":"a__t"}"#)
        .await;
    let expected = r#"{"content":[{"type":"resource_link","uri":"a+x:1","name":"x:1"},{"type":"resource","resource":{"uri":"https://h/2","text":"t"}},{"type":"resource","resource":{"uri":"ui://a.p/r"}},{"type":"text","text":"see x:1"}],"structuredContent":{"uri":"x:1","type":"resource_link"}}"#;
    assert!(got.contains(expected), "{got}");
}

/// XT-383: a read goes by prefix, byte for byte, and comes back as it was asked.
#[tokio::test(start_paused = true)]
async fn xt_383_reads_go_by_prefix_and_keep_every_byte() {
    let world = both();
    let got = world
        .message(Method::ResourcesRead, &uri("b+x:%2f%2F?a#b"))
        .await;
    assert!(
        got.contains(r#"[{"uri":"b+x:%2F?a#b","text":"x:%2F"}]"#),
        "{got}"
    );
    let asked = world.asked();
    assert_eq!(asked[0].upstream.as_str(), "b");
    assert_eq!(asked[0].name.as_deref(), Some("x:%2f%2F?a#b"));
    assert!(text(&asked[0].message).contains(r#""uri":"x:%2f%2F?a#b""#));
}

/// XT-374, XT-376: raw and https URIs go to their one owner, or nowhere.
#[tokio::test(start_paused = true)]
async fn xt_374_raw_uris_go_to_their_owner() {
    let world = both();
    world
        .message(Method::ResourcesRead, &uri("https://h/1"))
        .await;
    assert_eq!(world.asked()[0].upstream.as_str(), "a");
    for bad in ["x:both", "https://h/9", "c+x:1"] {
        assert_eq!(
            world.error(Method::ResourcesRead, &uri(bad)).await.code,
            -32602,
            "{bad}"
        );
    }
    assert!(world.asked().is_empty());
}

/// XT-374, XT-509, TOL-16: a link out of a result can be read by who was given it, and by nobody else;
/// what a list says goes first.
#[tokio::test(start_paused = true)]
async fn xt_509_a_link_is_read_where_it_came_from() {
    let world = both().legacy();
    let read = uri("https://h/2");
    assert_eq!(world.error(Method::ResourcesRead, &read).await.code, -32602);
    world.message(Method::ToolsCall, r#"{"name":"b__t"}"#).await;
    world.asked();
    world.message(Method::ResourcesRead, &read).await;
    world
        .message(Method::ResourcesRead, &uri("https://h/1"))
        .await;
    let asked: Vec<_> = world
        .asked()
        .iter()
        .map(|o| o.upstream.to_string())
        .collect();
    assert_eq!(asked, ["b", "a"]);
    let mut stranger = world.call_of(Method::ResourcesRead, &read);
    stranger.session.as_mut().unwrap().session = vestibule_terms::SessionId::new("other");
    let events = tower::Service::call(&mut world.router.clone(), stranger)
        .await
        .unwrap();
    assert!(matches!(events.into_ready(), Ok(Final::Error(_))));
}

/// XT-378, ERR-02, ERR-03, ERR-04: a missing resource has the code of the client's era and its URI.
#[tokio::test(start_paused = true)]
async fn xt_378_missing_resources_read_alike() {
    let mut world = both();
    for (legacy, code) in [(false, -32602), (true, -32002)] {
        if legacy {
            world = world.legacy();
        }
        for name in ["gone", "old"] {
            let end = world
                .end(Method::ResourcesRead, &uri(&format!("a+x:{name}")))
                .await;
            let (found, data) = match end {
                Final::Error(error) => (error.code, error.data.unwrap()),
                Final::Message(draft) => {
                    let value: serde_json::Value =
                        serde_json::from_slice(&draft.to_bytes()).unwrap();
                    let error = &value["error"];
                    (
                        error["code"].as_i64().unwrap(),
                        error["data"].to_string().into(),
                    )
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(
                (found, data),
                (code, uri(&format!("a+x:{name}")).into()),
                "{name}"
            );
        }
    }
}

/// T46, case 106: a hidden URI is missing, with the same bytes, and reaches no upstream; XT-384.
#[tokio::test(start_paused = true)]
async fn t46_hidden_uris_are_missing() {
    let mut world = both();
    world.plan.allow.resources = Some(vec!["a+x:1".to_owned(), "https:*".to_owned()]);
    let error = world.error(Method::ResourcesRead, &uri("a+x:2")).await;
    assert_eq!(
        (error.code, error.message.as_str()),
        (-32602, "unknown resource")
    );
    for hidden in ["x:both", "x:none", "b+x:1", "https://h/9"] {
        let other = world.error(Method::ResourcesRead, &uri(hidden)).await;
        assert_eq!(
            (other.code, other.message),
            (error.code, error.message.clone()),
            "{hidden}"
        );
    }
    world.plan.allow.resources = None;
    for bad in ["a+file:///a/../b", "a+file:///%2e%2e/b", "a+x:\\u0001"] {
        assert_eq!(
            world.error(Method::ResourcesRead, &uri(bad)).await.code,
            -32602,
            "{bad}"
        );
    }
    assert!(world.asked().is_empty());
}

/// XT-379, CMP-02, CMP-03: completion refs of both kinds, and at most a hundred values.
#[tokio::test(start_paused = true)]
async fn xt_379_completions_go_where_their_reference_is() {
    let world = both();
    for (reference, original) in [
        (
            r#"{"type":"ref/prompt","name":"b__p"}"#,
            r#"{"type":"ref/prompt","name":"p"}"#,
        ),
        (
            r#"{"type":"ref/resource","uri":"b+x:{id}"}"#,
            r#"{"type":"ref/resource","uri":"x:{id}"}"#,
        ),
    ] {
        let params = format!(r#"{{"ref":{reference},"argument":{{"name":"n","value":"b+x:1"}}}}"#);
        let got = world.message(Method::CompletionComplete, &params).await;
        let value: serde_json::Value = serde_json::from_str(&got).unwrap();
        let completion = &value["result"]["completion"];
        assert_eq!(completion["values"].as_array().unwrap().len(), 100);
        assert_eq!(completion["hasMore"], true);
        let asked = world.asked();
        assert_eq!(asked[0].upstream.as_str(), "b");
        let sent = text(&asked[0].message);
        assert!(
            sent.contains(original) && sent.contains(r#""value":"b+x:1""#),
            "{sent}"
        );
    }
    for bad in [
        r#"{"type":"ref/prompt","name":"p"}"#,
        r#"{"type":"ref/x"}"#,
        "7",
    ] {
        let params = format!(r#"{{"ref":{bad}}}"#);
        assert_eq!(
            world.error(Method::CompletionComplete, &params).await.code,
            -32602,
            "{bad}"
        );
    }
}

/// 12.3: an upstream without completions has no values; the server as a whole has the method.
#[tokio::test(start_paused = true)]
async fn xt_379_an_upstream_without_completions_has_no_values() {
    let bare = crate::testing::profile_with(
        vestibule_terms::Revision::R2026_07_28,
        r#"{"prompts":{}}"#,
        None,
    );
    let world = World::new(plan(&["a"]), &[("a", bare)], script);
    let params = r#"{"ref":{"type":"ref/prompt","name":"a__p"}}"#;
    let got = world.message(Method::CompletionComplete, params).await;
    assert!(got.contains(r#"{"completion":{"values":[],"total":0,"hasMore":false}}"#));
    assert!(world.asked().is_empty());
}

/// RSC-06: a subscription reaches the private session; across eras it cannot, and says so.
#[tokio::test(start_paused = true)]
async fn rsc_06_subscriptions_stay_within_an_era() {
    let profiles = [("a", legacy()), ("b", modern())];
    let world = World::new(plan(&["a", "b"]), &profiles, script).legacy();
    world
        .message(Method::ResourcesSubscribe, &uri("a+x:1"))
        .await;
    let asked = world.asked();
    assert!(text(&asked[0].message).contains(r#""uri":"x:1""#));
    assert_eq!(asked[0].name, None);
    for method in [Method::ResourcesSubscribe, Method::ResourcesUnsubscribe] {
        assert_eq!(world.error(method, &uri("b+x:1")).await.code, -31007);
    }
    let deaf = crate::testing::profile_with(
        vestibule_terms::Revision::R2025_11_25,
        r#"{"resources":{}}"#,
        None,
    );
    let world = World::new(transparent("a"), &[("a", deaf)], script).legacy();
    assert_eq!(
        world
            .error(Method::ResourcesSubscribe, &uri("x:1"))
            .await
            .code,
        -32601
    );
}
