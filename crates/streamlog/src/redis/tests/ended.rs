//! The end of a session, everywhere (case 65).

use super::*;
use crate::{LogError, Stop};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_65_a_session_that_is_ended_is_over_at_every_replica() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b, c) = (replicas.start(), replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.append(texts(["1"])).await.unwrap();
    a.shipped().await;
    let begun = priming(&writer);
    let mut reading = b.reader(&begun).await;
    assert_eq!(payloads(&mut reading, 1).await, ["1"]);
    let (_, mut listening) = c.standalone().await;
    assert!(quiet(&mut listening).await);
    let question = Event {
        class: Class::Question(Arc::from("q")),
        payload: text("q"),
    };
    let (_, silent) = b.standalone().await; // the newest, which is not read
    a.any.publish(&mine(), vec![question]).await.unwrap();

    let lost = b.any.forget_session(&mine()).await.unwrap();
    assert_eq!(lost, [Arc::from("q")]);
    assert_eq!(
        stored()
            .iter()
            .filter(|name| !name.starts_with("p:"))
            .collect::<Vec<_>>(),
        ["l"],
        "only that it has ended"
    );
    assert_eq!(next(&mut reading).await, Next::Stopped(Stop::Forgotten));
    assert_eq!(next(&mut listening).await, Next::Stopped(Stop::Forgotten));
    while writer.append(texts(["late"])).await.is_ok() {
        tokio::task::yield_now().await;
    }
    drop((reading, listening, silent, writer));
    for replica in [&a, &b, &c] {
        let resumed = replica.resume(&begun).await;
        assert_eq!(resumed, Resume::NoSession);
        let late = replica.any.open(&mine(), StreamKind::Standalone).await;
        assert_eq!(late, Err(LogError::Gone));
        let late = Writer::open(&replica.any, &mine(), texts(["8"]).to_vec()).await;
        assert_eq!(late.unwrap_err(), LogError::Gone);
        let event = Event {
            class: Class::Message,
            payload: text("late"),
        };
        let late = replica.any.publish(&mine(), vec![event]).await;
        assert_eq!(late, Err(LogError::Gone));
        assert_eq!(replica.any.forget_session(&mine()).await, Ok(vec![]));
        assert_eq!(replica.any.sweep().await, Ok(crate::Swept::default()));
        let stats = replica.log.stats();
        assert_eq!((stats.sessions, stats.streams, stats.bytes), (0, 0, 0));
    }
    assert_eq!(
        stored()
            .iter()
            .filter(|name| !name.starts_with("p:"))
            .collect::<Vec<_>>(),
        ["l"]
    );
}

/// What a replica does not need it does not keep, and finds again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_streams_takes_no_room() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let a = replicas.start();
    a.any.begin_session(&mine()).await.unwrap();
    a.any.sweep().await.unwrap();
    assert_eq!(a.log.stats().sessions, 0);
    a.any.forget_session(&mine()).await.unwrap();
    assert!(stored().is_empty(), "nor does its end: {:?}", stored());
    let writer = a.writer().await;
    writer.finish(Some(text("end"))).await.unwrap();
    a.any.sweep().await.unwrap();
    assert_eq!(a.log.stats().sessions, 1);
}
