//! A changed configuration in a running gateway: all of it or nothing of it, without a request lost.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;
use vestibule_testkit::{PATIENCE, RawClient, RawRequest};

use crate::auth::key;
use crate::harness::{Gateway, configuration as in_memory};
use crate::process::{Folder, Served, configuration};
use crate::talk::{
    HOST, SESSIONS, Session, Upstream, assert_refused, at, modern_call, open_tenant, tenant, text,
};

fn applied(gateway: &Gateway, tenants: &str) -> Vec<String> {
    let text = in_memory("", tenants);
    let checked = vestibule_registry::parse(&text, "test", &|_| None)
        .unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{text}"));
    gateway.app.apply(&checked).unwrap()
}

fn with_keys(upstream: &Upstream, keys: &str) -> String {
    let head = format!("    auth: {{ keys: true }}\n    keys:{keys}");
    tenant("t", &head, &[("up", upstream.reach())], "")
}

fn one_key(id: &str, letter: &str) -> String {
    format!("\n      {id}: {{ secret: \"{}\" }}", key(id, letter))
}

/// A removed tenant is 404 and an added one is served, for new requests at once.
#[tokio::test]
async fn a_removed_tenant_is_404_and_an_added_one_is_served() {
    let upstream = Upstream::modern().await;
    let of = |id: &str| tenant(id, "    auth: none", &[("up", upstream.reach())], "");
    let gateway = Gateway::start(&of("t"));
    let call = |id: &str| modern_call(&format!("/mcp/{id}/up"), "echo", &json!({}));
    assert_eq!(gateway.ask(call("t")).await.status, 200);
    assert_refused("not yet", &gateway.ask(call("u")).await, 404, -32600);
    let session = Session::open(&gateway, "/mcp/t/up", SESSIONS[0]).await;
    assert!(applied(&gateway, &of("u")).is_empty());
    assert_eq!(gateway.ask(call("u")).await.status, 200);
    let gone = gateway.ask(call("t")).await;
    let unknown = gateway.ask(call("never")).await;
    assert_refused("removed", &gone, 404, -32600);
    assert_eq!(gone.body, unknown.body, "the same as one that never was");
    for request in [
        session.call(1, "echo", &json!({})),
        session.get(),
        session.delete(),
    ] {
        assert_refused("its session", &gateway.ask(request).await, 404, -32600);
    }
}

/// Contract, objects: a revoked key is 401 on every verb, its sessions with it; others stay.
#[tokio::test]
async fn a_revoked_key_is_401_and_the_others_are_unaffected() {
    let upstream = Upstream::modern().await;
    let (one, two) = (one_key("one", "A"), one_key("two", "B"));
    let gateway = Gateway::start(&with_keys(&upstream, &format!("{one}{two}")));
    let revoked = Session::with_key(&gateway, "/mcp/t/up", &key("one", "A")).await;
    let kept = Session::with_key(&gateway, "/mcp/t/up", &key("two", "B")).await;
    applied(&gateway, &with_keys(&upstream, &two));
    for request in [
        revoked.call(1, "echo", &json!({})),
        revoked.get(),
        revoked.delete(),
    ] {
        assert_refused("revoked", &gateway.ask(request).await, 401, -32600);
    }
    assert_eq!(
        gateway.ask(kept.call(1, "echo", &json!({}))).await.status,
        200
    );
    // a key of the same id with another secret is another key
    applied(
        &gateway,
        &with_keys(&upstream, &format!("{}{two}", one_key("one", "C"))),
    );
    assert_refused(
        "old secret",
        &gateway.ask(revoked.call(1, "echo", &json!({}))).await,
        401,
        -32600,
    );
}

/// Contract, objects; AUT-23: streams of a revoked key and of a removed tenant close within a second.
#[tokio::test]
async fn aut_23_streams_of_a_revoked_key_close_and_its_calls_end() {
    let upstream = Upstream::modern().await;
    let (one, two) = (one_key("one", "A"), one_key("two", "B"));
    let gateway = Gateway::start(&with_keys(&upstream, &format!("{one}{two}")));
    let mut streams = Vec::new();
    for key in [key("one", "A"), key("two", "B")] {
        let session = Session::with_key(&gateway, "/mcp/t/up", &key).await;
        let mut client = gateway.connect().await;
        client.open(&session.get()).await.unwrap();
        client.next_event().await.unwrap().unwrap();
        streams.push((session, client));
    }
    let mut call = gateway.connect().await;
    let request = modern_call("/mcp/t/up", "stream", &json!({}))
        .field("Authorization", format!("Bearer {}", key("one", "A")));
    call.send(&request.bytes()).await.unwrap();
    let (_request, _stream) = upstream.opened().await;
    applied(&gateway, &with_keys(&upstream, &two));
    let (kept, mut revoked) = (streams.pop().unwrap(), streams.pop().unwrap());
    let closing = async { while revoked.1.next_event().await.unwrap().is_some() {} };
    timeout(Duration::from_secs(1), closing)
        .await
        .expect("the stream of a revoked key closes");
    let ended = timeout(Duration::from_secs(1), call.response())
        .await
        .expect("the call of a revoked key ends")
        .unwrap();
    assert_eq!(ended.answer()["error"]["code"], -31008);
    assert_eq!(
        gateway.ask(kept.0.call(1, "echo", &json!({}))).await.status,
        200
    );
    applied(&gateway, &with_keys(&upstream, &format!("{one}{two}")));
    let over = gateway.ask(revoked.0.call(1, "echo", &json!({}))).await;
    assert_refused("the session is over", &over, 404, -32600);
}

/// What cannot change while it runs is named and stays.
#[tokio::test]
async fn what_needs_a_restart_is_named_and_stays() {
    let upstream = Upstream::modern().await;
    let tenants = open_tenant(&[("up", upstream.reach())], "");
    let gateway = Gateway::start(&tenants);
    let text = in_memory(
        "listen: { address: \"127.0.0.1:1\" }\nadmin: { address: \"127.0.0.1:2\" }",
        &tenants,
    );
    let checked = vestibule_registry::parse(&text, "test", &|_| None).unwrap();
    let kept = gateway.app.apply(&checked).unwrap();
    assert!(
        kept.iter().any(|line| line.contains("listen.address")),
        "{kept:?}"
    );
    assert!(
        kept.iter().any(|line| line.contains("admin.address")),
        "{kept:?}"
    );
    let call = modern_call("/mcp/t/up", "echo", &json!({}));
    assert_eq!(gateway.ask(call).await.status, 200);
}

/// C44: reloads under load drop no request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c44_two_hundred_requests_during_reloads_all_succeed() {
    let upstream = Upstream::modern().await;
    let of = |more: &str| open_tenant(&[("up", upstream.reach())], more);
    let gateway = Arc::new(Gateway::start(&of("")));
    let session = Session::open(&gateway, "/mcp/t/up", SESSIONS[0]).await;
    let mut load = tokio::task::JoinSet::new();
    for worker in 0..10 {
        let (gateway, session) = (Arc::clone(&gateway), session.clone());
        load.spawn(async move {
            let mut client = gateway.connect().await;
            for turn in 0..20 {
                let arguments = json!({ "worker": worker, "turn": turn });
                let request = if turn % 2 == 0 {
                    modern_call("/mcp/t/up", "echo", &arguments)
                } else {
                    session.call(format!("{worker}-{turn}"), "echo", &arguments)
                };
                let answer = client.ask(&request).await.unwrap();
                assert_eq!(answer.status, 200, "{:?}", answer.body);
                assert_eq!(text(&answer.answer()), arguments.to_string());
            }
        });
    }
    let mut reloads = 0;
    while !load.is_empty() {
        applied(
            &gateway,
            &of(if reloads % 2 == 0 {
                "instructions: changed"
            } else {
                ""
            }),
        );
        reloads += 1;
        while let Some(done) = load.try_join_next() {
            done.unwrap();
        }
        tokio::task::yield_now().await;
    }
    assert!(reloads > 3, "{reloads}");
    assert_eq!(upstream.calls(), 200, "none twice, none lost");
}

async fn asked(served: &Served, target: &str) -> u16 {
    let call = modern_call(target, "echo", &json!({}));
    served.ask(&call).await.status
}

/// C43: a bad file on SIGHUP changes nothing and is seen in log and metrics; a good one is applied.
#[tokio::test]
async fn c43_sighup_with_a_bad_file_keeps_the_old_configuration() {
    let upstream = Upstream::modern().await;
    let folder = Folder::new();
    let of = |id: &str| {
        configuration(
            "",
            &tenant(id, "    auth: none", &[("up", upstream.reach())], ""),
        )
    };
    let file = folder.write("vestibule.yaml", &of("t"));
    let mut served = Served::start(&file).await;
    let metric = |name: &'static str| {
        let page = served.page("/metrics");
        async move {
            let page = String::from_utf8(page.await.body.to_vec()).unwrap();
            let line = page.lines().find(|line| line.starts_with(name));
            line.unwrap_or_else(|| panic!("{name} in {page}"))
                .to_owned()
        }
    };
    for (text, said) in [
        ("tenants: [", "tenants: unclosed bracket"),
        ("tenants:\n  t: { auth: nonsense }\n", "tenants.t.auth"),
        ("\u{fffd}", "must be a mapping"),
    ] {
        folder.write("vestibule.yaml", text);
        served.program.signal("HUP");
        served.program.stderr.nth_with(said, 0).await;
        assert_eq!(asked(&served, "/mcp/t/up").await, 200, "{text:?}");
        assert_eq!(
            metric("vestibule_config_last_reload_success")
                .await
                .split(' ')
                .next_back(),
            Some("0")
        );
    }
    let said = served.program.stderr.all().join("\n");
    assert!(said.contains("tenants.t.auth"), "{said}");
    assert!(said.contains("vestibule.yaml:2:"), "{said}");
    folder.write("vestibule.yaml", &of("u"));
    served.program.signal("HUP");
    until_status(&served, "/mcp/u/up", 200).await;
    assert_eq!(asked(&served, "/mcp/t/up").await, 404);
    assert_eq!(
        metric("vestibule_config_last_reload_success")
            .await
            .split(' ')
            .next_back(),
        Some("1")
    );
    served.program.signal("TERM");
    served.program.signal("TERM");
    served.program.ended(Duration::from_secs(5)).await;
}

async fn until_status(served: &Served, target: &str, status: u16) {
    let came = timeout(PATIENCE, async {
        while asked(served, target).await != status {}
    });
    came.await.unwrap_or_else(|_| {
        panic!(
            "{target} never became {status}: {:#?}",
            served.program.stderr.all()
        )
    });
}

/// A change of the file alone is enough: replaced, written in place, or by a swapped symbolic link
/// as Kubernetes does it.
#[tokio::test]
async fn a_changed_file_is_applied_without_a_signal() {
    let upstream = Upstream::modern().await;
    let folder = Folder::new();
    let of = |id: &str| {
        configuration(
            "",
            &tenant(id, "    auth: none", &[("up", upstream.reach())], ""),
        )
    };
    let file = folder.write("vestibule.yaml", &of("t"));
    let served = Served::start(&file).await;
    assert_eq!(asked(&served, "/mcp/t/up").await, 200);
    folder.write("vestibule.yaml", &of("u"));
    until_status(&served, "/mcp/u/up", 200).await;
    std::fs::write(&file, of("v")).unwrap();
    until_status(&served, "/mcp/v/up", 200).await;
    let other = folder.write("other.yaml", &of("w"));
    let link = file.with_file_name("..data");
    std::os::unix::fs::symlink(&other, &link).unwrap();
    std::fs::rename(&link, &file).unwrap();
    until_status(&served, "/mcp/w/up", 200).await;
    assert_eq!(asked(&served, "/mcp/v/up").await, 404);
}

/// The listeners stay where they are, and connections that are open stay open.
#[tokio::test]
async fn an_open_connection_survives_a_reload() {
    let first = Upstream::modern().await;
    let second = Upstream::modern().await;
    let gateway = Gateway::start(&open_tenant(&[("up", at(&first.peer.url()))], ""));
    let mut client: RawClient = gateway.connect().await;
    let call = modern_call("/mcp/t/up", "echo", &json!({}));
    assert_eq!(client.ask(&call).await.unwrap().status, 200);
    applied(
        &gateway,
        &open_tenant(&[("up", at(&second.peer.url()))], ""),
    );
    assert_eq!(client.ask(&call).await.unwrap().status, 200);
    assert_eq!(
        (first.calls(), second.calls()),
        (1, 1),
        "the new address is used"
    );
    let page = RawRequest::new("GET", "/readyz").field("Host", HOST);
    let mut admin = RawClient::connect(gateway.bound.admin).await.unwrap();
    assert_eq!(admin.ask(&page).await.unwrap().status, 200);
}
