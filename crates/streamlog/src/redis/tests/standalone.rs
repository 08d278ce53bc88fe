//! Standalone streams, which any replica publishes to and one delivers.

use tokio::task::JoinSet;

use super::*;
use crate::Stop;

/// GET-03, GET-05: what any replica publishes comes at once on the one stream there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_05_a_third_replica_publishes() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b, c) = (replicas.start(), replicas.start(), replicas.start());
    b.publish("before").await;
    let (_, mut reader) = a.standalone().await;
    assert_eq!(payloads(&mut reader, 1).await, ["before"]);
    let waiting = tokio::spawn(async move { (payloads(&mut reader, 2).await, reader) });
    b.publish("1").await;
    c.publish("2").await;
    let (had, mut reader) = waiting.await.unwrap();
    assert_eq!(had, ["1", "2"]);
    assert!(quiet(&mut reader).await);
    let waiting = keys_of("w").pop().unwrap();
    assert_eq!(
        ask(&["XLEN", &waiting]).trim(),
        ":0",
        "nothing waits any more"
    );
}

/// HSE-03: what replicas deliver to a connection of another one waits for room behind it, and all of it
/// arrives; what is published after that makes its room as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hse_03_deliveries_from_other_replicas_wait_for_room() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.limits.stream_events = 2;
    let (a, b, c) = (replicas.start(), replicas.start(), replicas.start());
    let (_, mut reader) = a.standalone().await;
    let mut senders = JoinSet::new();
    for number in 0..12 {
        let log = Arc::clone(if number % 2 == 0 { &b.any } else { &c.any });
        senders.spawn(async move {
            let delivered = log.deliver(&mine(), text(&number.to_string())).await;
            assert_eq!(delivered.unwrap(), Some(vec![]));
        });
    }
    let mut had = payloads(&mut reader, 12).await;
    had.sort_by_key(|number| number.parse::<u32>().unwrap());
    let all: Vec<_> = (0..12).map(|number: u32| number.to_string()).collect();
    assert_eq!(had, all);
    while let Some(sender) = senders.join_next().await {
        sender.unwrap();
    }
}

/// EL-21: a reader that is full and whose replica is dead is not waited for; nor does a delivery push
/// out anything once there is a reader again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_21_nobody_waits_for_a_reader_that_is_dead() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.limits.stream_events = 2;
    let (a, b) = (replicas.start(), replicas.start());
    let (_, _reader) = a.standalone().await;
    let deliver = async |payload: &str| b.any.deliver(&mine(), text(payload)).await.unwrap();
    assert_eq!(deliver("1").await, Some(vec![]));
    assert_eq!(deliver("2").await, Some(vec![]));
    a.kill();
    assert_eq!(deliver("3").await, Some(vec![]));
    let (_, mut reader) = b.standalone().await;
    assert_eq!(next(&mut reader).await, Next::Gap, "1 is said to be lost");
    assert_eq!(payloads(&mut reader, 2).await, ["2", "3"]);
}

/// RES-04, EL-7: a client that comes to another replica gets the rest of its stream there; who had
/// it before is fenced off, and its connection closed first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn res_04_a_standalone_stream_moves_with_its_client() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.limits.handoff = Duration::from_secs(60);
    let (a, b) = (replicas.start(), replicas.start());
    let (opened, mut old) = a.standalone().await;
    a.publish("1").await;
    b.publish("2").await;
    let (first, _) = event(&mut old).await;
    assert_eq!(payloads(&mut old, 1).await, ["2"]);
    let first = first.unwrap();
    let resumed = b.resume(&first).await;
    let stream = opened.stream.clone();
    assert_eq!(
        resumed,
        Resume::Replay {
            stream: stream.clone(),
            after: 1
        }
    );
    let mut new = b.any.attach(&stream, 1).await.unwrap();
    assert!(quiet(&mut new).await, "the older connection first");
    assert_eq!(next(&mut old).await, Next::Stopped(Stop::Superseded));
    drop(old);
    assert_eq!(payloads(&mut new, 1).await, ["2"]);
    a.publish("3").await;
    let (third, payload) = event(&mut new).await;
    assert_eq!(payload, "3");
    // and back
    drop(new);
    let mut back = a.reader(&third.unwrap()).await;
    b.publish("4").await;
    assert_eq!(payloads(&mut back, 1).await, ["4"]);
    let all = a.any.read(&stream, 0, 9).await.unwrap();
    assert_eq!(
        all.iter().map(|entry| entry.seq).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
}

/// GET-04: each message on the newest stream of the fleet; when it closes, on the one before; a
/// replica that is dead has no connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_04_the_newest_stream_of_the_fleet_gets_each_message() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b, c) = (replicas.start(), replicas.start(), replicas.start());
    let (_, mut first) = a.standalone().await;
    let (_, mut second) = b.standalone().await;
    assert!(quiet(&mut first).await && quiet(&mut second).await);
    a.publish("1").await;
    assert!(quiet(&mut first).await);
    assert_eq!(payloads(&mut second, 1).await, ["1"]);
    drop(second);
    b.publish("2").await;
    assert_eq!(payloads(&mut first, 1).await, ["2"]);
    let (_, _third) = c.standalone().await;
    c.kill();
    a.publish("3").await;
    assert_eq!(
        payloads(&mut first, 1).await,
        ["3"],
        "not waiting for the dead"
    );
}

/// GET-04: four streams of a session are open in the whole fleet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_04_a_fifth_stream_of_the_fleet_closes_the_oldest() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let mut open = vec![];
    for replica in [&a, &b, &a, &b] {
        open.push(replica.standalone().await.1);
    }
    assert!(quiet(&mut open[0]).await);
    let (_, mut fifth) = b.standalone().await;
    assert_eq!(next(&mut open[0]).await, Next::Stopped(Stop::Evicted));
    a.publish("1").await;
    assert_eq!(payloads(&mut fifth, 1).await, ["1"]);
    for reader in &mut open[1..] {
        assert!(quiet(reader).await);
    }
}

/// GET-05: coalescing, dropping and losses are the same over several replicas; the asker of a
/// dropped question hears of it, whoever dropped it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_05_what_waits_is_coalesced_and_bounded_over_replicas() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.limits.stream_events = 3;
    let (a, b) = (replicas.start(), replicas.start());
    let event = |class, payload: &str| Event {
        class,
        payload: text(payload),
    };
    let subject = |name: &str| Class::Invalidation(Arc::from(name));
    let question = event(Class::Question(Arc::from("the question")), "q");
    a.any
        .publish(&mine(), vec![question, event(subject("tools"), "t1")])
        .await
        .unwrap();
    let more = vec![event(subject("tools"), "t2"), event(Class::Log, "log")];
    assert!(b.any.publish(&mine(), more).await.unwrap().is_empty());
    let lost = b
        .any
        .publish(
            &mine(),
            vec![event(Class::Message, "m1"), event(Class::Message, "m2")],
        )
        .await;
    assert!(lost.unwrap().is_empty(), "b asked nothing");
    let heard = timeout(Duration::from_secs(20), async {
        loop {
            let lost = a.any.sweep().await.unwrap().lost;
            if let Some(lost) = lost.first() {
                return Arc::clone(&lost.question);
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(&*heard.await.unwrap(), "the question");
    let (_, mut reader) = b.standalone().await;
    assert_eq!(payloads(&mut reader, 3).await, ["t2", "m1", "m2"]);
    for number in 0..5 {
        a.publish(&number.to_string()).await;
    }
    assert_eq!(next(&mut reader).await, Next::Gap);
    assert_eq!(payloads(&mut reader, 3).await, ["2", "3", "4"]);
    assert!(quiet(&mut reader).await, "told once");
}

/// Neither lost nor repeated: the replica that takes what waits is killed at any step of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_05_a_crash_while_taking_loses_and_repeats_nothing() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let (_, mut reader) = a.standalone().await;
    b.publish("1").await;
    let (first, _) = event(&mut reader).await;
    a.goes(Way::Unanswered);
    b.publish("2").await;
    let mut old = reader;
    assert!(quiet(&mut old).await);
    a.kill();
    let mut reader = b.reader(&first.unwrap()).await;
    assert_eq!(payloads(&mut reader, 1).await, ["2"]);
    b.publish("3").await;
    assert_eq!(payloads(&mut reader, 1).await, ["3"]);
    assert!(quiet(&mut reader).await);
}

/// EL-20: a stream that is open and quiet costs the store next to nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_20_an_idle_stream_has_no_keys() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let a = replicas.start();
    a.any.begin_session(&mine()).await.unwrap();
    assert!(stored().is_empty(), "{:?}", stored());
    let (opened, mut reader) = a.standalone().await;
    assert!(quiet(&mut reader).await);
    assert_eq!(stored(), ["l"], "who listens, and nothing else");
    drop(reader);
    let mut reader = a.reader(&opened.priming.unwrap()).await;
    assert!(quiet(&mut reader).await);
}
