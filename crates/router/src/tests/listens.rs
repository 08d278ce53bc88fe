//! `subscriptions/listen` over several upstreams.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use vestibule_exchange::{Event, Events, Final, Outbound, RpcError};
use vestibule_terms::Method;

use crate::testing::{World, draft, error, legacy, modern, plan, result, text, transparent};

/// The streams that upstreams were asked to open, newest last: what is sent comes out of them.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

/// An upstream and the way into its stream.
type Line = (String, mpsc::Sender<Event>);

impl Lines {
    fn open(&self, outbound: &Outbound) -> Events {
        let (sender, receiver) = mpsc::channel(64);
        self.0
            .lock()
            .unwrap()
            .push((outbound.upstream.to_string(), sender));
        let events = futures_util::stream::unfold(receiver, |mut receiver| async move {
            let event = receiver.recv().await?;
            Some((event, receiver))
        });
        Events::stream(events)
    }

    fn send(&self, upstream: &str, method: &str, params: &str) {
        let text =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{params}}}"#);
        let lines = self.0.lock().unwrap();
        let (_, line) = lines
            .iter()
            .rfind(|(id, _)| id == upstream)
            .expect("a line");
        line.try_send(Event::Notice(draft(&text))).unwrap();
    }

    fn ack(&self, upstream: &str, filter: &str) {
        let params = format!(r#"{{"notifications":{filter}}}"#);
        self.send(upstream, "subscriptions/acknowledged", &params);
    }

    fn hang_up(&self, upstream: &str) {
        self.0.lock().unwrap().retain(|(id, _)| id != upstream);
    }

    fn count(&self) -> usize {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, line)| !line.is_closed())
            .count()
    }
}

fn world(lines: &Lines) -> World {
    let lines = lines.clone();
    let profiles = [("a", modern()), ("b", modern()), ("c", legacy())];
    World::new(
        plan(&["a", "b", "c"]),
        &profiles,
        move |outbound| match outbound.method {
            Method::SubscriptionsListen => lines.open(outbound),
            Method::ResourcesList => result(r#"{"resources":[]}"#),
            Method::ResourcesTemplatesList => result(r#"{"resourceTemplates":[]}"#),
            _ => result("{}"),
        },
    )
}

fn params(filter: &str) -> String {
    format!(r#"{{"_meta":{{"k":1}},"notifications":{filter}}}"#)
}

async fn next(events: &mut Events) -> String {
    match events.next().await {
        Some(Event::Notice(draft)) => text(&draft),
        other => panic!("not a notification: {other:?}"),
    }
}

fn quiet(events: &mut Events) -> bool {
    events.next().now_or_never().is_none()
}

const FILTER: &str = r#"{"resourceSubscriptions":["a+x:1","c+x:1","b+y:/d","zz:1"],"toolsListChanged":true,"promptsListChanged":false}"#;

/// Case 156, SUB-01, SUB-02, SUB-12: each upstream gets its share; the acknowledgement is merged,
/// narrowed and first; events are exposed, and only what was granted passes.
#[tokio::test(start_paused = true)]
async fn case_156_a_listen_is_split_and_merged() {
    let lines = Lines::default();
    let world = world(&lines);
    let mut events = world
        .events(Method::SubscriptionsListen, &params(FILTER))
        .await;
    assert!(quiet(&mut events));
    let shares: Vec<String> = world.asked().iter().map(|o| text(&o.message)).collect();
    assert_eq!(shares.len(), 2);
    assert!(
        shares[0].contains(
            r#""notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:1"]}"#
        ),
        "{shares:?}"
    );
    assert!(
        shares[1].contains(r#"["y:/d"]"#) && shares[1].contains(r#""k":1"#),
        "{shares:?}"
    );
    lines.send("a", "tools/list_changed", "{}"); // before its acknowledgement: dropped (SUB-13)
    lines.ack(
        "a",
        r#"{"resourceSubscriptions":["x:1"],"promptsListChanged":true}"#,
    );
    assert!(quiet(&mut events));
    lines.ack(
        "b",
        r#"{"toolsListChanged":true,"resourceSubscriptions":["y:/d"]}"#,
    );
    let ack = next(&mut events).await;
    assert!(ack.contains(r#""method":"notifications/subscriptions/acknowledged""#));
    let honoured =
        r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a+x:1","b+y:/d"]}}"#;
    assert!(ack.contains(honoured), "{ack}");
    lines.send("b", "resources/updated", r#"{"uri":"y:/d/sub"}"#);
    let Some(Event::Notice(updated)) = events.next().await else {
        panic!("not a notification")
    };
    let frame = updated.frame();
    let uri = frame.uri().and_then(|span| frame.string(span)).unwrap();
    assert_eq!(
        uri, "b+y:/d/sub",
        "who decides by the URI reads the exposed one"
    );
    lines.send("a", "tools/list_changed", "{}"); // not granted by a
    lines.send("a", "resources/updated", r#"{"uri":"x:2"}"#); // not subscribed
    lines.send("a", "prompts/list_changed", "{}"); // not asked for
    lines.send("a", "progress", r#"{"progressToken":1,"progress":1}"#); // SUB-09
    assert!(quiet(&mut events));
    drop(events);
    tokio::task::yield_now().await;
    assert_eq!(lines.count(), 0, "dropping the events ends the listens");
}

/// Case 157: who does not listen is left out of the acknowledgement, at once, and not asked again;
/// who could not be reached is asked once more.
#[tokio::test(start_paused = true)]
async fn case_157_upstreams_that_do_not_listen_are_left_out() {
    let unsupported = || error(r#"{"code":-32601,"message":"no"}"#);
    let plain = || result("{}");
    let unreachable = || {
        let upstream = vestibule_terms::UpstreamId::new("a").unwrap();
        Events::error(RpcError::unavailable(&upstream, "http"))
    };
    let cases: [(fn() -> Events, usize); 3] = [(unsupported, 1), (plain, 1), (unreachable, 2)];
    for (answer, asked) in cases {
        let world = World::new(transparent("a"), &[("a", modern())], move |_| answer());
        let started = Instant::now();
        let mut events = world
            .events(
                Method::SubscriptionsListen,
                &params(r#"{"toolsListChanged":true}"#),
            )
            .await;
        assert!(next(&mut events).await.contains(r#""notifications":{}"#));
        assert_eq!(started.elapsed(), Duration::ZERO);
        let silence = tokio::time::timeout(Duration::from_secs(300), events.next()).await;
        assert!(silence.is_err(), "the stream stays: the client decides");
        assert_eq!(world.asked().len(), asked);
    }
}

/// SUB-01: an upstream that does not acknowledge in three seconds is left out.
#[tokio::test(start_paused = true)]
async fn sub_01_the_acknowledgement_waits_three_seconds_at_most() {
    let lines = Lines::default();
    let world = world(&lines);
    let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["b+y:/d","a+x:1"]}"#;
    let mut events = world
        .events(Method::SubscriptionsListen, &params(filter))
        .await;
    assert!(quiet(&mut events));
    lines.ack("b", r#"{"resourceSubscriptions":["y:/d"]}"#);
    lines.send("b", "resources/updated", r#"{"uri":"y:/d"}"#);
    let started = Instant::now();
    assert!(
        next(&mut events)
            .await
            .contains(r#"{"resourceSubscriptions":["b+y:/d"]}"#)
    );
    assert_eq!(started.elapsed(), Duration::from_secs(3));
    assert!(next(&mut events).await.contains(r#""uri":"b+y:/d""#));
    lines.ack(
        "a",
        r#"{"toolsListChanged":true,"resourceSubscriptions":["x:1"]}"#,
    );
    lines.send("a", "tools/list_changed", "{}");
    lines.send("a", "resources/updated", r#"{"uri":"x:1"}"#);
    assert!(quiet(&mut events), "what was not acknowledged is not sent");
}

/// SUB-08; and the era: a server of legacy upstreams alone cannot be listened to yet.
#[tokio::test(start_paused = true)]
async fn sub_08_a_listen_needs_a_filter_and_somebody_to_listen_to() {
    let world = World::new(plan(&["c"]), &[("c", legacy())], |_| result("{}"));
    for bad in ["{}", r#"{"notifications":[]}"#] {
        assert_eq!(
            world.error(Method::SubscriptionsListen, bad).await.code,
            -32602
        );
    }
    let error = world
        .error(Method::SubscriptionsListen, &params("{}"))
        .await;
    assert_eq!(error.code, -31007);
    let empty = World::new(plan(&[]), &[], |_| result("{}"));
    let mut events = empty
        .events(
            Method::SubscriptionsListen,
            &params(r#"{"toolsListChanged":true}"#),
        )
        .await;
    assert!(next(&mut events).await.contains(r#""notifications":{}"#));
}

/// SUB-05: after a loss the listen is opened again, and what may have been missed is said to have
/// changed.
#[tokio::test(start_paused = true)]
async fn sub_05_a_lost_listen_comes_back() {
    let lines = Lines::default();
    let world = world(&lines);
    let filter = r#"{"resourceSubscriptions":["a+x:1"],"resourcesListChanged":true}"#;
    let mut events = world
        .events(Method::SubscriptionsListen, &params(filter))
        .await;
    assert!(quiet(&mut events));
    lines.ack("b", r#"{"resourcesListChanged":true}"#);
    lines.ack(
        "a",
        r#"{"resourcesListChanged":true,"resourceSubscriptions":["x:1"]}"#,
    );
    next(&mut events).await;
    lines.hang_up("a");
    let opened = AtomicUsize::new(0);
    let reopened = tokio::time::timeout(Duration::from_secs(2), async {
        loop {
            assert!(quiet(&mut events));
            if lines.count() == 2 {
                return;
            }
            opened.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    reopened.await.expect("back within two seconds");
    lines.ack(
        "a",
        r#"{"resourcesListChanged":true,"resourceSubscriptions":["x:1"]}"#,
    );
    assert!(next(&mut events).await.contains("resources/list_changed"));
    assert!(next(&mut events).await.contains(r#""uri":"a+x:1""#));
    assert!(quiet(&mut events));
}

/// T67: a storm of changes is one now and one a second later.
#[tokio::test(start_paused = true)]
async fn t67_a_storm_of_changes_is_coalesced() {
    let lines = Lines::default();
    let world = world(&lines);
    let filter = r#"{"toolsListChanged":true}"#;
    let mut events = world
        .events(Method::SubscriptionsListen, &params(filter))
        .await;
    assert!(quiet(&mut events));
    for upstream in ["a", "b"] {
        lines.ack(upstream, filter);
    }
    next(&mut events).await;
    for _ in 0..20 {
        lines.send("a", "tools/list_changed", "{}");
        lines.send("b", "tools/list_changed", "{}");
    }
    next(&mut events).await;
    assert!(quiet(&mut events));
    let started = Instant::now();
    next(&mut events).await;
    assert_eq!(started.elapsed(), Duration::from_secs(1));
    let more = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
    assert!(more.is_err());
}

/// A listen never ends with an upstream's own end.
#[tokio::test(start_paused = true)]
async fn an_upstreams_end_is_not_the_clients() {
    let lines = Lines::default();
    let world = world(&lines);
    let filter = r#"{"toolsListChanged":true}"#;
    let mut events = world
        .events(Method::SubscriptionsListen, &params(filter))
        .await;
    assert!(quiet(&mut events));
    for upstream in ["a", "b"] {
        lines.ack(upstream, filter);
    }
    next(&mut events).await;
    let end = draft(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let line = lines.0.lock().unwrap().first().unwrap().1.clone();
    line.try_send(Event::Final(Final::Message(end))).unwrap();
    assert!(quiet(&mut events));
}
