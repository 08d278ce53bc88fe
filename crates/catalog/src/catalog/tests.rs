//! The catalog over scripted upstreams, with a paused clock.

use vestibule_exchange::view::CacheScope;
use vestibule_store::Keyring;
use vestibule_terms::clock::SystemClock;
use vestibule_terms::plan::Visibility;

use super::*;
use crate::testing::{Fake, Reply, plan, principal, profile};

const ALL: &str = r#"{"tools":{},"prompts":{},"resources":{}}"#;

fn catalog(fake: &Arc<Fake>) -> Catalog {
    let connector = Arc::clone(fake) as Arc<dyn Connector>;
    Catalog::new(
        connector,
        Sealer::new(Keyring::generate()),
        Arc::new(SystemClock),
    )
}

fn tool(name: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#)
}

fn tools(names: &[&str]) -> Reply {
    let items: Vec<_> = names.iter().map(|name| tool(name)).collect();
    Reply::Result(format!(
        r#"{{"tools":[{}],"ttlMs":60000}}"#,
        items.join(",")
    ))
}

/// Names or URIs of a page.
fn keys(page: &ListPage) -> Vec<String> {
    let key = |raw: &bytes::Bytes| {
        let value: serde_json::Value = serde_json::from_slice(raw).unwrap();
        let key = ["name", "uri", "uriTemplate"]
            .iter()
            .find_map(|key| value[key].as_str());
        key.unwrap().to_owned()
    };
    page.items.iter().map(key).collect()
}

struct World {
    plan: ServerPlan,
    me: Principal,
    caps: Arc<Capabilities>,
}

impl World {
    fn of(upstreams: &[&str]) -> Self {
        let (plan, me) = (plan("t", "s", upstreams), principal("t", "me"));
        Self {
            plan,
            me,
            caps: Arc::default(),
        }
    }

    fn viewer(&self) -> Viewer<'_> {
        Viewer {
            plan: &self.plan,
            principal: &self.me,
            revision: Revision::R2026_07_28,
            capabilities: &self.caps,
        }
    }
}

fn modern() -> Arc<Profile> {
    profile(Revision::R2026_07_28, ALL)
}

/// TOL-05, case 31: sorted by exposed name, whatever order upstreams list in; names by table.
#[tokio::test(start_paused = true)]
async fn tol_05_a_merged_list_is_sorted_and_resolves_by_table() {
    let fake = Fake::new(&[("a", modern()), ("b", modern())], |up, _, _| match up {
        "a" => tools(&["z", "send", "x.y"]),
        _ => tools(&["a__send", "send"]),
    });
    let (catalog, world) = (catalog(&fake), World::of(&["b", "a"]));
    let page = catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    let names = keys(&page);
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted);
    assert!(names.contains(&"b__a__send".to_owned()));
    assert_eq!((page.scope, page.ttl_ms), (CacheScope::Public, 60_000));
    for name in &names {
        let item = catalog
            .resolve(world.viewer(), Kind::Tools, name)
            .await
            .unwrap();
        assert_eq!(&*item.exposed, name.as_str());
    }
    let marked = names
        .iter()
        .find(|name| name.starts_with("a__x_y-"))
        .unwrap();
    let item = catalog
        .resolve(world.viewer(), Kind::Tools, marked)
        .await
        .unwrap();
    assert_eq!((item.upstream.as_str(), &*item.original), ("a", "x.y"));
    let unknown = catalog
        .resolve(world.viewer(), Kind::Tools, "send")
        .await
        .unwrap_err();
    assert_eq!(unknown, RpcError::unknown("tool"));
    assert_eq!(fake.calls().len(), 2);
}

/// Cases 20, 21, PAG-03, PAG-05: an empty cursor is sent back, null ends, a repeated one ends.
#[tokio::test(start_paused = true)]
async fn case_20_pages_are_followed_and_loops_end() {
    let fake = Fake::new(&[("a", modern()), ("b", modern())], |up, _, cursor| {
        let text = match (up, cursor) {
            ("a", None) => format!(r#"{{"tools":[{}],"nextCursor":""}}"#, tool("one")),
            ("a", Some("")) => format!(r#"{{"tools":[{}],"nextCursor":null}}"#, tool("two")),
            _ => format!(r#"{{"tools":[{}],"nextCursor":"x"}}"#, tool("same")),
        };
        Reply::Result(text)
    });
    let (catalog, world) = (catalog(&fake), World::of(&["a", "b"]));
    let page = catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    assert_eq!(keys(&page), ["a__one", "a__two", "b__same"]);
    let calls = fake.calls();
    assert!(
        calls.contains(&r#"a tools/list """#.to_owned()),
        "{calls:?}"
    );
    assert_eq!(calls.iter().filter(|call| call.starts_with('b')).count(), 2);
}

/// Case 23: dead upstreams neither stall nor empty the list; the second list does not wait again.
#[tokio::test(start_paused = true)]
async fn case_23_one_dead_upstream_does_not_stall_the_rest() {
    let fake = Fake::new(
        &[("a", modern()), ("b", modern()), ("c", modern())],
        |up, _, _| match up {
            "a" => tools(&["t"]),
            "b" => Reply::Silence,
            _ => Reply::Error(r#"{"code":-32603,"message":"x"}"#),
        },
    );
    let (catalog, world) = (catalog(&fake), World::of(&["a", "b", "c", "gone"]));
    let started = Instant::now();
    let page = catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    assert_eq!((keys(&page), page.ttl_ms), (vec!["a__t".to_owned()], 0));
    assert!(
        started.elapsed() <= Duration::from_secs(11),
        "{:?}",
        started.elapsed()
    );
    let started = Instant::now();
    catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    assert!(
        started.elapsed() <= Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    let down = catalog
        .resolve(world.viewer(), Kind::Tools, "gone__x")
        .await
        .unwrap_err();
    assert_eq!(down.code, code::UPSTREAM_UNAVAILABLE);
}

/// Case 23: when all fail it is an error, never an empty page. Case 28: no upstream is no failure.
#[tokio::test(start_paused = true)]
async fn case_28_nothing_configured_is_empty_and_all_failed_is_an_error() {
    let fake = Fake::new(&[("a", modern())], |_, _, _| {
        Reply::Error(r#"{"code":1,"message":"x"}"#)
    });
    let catalog = catalog(&fake);
    let world = World::of(&["a"]);
    let error = catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap_err();
    assert_eq!(error.code, code::UPSTREAM_PROTOCOL);
    let empty = World::of(&[]);
    let page = catalog
        .page(empty.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    assert!(page.items.is_empty() && page.next_cursor.is_none());
}

/// CAP-01, CAP-02: an undeclared list is not asked for; of nobody it is not offered at all.
#[tokio::test(start_paused = true)]
async fn cap_02_undeclared_lists_are_never_asked_for() {
    let bare = profile(Revision::R2025_11_25, r#"{"tools":{}}"#);
    let fake = Fake::new(&[("a", bare)], |_, _, _| Reply::Silence);
    let (catalog, world) = (catalog(&fake), World::of(&["a"]));
    let error = catalog
        .page(world.viewer(), Kind::Prompts, None)
        .await
        .unwrap_err();
    assert_eq!(error.code, code::METHOD_NOT_FOUND);
    assert!(fake.calls().is_empty());
}

/// A server with resources and no templates answers -32601 to their list: that is an empty list.
#[tokio::test(start_paused = true)]
async fn rsc_11_a_missing_templates_method_is_an_empty_list() {
    let fake = Fake::new(&[("a", modern())], |_, _, _| {
        Reply::Error(r#"{"code":-32601,"message":"x"}"#)
    });
    let (catalog, world) = (catalog(&fake), World::of(&["a"]));
    let page = catalog
        .page(world.viewer(), Kind::Templates, None)
        .await
        .unwrap();
    assert!(page.items.is_empty());
}

/// XT-155: input_required on a list is a violation.
#[tokio::test(start_paused = true)]
async fn xt_155_input_required_on_a_list_is_refused() {
    let result = r#"{"resultType":"input_required","tools":[]}"#;
    let fake = Fake::new(&[("a", modern())], move |_, _, _| {
        Reply::Result(result.to_owned())
    });
    let (catalog, world) = (catalog(&fake), World::of(&["a"]));
    let error = catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap_err();
    assert_eq!(error.code, code::UPSTREAM_PROTOCOL);
}

/// PAG-02, XT-300: keyset pages neither lose nor repeat an item when the list changes between.
#[tokio::test(start_paused = true)]
async fn pag_02_pages_survive_changes_between_them() {
    let names = |from: usize| -> Vec<String> { (from..250).map(|n| format!("t{n:03}")).collect() };
    let all = names(0);
    let fake = Fake::new(&[("a", modern())], move |_, _, _| {
        tools(&all.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let (catalog, world) = (catalog(&fake), World::of(&["a"]));
    let first = catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    assert_eq!(first.items.len(), 100);
    // An item before the position goes away, another comes.
    let changed: Vec<String> = names(3).into_iter().chain(["t000x".to_owned()]).collect();
    fake.rescript(move |_, _, _| tools(&changed.iter().map(String::as_str).collect::<Vec<_>>()));
    let a = UpstreamId::new("a").unwrap();
    catalog.invalidate(&world.plan.tenant, &a, Kind::Tools);
    catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    let cursor = first.next_cursor.as_deref();
    let second = catalog
        .page(world.viewer(), Kind::Tools, cursor)
        .await
        .unwrap();
    assert_eq!(keys(&second).first().unwrap(), "a__t100");
    let third = catalog
        .page(world.viewer(), Kind::Tools, second.next_cursor.as_deref())
        .await
        .unwrap();
    assert_eq!(
        (third.items.len(), third.next_cursor.as_deref()),
        (50, None)
    );
    let error = catalog
        .page(world.viewer(), Kind::Prompts, cursor)
        .await
        .unwrap_err();
    assert_eq!(error, cursor::invalid());
}

/// Cases 25, CCH-08, CCH-11: a change is fetched at once; a failure keeps the last good list.
#[tokio::test(start_paused = true)]
async fn case_25_a_blip_keeps_the_last_good_list() {
    let fake = Fake::new(&[("a", modern())], |_, _, _| tools(&["old"]));
    let (catalog, world) = (catalog(&fake), World::of(&["a"]));
    let a = UpstreamId::new("a").unwrap();
    catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    fake.rescript(|_, _, _| Reply::Error(r#"{"code":1,"message":"x"}"#));
    catalog.invalidate(&world.plan.tenant, &a, Kind::Tools);
    let page = catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    assert_eq!((keys(&page), page.ttl_ms), (vec!["a__old".to_owned()], 0));
    tokio::time::advance(Duration::from_secs(6)).await;
    fake.rescript(|_, _, _| tools(&["new"]));
    let page = catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    assert_eq!(keys(&page), ["a__new"]);
    // The name of the generation before resolves for ten minutes (12.1).
    assert!(
        catalog
            .resolve(world.viewer(), Kind::Tools, "a__old")
            .await
            .is_ok()
    );
    tokio::time::advance(Duration::from_secs(601)).await;
    assert!(
        catalog
            .resolve(world.viewer(), Kind::Tools, "a__old")
            .await
            .is_err()
    );
}

/// CCH-10: concurrent lists cause one fetch; a caller that goes away does not end it.
#[tokio::test(start_paused = true)]
async fn concurrent_lists_share_one_fetch() {
    let fake = Fake::new(&[("a", modern())], |_, _, _| tools(&["t"]));
    let (catalog, world) = (catalog(&fake), World::of(&["a"]));
    let ask = || catalog.page(world.viewer(), Kind::Tools, None);
    let (one, two) = tokio::join!(ask(), ask());
    assert_eq!(one, two);
    assert_eq!(fake.calls().len(), 1);
}

/// T46, case 106: hidden items are neither listed nor resolved, and read as unknown.
#[tokio::test(start_paused = true)]
async fn t46_listed_is_permitted_and_permitted_is_listed() {
    let fake = Fake::new(&[("a", modern())], |_, _, _| tools(&["one", "two"]));
    let catalog = catalog(&fake);
    let mut world = World::of(&["a"]);
    world.plan.allow.tools = Some(vec!["a__o*".to_owned()]);
    let page = catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    assert_eq!(keys(&page), ["a__one"]);
    let hidden = catalog
        .resolve(world.viewer(), Kind::Tools, "a__two")
        .await
        .unwrap_err();
    let unknown = catalog
        .resolve(world.viewer(), Kind::Tools, "a__six")
        .await
        .unwrap_err();
    assert_eq!(hidden, unknown);
    world.plan.visibility = Visibility::Nothing;
    assert!(
        catalog
            .page(world.viewer(), Kind::Tools, None)
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(
        catalog
            .resolve(world.viewer(), Kind::Tools, "a__one")
            .await
            .is_err()
    );
}

/// XT-374, XT-376, XT-509: who owns a raw or https URI; claims of two are ambiguous.
#[tokio::test(start_paused = true)]
async fn xt_374_raw_uris_belong_to_who_lists_them() {
    let fake = Fake::new(&[("a", modern()), ("b", modern())], |up, method, _| {
        let result = match (up, method) {
            ("a", "resources/list") => r#"{"resources":[{"uri":"https://h/1"},{"uri":"x:both"}]}"#,
            ("b", "resources/list") => r#"{"resources":[{"uri":"x:both"}]}"#,
            ("b", _) => r#"{"resourceTemplates":[{"uriTemplate":"https://t/{id}"}]}"#,
            _ => r#"{"resourceTemplates":[]}"#,
        };
        Reply::Result(result.to_owned())
    });
    let (catalog, world) = (catalog(&fake), World::of(&["a", "b"]));
    let owner = |raw: &'static str| catalog.owner(world.viewer(), raw, &[]);
    assert_eq!(owner("https://h/1").await.unwrap().as_str(), "a");
    assert_eq!(owner("https://t/9").await.unwrap().as_str(), "b");
    assert_eq!(owner("x:both").await.unwrap_err().code, -32602);
    assert_eq!(owner("x:none").await.unwrap_err().code, -32602);
    let alone = World::of(&["a"]);
    assert_eq!(
        catalog
            .owner(alone.viewer(), "x:none", &[])
            .await
            .unwrap()
            .as_str(),
        "a"
    );
}

/// CAP-06, APP-04: nothing of a client is told across eras, and apps do not reach several upstreams.
#[tokio::test(start_paused = true)]
async fn cap_06_capabilities_do_not_cross_eras() {
    let fake = Fake::new(&[], |_, _, _| Reply::Silence);
    let catalog = catalog(&fake);
    let mut world = World::of(&["a"]);
    let text = br#"{"sampling":{},"extensions":{"io.modelcontextprotocol/ui":{}}}"#;
    world.caps = Arc::new(Capabilities::parse(text));
    assert!(
        catalog
            .class(world.viewer(), &profile(Revision::R2025_11_25, "{}"))
            .is_empty()
    );
    assert_eq!(catalog.class(world.viewer(), &modern()), world.caps);
    let caps = Arc::clone(&world.caps);
    world = World {
        caps,
        ..World::of(&["a", "b"])
    };
    let class = catalog.class(world.viewer(), &modern());
    assert!(class.sampling && class.ui.is_none());
}

/// XT-511: a list is kept apart for what clients declare.
#[tokio::test(start_paused = true)]
async fn xt_511_variants_are_kept_apart() {
    let fake = Fake::new(&[("a", modern())], |_, _, _| tools(&["t"]));
    let catalog = catalog(&fake);
    let mut world = World::of(&["a"]);
    catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    world.caps = Arc::new(Capabilities {
        sampling: true,
        ..Capabilities::default()
    });
    catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    catalog
        .page(world.viewer(), Kind::Tools, None)
        .await
        .unwrap();
    assert_eq!(fake.calls().len(), 2);
}

/// XT-407: asking anew goes to the upstream, however fresh the list is.
#[tokio::test(start_paused = true)]
async fn xt_407_a_definition_can_be_fetched_anew() {
    let fake = Fake::new(&[("a", modern())], |_, _, _| tools(&["t"]));
    let (catalog, world) = (catalog(&fake), World::of(&["a"]));
    let a = UpstreamId::new("a").unwrap();
    let definition =
        |freshness| catalog.definition(world.viewer(), &a, Kind::Tools, "t", freshness);
    assert!(definition(Freshness::Resolving).await.is_some());
    assert!(definition(Freshness::Resolving).await.is_some());
    assert_eq!(fake.calls().len(), 1);
    assert!(definition(Freshness::Anew).await.is_some());
    assert_eq!(fake.calls().len(), 1);
}
