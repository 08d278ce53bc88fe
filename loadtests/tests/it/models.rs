//! Each model of load does what it says, counted at the answers.

use std::time::Duration;

use tokio::net::TcpListener;

use crate::{run, start_stub};

#[tokio::test]
async fn a_closed_run_sends_exactly_its_requests_in_both_eras() {
    let url = start_stub().await;
    for era in ["legacy", "modern"] {
        let line = format!("closed --era {era} --requests 200 --connections 4");
        let report = run(&line, &url).await;
        assert_eq!(
            (report.sent, report.calls.answered),
            (200, 200),
            "{report:?}"
        );
        assert!(report.broken.is_empty(), "{report:?}");
        assert!(report.calls.latency_us.p50 > 0.0 && report.calls.rate > 0.0);
    }
}

#[tokio::test]
async fn an_open_run_sends_rate_times_seconds_and_leaves_the_warmup_out() {
    let url = start_stub().await;
    let report = run(
        "open --rate 200 --seconds 2 --warmup 1 --connections 8",
        &url,
    )
    .await;
    assert_eq!(
        (report.sent, report.calls.answered),
        (400, 200),
        "{report:?}"
    );
    assert!(
        (150.0..260.0).contains(&report.calls.rate),
        "{}",
        report.calls.rate
    );
}

/// Two connections and calls of 40 ms serve 50 calls a second; 100 a second are asked for. The
/// latency grows to a second, and the service time does not: a closed loop would have seen 40 ms.
#[tokio::test]
async fn an_open_run_that_the_target_cannot_follow_shows_the_queue() {
    let url = start_stub().await;
    let line = "open --rate 100 --seconds 1 --connections 2 --delay-us 40000 --max-p99-us 200000";
    let report = run(line, &url).await;
    let calls = &report.calls;
    assert_eq!(calls.answered, 100, "{report:?}");
    assert!(calls.latency_us.p99 > 600_000.0, "{calls:?}");
    assert!(calls.service_us.p50 < 300_000.0, "{calls:?}");
    assert!(calls.queued > 80, "{calls:?}");
    assert_eq!(report.broken.len(), 1, "{:?}", report.broken);
}

#[tokio::test]
async fn events_and_sizes_arrive_as_asked_for() {
    let url = start_stub().await;
    let line = "closed --requests 20 --connections 2 --events 7 --era modern";
    let streamed = run(line, &url).await;
    assert_eq!(streamed.calls.events, 20 * 8, "{streamed:?}");
    let large = run(
        "closed --requests 10 --connections 2 --result-bytes 65536",
        &url,
    )
    .await;
    assert_eq!(large.calls.answered, 10);
    assert!(
        large.calls.bytes > 10 * 65_536 && large.calls.bytes < 10 * 66_000,
        "{large:?}"
    );
    let single = run("closed --requests 5 --connections 1 --sse", &url).await;
    assert_eq!(single.calls.events, 5, "{single:?}");
}

#[tokio::test]
async fn held_streams_stay_open_beside_the_load() {
    let url = start_stub().await;
    let line = "closed --requests 50 --connections 2 --held-get 5 --held-post 6";
    let report = run(line, &url).await;
    let held = report.held.unwrap();
    assert_eq!((held.opened, held.failed, held.lost), (11, 0, 0));
    assert_eq!(report.calls.answered, 50);
}

/// Every answer is cut after three events and continued on a new connection.
#[tokio::test]
async fn cut_answers_are_resumed_without_loss_or_repetition() {
    let url = start_stub().await;
    let line = "resume --rounds 20 --connections 4 --events 9 --cut 3 --gap-us 1000";
    let report = run(line, &url).await;
    let resume = report.resume.unwrap();
    assert_eq!(
        (resume.rounds, resume.missing, resume.repeated),
        (20, 0, 0),
        "{report:?}"
    );
    assert!(report.broken.is_empty(), "{:?}", report.broken);
}

/// A port where nobody listens: every failure is counted, and nobody hammers on.
#[tokio::test]
async fn a_target_that_is_not_there_is_given_up_soon() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let line = "closed --requests 1000000 --connections 2 --era modern";
    let report = tokio::time::timeout(Duration::from_secs(20), run(line, &url))
        .await
        .unwrap();
    assert!(report.sent <= 100, "{report:?}");
    assert_eq!(report.calls.answered, 0);
    assert_eq!(report.broken.len(), 1);
}
