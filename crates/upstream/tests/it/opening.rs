//! Which era an upstream is taken for, and how sessions are opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use vestibule_exchange::{Capabilities, Connector, Sharing};
use vestibule_terms::{Era, Method};
use vestibule_upstream::EraChoice;

use crate::world::{
    Server, World, call, client_session, empty, http_target, json_answer, legacy_frame, list,
    modern_discover, reason, tenant, tool, upstream,
};

/// Case 151: neither 401, 503 nor 500 is remembered, and none of them is legacy.
#[tokio::test]
async fn case_151_trouble_at_the_probe_is_not_remembered() {
    let asked = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |seen| {
        let turn = asked.fetch_add(1, Ordering::SeqCst);
        async move {
            match turn {
                0 => empty(401),
                1 => empty(503),
                2 => empty(500),
                _ if seen.method() == "server/discover" => modern_discover(&seen),
                _ => json_answer(200, &seen.result(json!({}))),
            }
        }
    })
    .await;
    let world = World::http(&server);
    for code in [-31008, -31001, -31001] {
        assert_eq!(world.code(tool("t")).await, code);
        assert!(
            world
                .upstreams
                .known_profile(&tenant(), &upstream(), Era::Modern)
                .is_none()
        );
    }
    world.message(tool("t")).await;
    assert_eq!(server.count("initialize"), 0);
}

/// XT-030: the probe is made once however many callers wait for it.
#[tokio::test]
async fn xt_030_the_probe_is_made_once_for_all_who_wait() {
    let server = Server::start(|seen| async move {
        legacy_frame(&seen, "2025-11-25", Some("s"))
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    let world = Arc::new(World::http(&server));
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..50 {
        let world = Arc::clone(&world);
        calls.spawn(async move {
            if n % 2 == 0 {
                world.message(list()).await;
            } else {
                world
                    .upstreams
                    .profile(tenant(), upstream(), Era::Modern)
                    .await
                    .unwrap();
            }
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    assert_eq!(server.count("server/discover"), 1);
    // one of the catalog, opened by the probe, and one of the principal
    assert_eq!(server.count("initialize"), 2);
}

/// A pinned era is never asked about.
#[tokio::test]
async fn a_pinned_era_is_not_probed() {
    let server = Server::start(|seen| async move {
        legacy_frame(&seen, "2025-06-18", None)
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    let mut target = http_target(&server.url);
    target.era = EraChoice::Legacy;
    let world = World::new(target);
    let profile = world
        .upstreams
        .profile(tenant(), upstream(), Era::Modern)
        .await
        .unwrap();
    assert_eq!(profile.revision.as_str(), "2025-06-18");
    world.message(list()).await;
    assert_eq!(server.count("server/discover"), 0);

    let server =
        Server::start(|seen| async move { json_answer(200, &seen.result(json!({}))) }).await;
    let mut target = http_target(&server.url);
    target.era = EraChoice::Modern;
    World::new(target).message(list()).await;
    assert_eq!(server.count("server/discover"), 0);
    assert_eq!(server.count("tools/list"), 1);
}

/// Case 149, HDR-07, VER-04, LIF-03, MET-02: a session of our own, declared with the client's class.
#[tokio::test]
async fn case_149_a_session_is_opened_with_the_clients_capabilities() {
    let server = Server::start(|seen| async move {
        legacy_frame(&seen, "2025-03-26", Some("sid-1"))
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({ "content": [] }))))
    })
    .await;
    let world = World::http(&server);
    let mut outbound = tool("t");
    outbound.sharing = Sharing::Session(client_session("c"));
    outbound.capabilities = Arc::new(Capabilities {
        roots: true,
        elicit_form: true,
        ..Capabilities::default()
    });
    world.message(outbound).await;
    let log = server.log();
    let own: Vec<_> = log
        .iter()
        .rev()
        .take_while(|seen| seen.method() != "initialize")
        .collect();
    let opening = &log[log.len() - own.len() - 1];
    let params = &opening.body["params"];
    assert_eq!(params["protocolVersion"], "2025-11-25");
    assert_eq!(
        params["clientInfo"],
        json!({ "name": "gate", "version": "9" })
    );
    // masked by what the upstream was known to speak
    assert_eq!(params["capabilities"], json!({ "roots": {} }));
    assert!(opening.header("mcp-session-id").is_none());
    assert!(
        opening.header("mcp-protocol-version").is_none(),
        "VER-04: not on initialize"
    );
    let methods: Vec<&str> = own.iter().rev().map(|seen| seen.method()).collect();
    assert_eq!(
        methods.first(),
        Some(&"notifications/initialized"),
        "LIF-03"
    );
    assert_eq!(methods.last(), Some(&"tools/call"));
    for seen in own {
        assert_eq!(
            seen.header("mcp-session-id"),
            Some("sid-1"),
            "{:?}",
            seen.body
        );
        assert_eq!(seen.header("mcp-protocol-version"), Some("2025-03-26"));
        assert!(seen.header("mcp-method").is_none() && seen.header("mcp-name").is_none());
    }
}

/// LIF-03: without `initialized` there is no session.
#[tokio::test]
async fn lif_03_a_refused_initialized_is_no_session() {
    let server = Server::start(|seen| async move {
        match seen.method() {
            "notifications/initialized" => empty(500),
            _ => legacy_frame(&seen, "2025-11-25", Some("s")).unwrap_or_else(|| empty(500)),
        }
    })
    .await;
    assert_eq!(World::http(&server).code(tool("t")).await, -31001);
    assert_eq!(server.count("tools/call"), 0);
}

/// VER-04: an upstream that answers 400 to the version header gets none from then on.
#[tokio::test]
async fn ver_04_a_refused_version_header_is_left_out_from_then_on() {
    let server = Server::start(|seen| async move {
        if seen.header("mcp-protocol-version").is_some() && seen.method() != "server/discover" {
            return empty(400);
        }
        legacy_frame(&seen, "2024-11-05", Some("s"))
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    let world = World::http(&server);
    world.message(list()).await;
    world.message(list()).await;
    let with_header = server
        .log()
        .iter()
        .skip(1)
        .filter(|s| s.header("mcp-protocol-version").is_some())
        .count();
    assert_eq!(with_header, 1);
}

/// Case 114: a session id counts only beside an `InitializeResult`, and only when it can be one.
#[tokio::test]
async fn case_114_session_ids_of_failures_are_not_used() {
    let server = Server::start(|seen| async move {
        if seen.method() == "server/discover" {
            let mut answer = empty(404);
            answer
                .headers_mut()
                .insert("mcp-session-id", "junk".parse().unwrap());
            return answer;
        }
        legacy_frame(&seen, "2025-11-25", None)
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    World::http(&server).message(tool("t")).await;
    assert!(
        server
            .log()
            .iter()
            .all(|seen| seen.header("mcp-session-id").is_none())
    );

    let server = Server::start(|seen| async move {
        legacy_frame(&seen, "2025-11-25", Some("a b")).unwrap_or_else(|| empty(500))
    })
    .await;
    let error = World::http(&server).error(tool("t")).await;
    assert_eq!(
        (error.code, reason(&error).as_str()),
        (-31003, "session_id")
    );
}

/// VER-02: an answer in an unknown version ends the session and makes the upstream unavailable.
#[tokio::test]
async fn ver_02_an_unknown_version_ends_the_session() {
    let server = Server::start(|seen| async move {
        legacy_frame(&seen, "2031-01-01", Some("s")).unwrap_or_else(|| empty(500))
    })
    .await;
    let error = World::http(&server).error(tool("t")).await;
    assert_eq!(
        (error.code, reason(&error).as_str()),
        (-31001, "upstream_version")
    );
    let last = server.log().pop().unwrap();
    assert_eq!(
        (last.http, last.headers["mcp-session-id"].to_str().unwrap()),
        (http::Method::DELETE, "s")
    );
}

/// VER-03: an error that lists versions gets another offer.
#[tokio::test]
async fn ver_03_versions_that_an_error_lists_are_offered() {
    let server = Server::start(|seen| async move {
        let offered = seen.body["params"]["protocolVersion"]
            .as_str()
            .unwrap_or_default();
        if seen.method() == "initialize" && offered != "2024-11-05" {
            return json_answer(
                400,
                &seen.error(-32602, json!({ "supported": ["2024-11-05"] })),
            );
        }
        legacy_frame(&seen, "2024-11-05", None)
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    World::http(&server).message(tool("t")).await;
}

/// An upstream that refuses both openings says so; HTTP+SSE is not spoken.
#[tokio::test]
async fn an_upstream_that_refuses_both_openings_is_unavailable_for_that_reason() {
    let server = Server::start(|_| async move { empty(405) }).await;
    let error = World::http(&server).error(tool("t")).await;
    assert_eq!((error.code, reason(&error).as_str()), (-31001, "transport"));
    assert!(error.message.contains("HTTP+SSE"));
}

/// A changed target is asked anew, and its sessions are ended.
#[tokio::test]
async fn a_replaced_target_gives_up_its_sessions() {
    let mut server = Server::start(|seen| async move {
        legacy_frame(&seen, "2025-11-25", Some("s"))
            .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
    })
    .await;
    let world = World::http(&server);
    world.message(list()).await;
    let mut target = http_target(&server.url);
    target.max_sessions = 3;
    let targets = vestibule_upstream::Targets::new([(tenant(), target)]).unwrap();
    world.targets.store(Arc::new(targets));
    world.upstreams.refresh();
    server.next(|seen| seen.http == http::Method::DELETE).await;
    world.message(list()).await;
    assert_eq!(server.count("server/discover"), 2);
    world.targets.store(Arc::default());
    let error = world.error(call(Method::ToolsList, json!({}))).await;
    assert_eq!(reason(&error), "unknown_upstream");
}

/// An upstream that turns from one era to the other is followed: a session that cannot be opened
/// any more leads to a new probe, within the call that met it.
#[tokio::test]
async fn case_151_an_upstream_that_changes_its_era_is_followed() {
    let modern = Arc::new(AtomicUsize::new(0));
    let state = Arc::clone(&modern);
    let server = Server::start(move |seen| {
        let modern = state.load(Ordering::SeqCst) > 0;
        async move {
            if modern {
                return match seen.method() {
                    "server/discover" => modern_discover(&seen),
                    "initialize" => json_answer(
                        400,
                        &seen.error(-32022, json!({ "supported": ["2026-07-28"] })),
                    ),
                    _ if seen.header("mcp-session-id").is_some() => empty(404),
                    _ => json_answer(200, &seen.result(json!({ "modern": true }))),
                };
            }
            legacy_frame(&seen, "2025-11-25", Some("s"))
                .unwrap_or_else(|| json_answer(200, &seen.result(json!({}))))
        }
    })
    .await;
    let world = World::http(&server);
    world.message(tool("t")).await;
    modern.store(1, Ordering::SeqCst);
    assert_eq!(world.message(tool("t")).await["result"]["modern"], true);
    let profile = world
        .upstreams
        .known_profile(&tenant(), &upstream(), Era::Modern)
        .unwrap();
    assert_eq!(profile.revision.as_str(), "2026-07-28");
}

/// A stateless upstream that twice answers what none of them does is asked anew.
#[tokio::test]
async fn case_151_two_answers_that_no_stateless_server_gives_lead_to_a_new_probe() {
    let legacy = Arc::new(AtomicUsize::new(0));
    let state = Arc::clone(&legacy);
    let server = Server::start(move |seen| {
        let legacy = state.load(Ordering::SeqCst) > 0;
        async move {
            match (legacy, seen.method()) {
                (false, "server/discover") => modern_discover(&seen),
                (true, "tools/call") if seen.header("mcp-session-id").is_none() => empty(400),
                (true, _) => legacy_frame(&seen, "2025-11-25", Some("s"))
                    .unwrap_or_else(|| json_answer(200, &seen.result(json!({})))),
                (false, _) => json_answer(200, &seen.result(json!({}))),
            }
        }
    })
    .await;
    let world = World::http(&server);
    world.message(tool("t")).await;
    legacy.store(1, Ordering::SeqCst);
    assert_eq!(world.code(tool("t")).await, -31003);
    assert_eq!(world.code(tool("t")).await, -31003);
    world.message(tool("t")).await;
    assert_eq!(server.count("server/discover"), 2);
}

/// A removed target lets its calls end; its session ends after them.
#[tokio::test]
async fn a_removed_target_lets_its_calls_end() {
    let (go, gone) = tokio::sync::watch::channel(false);
    let mut server = Server::start(move |seen| {
        let mut gone = gone.clone();
        async move {
            if let Some(answer) = legacy_frame(&seen, "2025-11-25", Some("s")) {
                return answer;
            }
            gone.wait_for(|gone| *gone).await.unwrap();
            json_answer(200, &seen.result(json!({})))
        }
    })
    .await;
    let world = World::http(&server);
    let mut events = world.events(tool("t")).await;
    tokio::select! {
        _ = server.next_method("tools/call") => {}
        event = crate::world::next(&mut events) => panic!("{event:?}"),
    }
    world.targets.store(Arc::default());
    world.upstreams.refresh();
    // the catalog's session, which nobody uses, ends at once; the other one is in use
    server.next(|seen| seen.http == http::Method::DELETE).await;
    go.send(true).unwrap();
    let end = crate::world::next(&mut events).await;
    assert!(matches!(
        end,
        vestibule_exchange::Event::Final(vestibule_exchange::Final::Message(_))
    ));
    drop(events);
    server.next(|seen| seen.http == http::Method::DELETE).await;
}

/// An upstream of both eras is spoken to in the era of the client; each way is opened once.
#[tokio::test]
async fn ver_14_an_upstream_of_both_eras_is_spoken_to_in_the_clients() {
    let server = Server::start(|seen| async move {
        match seen.method() {
            "server/discover" => modern_discover(&seen),
            "tools/list" => {
                let modern = seen.header("mcp-method").is_some();
                json_answer(200, &seen.result(json!({ "modern": modern })))
            }
            _ => legacy_frame(&seen, "2025-11-25", Some("s")).unwrap(),
        }
    })
    .await;
    let world = World::http(&server);
    for _ in 0..2 {
        for (era, modern) in [(Era::Legacy, false), (Era::Modern, true)] {
            let answer = world
                .message(vestibule_exchange::Outbound { era, ..list() })
                .await;
            assert_eq!(answer["result"]["modern"], modern, "{era:?}");
        }
    }
    let revision = async |era| {
        let profile = world.upstreams.profile(tenant(), upstream(), era).await;
        profile.unwrap().revision.as_str()
    };
    assert_eq!(revision(Era::Legacy).await, "2025-11-25");
    assert_eq!(revision(Era::Modern).await, "2026-07-28");
    assert_eq!(server.count("server/discover"), 1);
    assert_eq!(server.count("initialize"), 1);
}

/// A stateless upstream serves legacy clients too: what refuses the handshake is asked what it is.
#[tokio::test]
async fn ver_10_a_stateless_upstream_that_refuses_the_handshake_serves_legacy_clients() {
    let named = json!({ "supported": ["2026-07-28"] });
    for (code, refusal) in [(-32022, named), (-32601, json!(null))] {
        let server = Server::start(move |seen| {
            let refusal = refusal.clone();
            async move {
                match seen.method() {
                    "server/discover" => modern_discover(&seen),
                    "initialize" => json_answer(400, &seen.error(code, refusal)),
                    _ => json_answer(200, &seen.result(json!({}))),
                }
            }
        })
        .await;
        let world = World::http(&server);
        let profile = world
            .upstreams
            .profile(tenant(), upstream(), Era::Legacy)
            .await
            .unwrap();
        assert_eq!(profile.revision.as_str(), "2026-07-28");
        for _ in 0..2 {
            world
                .message(vestibule_exchange::Outbound {
                    era: Era::Legacy,
                    ..list()
                })
                .await;
        }
        assert_eq!(server.count("initialize"), 1);
        assert_eq!(server.count("server/discover"), 1);
    }
}
