//! Upstreams that are processes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use vestibule_exchange::{Capabilities, Closing, Connector, Event, Final, Outbound, Sharing};
use vestibule_frame::{Draft, Frame, Limits};
use vestibule_terms::{Era, Method, Secret};
use vestibule_upstream::{Reach, Target};

use crate::child::{PART, command};
use crate::world::{
    World, call, client_session, draft, list, next, reason, tenant, tool, upstream,
};

fn target(part: &str) -> Target {
    let env = vec![(PART.to_owned(), Secret::new(part.to_owned()))];
    Target::new(
        upstream(),
        Reach::Stdio {
            command: command(),
            env,
            cwd: None,
        },
    )
}

fn world(part: &str) -> World {
    World::new(target(part))
}

fn is_alive(pid: u64) -> bool {
    // a zombie has no executable any more
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// VER-12, STD-09: a stateless process is found out by asking it, and serves everybody.
#[tokio::test]
async fn ver_12_a_stateless_process_serves_every_caller() {
    let world = world("modern");
    let profile = world
        .upstreams
        .profile(tenant(), upstream(), Era::Modern)
        .await
        .unwrap();
    assert_eq!(profile.revision.as_str(), "2026-07-28");
    assert_eq!(profile.instructions.as_deref(), Some("hi"));
    assert!(!profile.over_http);
    let mut pids = std::collections::HashSet::new();
    for name in ["a", "b"] {
        let outbound = Outbound {
            sharing: Sharing::Principal(Arc::from(name)),
            ..tool("pid")
        };
        pids.insert(
            world.message(outbound).await["result"]["pid"]
                .as_u64()
                .unwrap(),
        );
    }
    assert_eq!(pids.len(), 1);
    world.upstreams.shutdown(false).await;
    assert!(
        pids.into_iter().all(|pid| !is_alive(pid)),
        "STD-05: no process stays behind"
    );
}

/// STD-01: messages are one line, with nothing but the line breaks between tokens taken out.
#[tokio::test]
async fn std_01_a_message_is_written_as_one_line() {
    let world = world("modern");
    let text = "{\r\n\"jsonrpc\":\"2.0\",\n\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"x\",\r\"arguments\":{\"a\":\"\\n\"}}}";
    let frame = Frame::parse(Bytes::from_static(text.as_bytes()), &Limits::default()).unwrap();
    let outbound = Outbound {
        message: Draft::new(frame),
        ..tool("x")
    };
    let answer = world.message(outbound).await;
    let line = &answer["result"]["line"];
    assert_eq!(line["params"]["arguments"]["a"], "\n");
    assert_eq!(
        line["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    world.upstreams.shutdown(false).await;
}

/// STD-07, CAN-07: calls run side by side on one process, and a dropped one is cancelled.
#[tokio::test]
async fn std_07_a_dropped_call_is_cancelled_by_a_notification() {
    let world = world("modern");
    world.message(tool("x")).await;
    let mut hanging = world.events(tool("hang")).await;
    assert!(futures_util::poll!(futures_util::StreamExt::next(&mut hanging)).is_pending());
    let waiting = async || world.message(tool("count")).await["result"]["waiting"].clone();
    while waiting().await != json!(1) {
        assert!(futures_util::poll!(futures_util::StreamExt::next(&mut hanging)).is_pending());
    }
    drop(hanging);
    while waiting().await != json!(0) {}
    world.upstreams.shutdown(false).await;
}

/// STD-07: what a listen stream carries is told apart by its subscription.
#[tokio::test]
async fn std_07_subscriptions_are_told_apart_by_their_id() {
    let world = world("modern");
    let listen = || call(Method::SubscriptionsListen, json!({ "notifications": {} }));
    let (mut one, mut two) = (world.events(listen()).await, world.events(listen()).await);
    for events in [&mut one, &mut two] {
        for method in [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
        ] {
            let Event::Notice(notice) = next(events).await else {
                panic!("no notice")
            };
            assert_eq!(notice.frame().method().as_deref(), Some(method));
        }
    }
    world.upstreams.shutdown(false).await;
}

/// PRG-01: progress on a shared channel goes to the call of its token.
#[tokio::test]
async fn prg_01_progress_goes_to_the_call_of_its_token() {
    for part in ["modern", "legacy"] {
        let world = world(part);
        let mut outbound = tool("progress");
        outbound.progress = true;
        let mut events = world.events(outbound).await;
        for _ in 0..2 {
            assert!(
                matches!(next(&mut events).await, Event::Progress(_)),
                "{part}"
            );
        }
        assert!(matches!(
            next(&mut events).await,
            Event::Final(Final::Message(_))
        ));
        world.upstreams.shutdown(false).await;
    }
}

/// VER-13: any error that no stateless server gives means legacy, on the same process.
#[tokio::test]
async fn ver_13_an_error_leads_to_initialize_on_the_same_process() {
    let world = world("legacy");
    let profile = world
        .upstreams
        .profile(tenant(), upstream(), Era::Modern)
        .await
        .unwrap();
    assert_eq!(profile.revision.as_str(), "2025-06-18");
    let outbound = Outbound {
        sharing: Sharing::Catalog,
        ..list()
    };
    let pid = world.message(outbound).await["result"]["pid"].to_string();
    assert_eq!(
        profile.instructions.as_deref(),
        Some(pid.as_str()),
        "the process that was asked"
    );
    world.upstreams.shutdown(false).await;
}

/// VER-13: silence after the first byte, and an exit, mean legacy too.
#[tokio::test]
async fn ver_13_silence_and_exit_lead_to_initialize() {
    let (silent, picky) = (world("silent"), world("picky"));
    let (one, two) = tokio::join!(
        silent.upstreams.profile(tenant(), upstream(), Era::Modern),
        picky.upstreams.profile(tenant(), upstream(), Era::Modern),
    );
    assert_eq!(one.unwrap().revision.as_str(), "2025-06-18");
    assert_eq!(two.unwrap().revision.as_str(), "2025-06-18");
    picky.message(list()).await;
    tokio::join!(
        silent.upstreams.shutdown(false),
        picky.upstreams.shutdown(false)
    );
}

/// STD-08: a child sees PATH, HOME, LANG, TZ and what was named; it runs where it was told to.
#[tokio::test]
async fn std_08_a_child_sees_only_what_was_named() {
    let mut target = target("modern");
    if let Reach::Stdio { cwd, .. } = &mut target.reach {
        *cwd = Some("/".into());
    }
    let world = World::new(target);
    let answer = world.message(tool("env")).await;
    assert_eq!(answer["result"]["cwd"], "/");
    let allowed = ["PATH", "HOME", "LANG", "TZ", PART];
    for name in answer["result"]["env"].as_array().unwrap() {
        assert!(allowed.contains(&name.as_str().unwrap()), "{name}");
    }
    world.upstreams.shutdown(false).await;
}

/// T43: processes are not shared between principals or client sessions.
#[tokio::test]
async fn t43_a_legacy_process_belongs_to_one_principal_or_client_session() {
    let world = world("legacy");
    let mut pids = std::collections::HashSet::new();
    for sharing in [
        Sharing::Principal(Arc::from("a")),
        Sharing::Principal(Arc::from("b")),
        Sharing::Session(client_session("x")),
    ] {
        let pid = async || {
            world
                .message(Outbound {
                    sharing: sharing.clone(),
                    ..list()
                })
                .await["result"]["pid"]
                .clone()
        };
        let first = pid().await;
        assert_eq!(first, pid().await);
        pids.insert(first.as_u64().unwrap());
    }
    assert_eq!(pids.len(), 3);
    let closed = world
        .message(Outbound {
            sharing: Sharing::Session(client_session("x")),
            ..list()
        })
        .await;
    world
        .upstreams
        .close(client_session("x"), Closing::Here(vec![]))
        .await;
    world.upstreams.shutdown(false).await;
    pids.insert(closed["result"]["pid"].as_u64().unwrap());
    assert!(pids.into_iter().all(|pid| !is_alive(pid)));
}

/// STD-06: a crash fails the calls that are open; the next one finds a new process.
#[tokio::test]
async fn std_06_a_crash_fails_open_calls_and_the_next_one_is_served() {
    for part in ["modern", "legacy"] {
        let world = world(part);
        let before = world.message(list()).await["result"]["pid"].clone();
        let mut hanging = world.events(tool("hang")).await;
        assert!(futures_util::poll!(futures_util::StreamExt::next(&mut hanging)).is_pending());
        let error = world.error(tool("crash")).await;
        assert_eq!(
            (error.code, reason(&error).as_str()),
            (-31001, "outcome_unknown"),
            "{part}"
        );
        let Event::Final(Final::Error(error)) = next(&mut hanging).await else {
            panic!("{part}")
        };
        assert_eq!(error.code, -31001);
        let after = world.message(list()).await["result"]["pid"].clone();
        assert_ne!(before, after);
        world.upstreams.shutdown(false).await;
    }
}

/// STD-03, STD-04: a little noise is skipped, a hundred lines in a row restart the process.
#[tokio::test]
async fn std_03_noise_is_skipped_until_it_is_too_much() {
    let world = world("modern");
    world.message(tool("some noise")).await;
    let before = world.message(tool("x")).await["result"]["pid"].clone();
    let error = world.error(tool("noise")).await;
    assert_eq!((error.code, reason(&error).as_str()), (-31003, "noise"));
    assert_ne!(world.message(tool("x")).await["result"]["pid"], before);
    world.upstreams.shutdown(false).await;
}

/// STD-01: a line beyond the cap cannot be read on from.
#[tokio::test]
async fn std_01_a_line_beyond_the_cap_restarts_the_process() {
    let mut target = target("modern");
    target.max_response = 60_000;
    let world = World::new(target);
    let error = world.error(tool("long")).await;
    assert_eq!((error.code, reason(&error).as_str()), (-31003, "too_large"));
    world.message(tool("x")).await;
    world.upstreams.shutdown(false).await;
}

/// BAT-09, STD-10: lines that hold several messages are taken apart. Case 60: a malformed response
/// fails its own call.
#[tokio::test]
async fn std_10_batches_are_taken_apart_and_malformed_responses_fail_their_call() {
    let world = world("legacy");
    assert_eq!(
        world.message(tool("batch")).await["result"]["batched"],
        true
    );
    let error = world.error(tool("both")).await;
    assert_eq!((error.code, reason(&error).as_str()), (-31003, "malformed"));
    world.message(tool("x")).await;
    world.upstreams.shutdown(false).await;
}

/// A process asks: the question is the one call's, the answer a line.
#[tokio::test]
async fn a_process_can_ask_during_a_call() {
    let world = world("legacy");
    let elicits = Arc::new(Capabilities {
        elicit_form: true,
        ..Capabilities::default()
    });
    let mut events = world
        .events(Outbound {
            capabilities: elicits,
            ..tool("ask")
        })
        .await;
    let Event::Question(asked) = next(&mut events).await else {
        panic!("no question")
    };
    let id: Value = serde_json::from_slice(asked.from.id.as_bytes()).unwrap();
    let answer = draft(&json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "decline" } }));
    world.upstreams.answer(asked.from, answer).await.unwrap();
    let Event::Final(Final::Message(end)) = next(&mut events).await else {
        panic!("no end")
    };
    let end: Value = serde_json::from_slice(&end.to_bytes()).unwrap();
    assert_eq!(
        end["result"],
        json!({ "answer": { "action": "decline" }, "to": 0 })
    );
    world.upstreams.shutdown(false).await;
}

/// Interactive calls of one principal get a process each, up to the limit; then they wait.
#[tokio::test]
async fn interactive_calls_hold_their_process() {
    let mut target = target("legacy");
    target.max_sessions = 2;
    let world = World::new(target);
    let elicits = Arc::new(Capabilities {
        elicit_form: true,
        ..Capabilities::default()
    });
    let interactive = |name: &str| Outbound {
        capabilities: Arc::clone(&elicits),
        ..tool(name)
    };
    let first = world.message(interactive("x")).await["result"]["pid"].clone();
    let mut held = world.events(interactive("ask")).await;
    assert!(matches!(next(&mut held).await, Event::Question(_)));
    // the process of the catalog makes room for a second one
    let second = world.message(interactive("x")).await["result"]["pid"].clone();
    assert_ne!(first, second);
    let mut other = world.events(interactive("ask")).await;
    assert!(matches!(next(&mut other).await, Event::Question(_)));
    let mut late = interactive("x");
    late.deadline =
        vestibule_terms::Deadline::starting_now(Duration::from_millis(100), Duration::from_secs(5));
    let error = world.error(late).await;
    assert_eq!(
        (error.code, reason(&error).as_str()),
        (-31005, "upstream_sessions")
    );
    drop(held);
    let third = world.message(interactive("x")).await["result"]["pid"].clone();
    assert_eq!(first, third);
    world.upstreams.shutdown(false).await;
}

/// A program that does not exist is an upstream that cannot be reached.
#[tokio::test]
async fn a_program_that_does_not_exist_is_unavailable() {
    let reach = Reach::Stdio {
        command: vec!["/nonexistent/program".to_owned()],
        env: vec![],
        cwd: None,
    };
    let world = World::new(Target::new(upstream(), reach));
    let error = world.error(tool("x")).await;
    assert_eq!((error.code, reason(&error).as_str()), (-31001, "spawn"));
    assert!(
        world
            .metrics
            .expose()
            .contains("upstream_up{tenant=\"t\",upstream=\"up\"} 0")
    );
}

/// STD-05: a process that ignores the end of its input is ended by force, with its children.
#[tokio::test]
async fn std_05_a_stubborn_process_is_ended_with_its_children() {
    let world = world("stubborn");
    let pid = world.message(list()).await["result"]["pid"]
        .as_u64()
        .unwrap();
    let members = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        pids.filter(|p| group_of(*p) == Some(pid) && is_alive(*p))
            .count()
    };
    assert_eq!(members(), 2, "itself and the one it started");
    world.upstreams.shutdown(false).await;
    assert_eq!(members(), 0);
}

/// No process outlives the runtime, asked to end or not.
#[test]
fn std_05_processes_die_with_the_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pid = runtime.block_on(async {
        let world = world("stubborn");
        let pid = world.message(list()).await["result"]["pid"]
            .as_u64()
            .unwrap();
        drop(world);
        pid
    });
    drop(runtime);
    let last = std::time::SystemTime::now() + Duration::from_secs(5);
    while is_alive(pid) {
        assert!(std::time::SystemTime::now() < last, "it is still there");
        std::thread::yield_now();
    }
}

fn group_of(pid: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')')
        .next()?
        .split_whitespace()
        .nth(2)?
        .parse()
        .ok()
}
