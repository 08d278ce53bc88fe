//! Calls by name, local answers, capabilities, sharing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use vestibule_exchange::{
    Arrival, Capabilities, Event, Events, Final, Inlet, LogLevel, Outbound, RpcError, Sharing,
};
use vestibule_frame::{Frame, Limits};
use vestibule_terms::plan::Visibility;
use vestibule_terms::{Method, Revision, UpstreamId};

use crate::testing::{
    ALL, World, draft, error, legacy, modern, plan, profile_with, result, text, transparent,
};

const TOOLS: &str = r#"{"tools":[{"name":"do it","inputSchema":{"type":"object"}},{"name":"plain","inputSchema":{"type":"object"}}],"ttlMs":60000}"#;

/// Answers lists by `TOOLS` and prompts, and every call by `answer`.
fn script(answer: &'static str) -> impl Fn(&Outbound) -> Events + Send + Sync {
    move |outbound| match outbound.method {
        Method::ToolsList => result(TOOLS),
        Method::PromptsList => result(r#"{"prompts":[{"name":"p"}]}"#),
        _ => result(answer),
    }
}

/// XT-370, XT-391, FRM-25: the upstream sees its own name, and every other byte as it came.
#[tokio::test(start_paused = true)]
async fn xt_391_a_call_goes_out_under_the_original_name() {
    let world = World::new(
        plan(&["a"]),
        &[("a", modern())],
        script(r#"{"content":[]}"#),
    );
    let page = world.end(Method::ToolsList, "{}").await;
    let Final::List(page) = page else {
        panic!("{page:?}")
    };
    let name = page.items.iter().find_map(|raw| {
        let value: serde_json::Value = serde_json::from_slice(raw).unwrap();
        value["name"]
            .as_str()
            .filter(|name| name.starts_with("a__do_it-"))
            .map(str::to_owned)
    });
    let params = r#"{"arguments":{"z":1.0,"a":18446744073709551616},"name":"NAME","x":null}"#;
    world
        .message(Method::ToolsCall, &params.replace("NAME", &name.unwrap()))
        .await;
    let asked = world.asked();
    let [outbound] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!(outbound.name.as_deref(), Some("do it"));
    assert!(text(&outbound.message).contains(&params.replace("NAME", "do it")));
}

/// Case 106, T46, TOL-07: hidden, raw and unknown names read the same and reach no upstream.
#[tokio::test(start_paused = true)]
async fn case_106_hidden_names_reach_no_upstream() {
    let mut world = World::new(plan(&["a"]), &[("a", modern())], script("{}"));
    world.plan.allow.tools = Some(vec!["a__p*".to_owned()]);
    world
        .message(Method::ToolsCall, r#"{"name":"a__plain"}"#)
        .await;
    assert_eq!(world.asked().len(), 1);
    for name in [
        "a__do it",
        "plain",
        "a__none",
        "A__plain",
        "a__plain ",
        "a__do_it",
    ] {
        let params = format!(r#"{{"name":"{name}"}}"#);
        assert_eq!(
            world.error(Method::ToolsCall, &params).await,
            RpcError::unknown("tool"),
            "{name}"
        );
    }
    assert!(world.asked().is_empty());
    world.plan.visibility = Visibility::Nothing;
    let hidden = world
        .error(Method::ToolsCall, r#"{"name":"a__plain"}"#)
        .await;
    assert_eq!(hidden, RpcError::unknown("tool"));
}

/// XT-540: a transparent server changes no byte; an unknown name is the upstream's to refuse.
#[tokio::test(start_paused = true)]
async fn xt_540_a_transparent_server_changes_nothing() {
    let answer = r#"{"content":[{"type":"resource_link","uri":"x:1"}],"n":1e2}"#;
    let world = World::new(transparent("a"), &[("a", modern())], script(answer));
    let call = world.call_of(Method::ToolsCall, r#"{ "name":"who?","arguments":{}}"#);
    let sent = call.message.to_bytes();
    let got = world
        .message(Method::ToolsCall, r#"{ "name":"who?","arguments":{}}"#)
        .await;
    assert!(got.contains(answer));
    let asked = world.asked();
    assert_eq!(asked[0].message.to_bytes(), sent);
    assert_eq!(asked[0].name.as_deref(), Some("who?"));
    let mut world = world;
    world.plan.allow.tools = Some(vec![]);
    assert_eq!(
        world.error(Method::ToolsCall, r#"{"name":"who?"}"#).await,
        RpcError::unknown("tool")
    );
    assert!(world.asked().is_empty());
}

/// PMT-01, XT-385: prompts go by the same table.
#[tokio::test(start_paused = true)]
async fn xt_385_prompts_are_resolved_by_table() {
    let answer =
        r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"x:1"}}}]}"#;
    let world = World::new(
        plan(&["a", "b"]),
        &[("a", modern()), ("b", modern())],
        script(answer),
    );
    let got = world
        .message(Method::PromptsGet, r#"{"name":"b__p"}"#)
        .await;
    assert!(got.contains(r#""uri":"b+x:1""#), "{got}");
    let asked = world.asked();
    assert_eq!(
        (asked[0].upstream.as_str(), asked[0].name.as_deref()),
        ("b", Some("p"))
    );
    let unknown = world.error(Method::PromptsGet, r#"{"name":"b__q"}"#).await;
    assert_eq!(unknown, RpcError::unknown("prompt"));
    let malformed = world.error(Method::PromptsGet, r#"{"name":7}"#).await;
    assert_eq!(malformed.code, -32602);
}

/// FRM-16: tasks are not offered; ping and level are answered here.
#[tokio::test(start_paused = true)]
async fn frm_16_tasks_are_no_method_here() {
    let world = World::new(plan(&["a"]), &[("a", modern())], script("{}"));
    for method in [
        Method::TasksGet,
        Method::TasksList,
        Method::TasksUpdate,
        Method::Initialized,
    ] {
        assert_eq!(world.error(method, "{}").await.code, -32601);
    }
    assert!(matches!(world.end(Method::Ping, "{}").await, Final::Empty));
    assert!(world.asked().is_empty());
}

/// TOL-18: asking for a task is a member nobody defined here.
#[tokio::test(start_paused = true)]
async fn tol_18_the_task_member_is_taken_out() {
    let world = World::new(plan(&["a"]), &[("a", modern())], script("{}"));
    world
        .message(Method::ToolsCall, r#"{"name":"a__plain","task":{"ttl":1}}"#)
        .await;
    assert!(!text(&world.asked()[0].message).contains("task"));
}

/// CAP-06: a client's capabilities go to an upstream of its own era only; private sessions are
/// those of legacy clients.
#[tokio::test(start_paused = true)]
async fn cap_06_capabilities_and_sharing_follow_the_eras() {
    let profiles = [("a", modern()), ("b", legacy())];
    let mut world = World::new(plan(&["a", "b"]), &profiles, script("{}"));
    world.capabilities = Capabilities {
        sampling: true,
        ..Capabilities::default()
    };
    for (revision, own, other) in [
        (Revision::R2026_07_28, "a", "b"),
        (Revision::R2025_11_25, "b", "a"),
    ] {
        world.revision = revision;
        for (upstream, told) in [(own, true), (other, false)] {
            world
                .message(
                    Method::ToolsCall,
                    &format!(r#"{{"name":"{upstream}__plain"}}"#),
                )
                .await;
            let outbound = world.asked().remove(0);
            assert_eq!(
                outbound.capabilities.sampling, told,
                "{upstream} {revision}"
            );
            let private = matches!(outbound.sharing, Sharing::Session(_));
            assert_eq!(private, !revision.is_modern());
        }
    }
}

/// CAP-01, CAP-02: what the upstream did not declare is not offered.
#[tokio::test(start_paused = true)]
async fn cap_01_undeclared_features_are_not_offered() {
    let bare = profile_with(Revision::R2026_07_28, "{}", None);
    let world = World::new(transparent("a"), &[("a", bare)], script("{}"));
    for (method, params) in [
        (Method::ToolsCall, r#"{"name":"x"}"#),
        (Method::PromptsGet, r#"{"name":"x"}"#),
        (Method::ResourcesRead, r#"{"uri":"x:y"}"#),
        (Method::ToolsList, "{}"),
        (
            Method::CompletionComplete,
            r#"{"ref":{"type":"ref/prompt","name":"x"}}"#,
        ),
    ] {
        assert_eq!(world.error(method, params).await.code, -32601, "{method:?}");
    }
    assert!(world.asked().is_empty());
}

/// Cases 23, 25: a call to an upstream of which nothing is known says that it is unavailable.
#[tokio::test(start_paused = true)]
async fn case_25_a_call_to_a_dead_upstream_says_so() {
    let world = World::new(plan(&["a", "gone"]), &[("a", modern())], script("{}"));
    let down = world
        .error(Method::ToolsCall, r#"{"name":"gone__x"}"#)
        .await;
    assert_eq!(down.code, -31001);
    let world = World::new(transparent("gone"), &[], |outbound| {
        Events::error(RpcError::unavailable(&outbound.upstream, "connect"))
    });
    assert_eq!(
        world.error(Method::ToolsCall, r#"{"name":"x"}"#).await.code,
        -31001
    );
}

/// ERR-07, ERR-13, XT-533: errors are mapped by code; an application's own pass byte for byte.
#[tokio::test(start_paused = true)]
async fn err_13_errors_are_mapped() {
    let world = World::new(transparent("a"), &[("a", modern())], |outbound| {
        if outbound.method == Method::ToolsList {
            return result(TOOLS);
        }
        match outbound.name.as_deref() {
            Some("own") => error(r#"{"code":7,"message":"m","data":{"n":1e2}}"#),
            _ => error(r#"{"code":-31006,"message":"m","data":{"origin":"gateway"}}"#),
        }
    });
    let own = world.message(Method::ToolsCall, r#"{"name":"own"}"#).await;
    assert!(own.contains(r#""error":{"code":7,"message":"m","data":{"n":1e2}}"#));
    assert_eq!(
        world
            .error(Method::ToolsCall, r#"{"name":"forged"}"#)
            .await
            .code,
        -31003
    );
}

/// LOG-06, XT-375: logs name their upstream, questions show exposed URIs, an end ends.
#[tokio::test(start_paused = true)]
async fn log_06_what_comes_before_the_end_is_rewritten() {
    let log = |params: &str| Event::Log {
        level: LogLevel::Info,
        message: draft(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}"#
        )),
    };
    let events = [
        log(r#"{"level":"info","logger":"db","data":1}"#),
        log(r#"{"data":1}"#),
    ];
    let world = World::new(
        plan(&["a"]),
        &[("a", modern())],
        move |outbound| match outbound.method {
            Method::ToolsList => result(TOOLS),
            _ => Events::stream(stream::iter(events.clone())),
        },
    );
    let events: Vec<Event> = world
        .events(Method::ToolsCall, r#"{"name":"a__plain"}"#)
        .await
        .collect()
        .await;
    let [
        Event::Log { message: one, .. },
        Event::Log { message: two, .. },
        Event::Final(end),
    ] = events.as_slice()
    else {
        panic!("{events:?}");
    };
    assert!(text(one).contains(r#""logger":"a/db""#));
    assert!(text(two).contains(r#""logger":"a""#));
    // A stream that breaks off without an end is one all the same (SSE-13).
    let Final::Error(error) = end else {
        panic!("{end:?}")
    };
    assert_eq!(error.code, -31001);
}

/// 2.2, XT-010: a view waits three seconds at most for an upstream that is unknown, and says so.
#[tokio::test(start_paused = true)]
async fn xt_010_a_view_never_waits_for_a_dead_upstream() {
    let profiles = [("a", profile_with(Revision::R2026_07_28, ALL, Some("hello")))];
    let world = World::new(plan(&["a", "gone"]), &profiles, script("{}"));
    let started = Instant::now();
    let Final::View(view) = world.end(Method::ServerDiscover, "{}").await else {
        panic!("no view")
    };
    assert!(started.elapsed() <= Duration::from_secs(3));
    assert!(view.tools && view.subscribe && view.completions);
    assert_eq!(view.ttl_ms, 0);
    let mut world = world.legacy();
    let Final::View(same) = world.end(Method::Initialize, "{}").await else {
        panic!("no view")
    };
    assert_eq!(same.instructions, view.instructions);
    world.plan.visibility = Visibility::Nothing;
    let Final::View(none) = world.end(Method::Initialize, "{}").await else {
        panic!("no view")
    };
    assert!(!none.tools && none.instructions.is_none());
}

/// 8.3: the level reaches the legacy upstreams that log; the answer does not wait for their say.
#[tokio::test(start_paused = true)]
async fn xt_260_a_level_reaches_private_sessions() {
    let profiles = [("a", legacy()), ("b", modern()), ("c", legacy())];
    let world = World::new(plan(&["a", "b", "c"]), &profiles, |outbound| match outbound
        .upstream
        .as_str()
    {
        "a" => error(r#"{"code":-32603,"message":"x"}"#),
        _ => Events::stream(stream::pending()),
    })
    .legacy();
    let end = world
        .end(Method::LoggingSetLevel, r#"{"level":"debug"}"#)
        .await;
    assert!(matches!(end, Final::Empty));
    let asked: Vec<_> = world
        .asked()
        .iter()
        .map(|o| o.upstream.to_string())
        .collect();
    assert_eq!(asked, ["a", "c"]);
}

#[derive(Default)]
struct Arrivals(Mutex<Vec<Arrival>>);

impl Inlet for Arrivals {
    fn arrive(&self, _: &UpstreamId, arrival: Arrival) {
        self.0.lock().unwrap().push(arrival);
    }
}

/// XT-377, T46: what arrives outside calls is exposed, and hidden resources stay hidden.
#[tokio::test(start_paused = true)]
async fn xt_377_arrivals_are_rewritten() {
    let mut world = World::new(plan(&["a"]), &[("a", legacy())], script("{}")).legacy();
    world.plan.allow.resources = Some(vec!["a+x:*".to_owned()]);
    let arrivals = Arc::new(Arrivals::default());
    let mut call = world.call_of(Method::ToolsCall, r#"{"name":"a__plain"}"#);
    call.inlet = Some(Arc::clone(&arrivals) as Arc<dyn Inlet>);
    tower::Service::call(&mut world.router.clone(), call)
        .await
        .unwrap();
    let inlet = world.asked().remove(0).inlet.unwrap();
    let a = UpstreamId::new("a").unwrap();
    for uri in ["x:1", "y:1"] {
        let updated = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
        );
        inlet.arrive(&a, Arrival::Updated(draft(&updated)));
    }
    let arrived = arrivals.0.lock().unwrap();
    let [Arrival::Updated(one)] = arrived.as_slice() else {
        panic!("{arrived:?}")
    };
    assert!(text(one).contains(r#""uri":"a+x:1""#));
}

/// The record says that the router was entered, and whose call it was.
#[tokio::test(start_paused = true)]
async fn the_record_knows_stage_and_upstream() {
    let world = World::new(plan(&["a"]), &[("a", modern())], script("{}"));
    let call = world.call_of(Method::ToolsCall, r#"{"name":"a__plain"}"#);
    call.record.trace_stages();
    let record = call.record.clone();
    tower::Service::call(&mut world.router.clone(), call)
        .await
        .unwrap();
    assert_eq!(record.stages(), ["router"]);
    assert_eq!(record.upstream().map(UpstreamId::as_str), Some("a"));
}

/// What we send is what we would accept.
#[tokio::test(start_paused = true)]
async fn rewritten_requests_are_well_formed() {
    let world = World::new(plan(&["a"]), &[("a", modern())], script("{}"));
    world
        .message(Method::ToolsCall, r#"{"task":1,"name":"a__plain"}"#)
        .await;
    let bytes = world.asked()[0].message.to_bytes();
    let frame = Frame::parse(bytes, &Limits::default()).unwrap();
    assert_eq!(
        frame.string(frame.name().unwrap()).as_deref(),
        Some("plain")
    );
}

/// LOG-01, AMB-34: before the client sets a level it hears warnings of upstreams that have sessions
/// too, and nothing of those whose requests name their level.
#[tokio::test(start_paused = true)]
async fn log_01_an_unset_level_is_warning_between_sessions_only() {
    let upstreams = [("old", legacy()), ("new", modern())];
    for (upstream, from_session, expected) in [
        ("old", true, Some(LogLevel::Warning)),
        ("new", true, None),
        ("old", false, None),
        ("new", false, None),
    ] {
        let world = World::new(transparent(upstream), &upstreams, |_| {
            result(r#"{"content":[]}"#)
        });
        let world = if from_session { world.legacy() } else { world };
        world.end(Method::ToolsCall, r#"{"name":"t"}"#).await;
        let sent = world.asked().pop().expect("a call");
        assert_eq!(sent.log_level, expected, "{upstream} {from_session}");
    }
}
