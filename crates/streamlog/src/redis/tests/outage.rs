//! The store is away, and comes back (EL-22, EL-29).

use super::*;
use crate::{Entry, LogError, Stop, StreamRef};

/// EL-22: streams go on without ids; what they had meanwhile is stored when the store is back, and
/// a client that comes back then loses nothing, though it has lost all it had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_22_best_effort_goes_on_without_ids_and_repairs() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    let mut reader = a.any.attach(writer.stream(), 0).await.unwrap();
    writer.append(texts(["1"])).await.unwrap();
    let (first, _) = event(&mut reader).await;
    let (_, mut listening) = a.standalone().await;
    a.publish("note 1").await;
    assert_eq!(payloads(&mut listening, 1).await, ["note 1"]);

    with_server(RedisServer::stop);
    writer.append(texts(["2", "3"])).await.unwrap();
    for expected in ["2", "3"] {
        let (id, payload) = event(&mut reader).await;
        assert_eq!((id, payload.as_str()), (None, expected));
    }
    a.publish("note 2").await;
    let (id, payload) = event(&mut listening).await;
    assert_eq!((id, payload.as_str()), (None, "note 2"));
    let opened = a.writer().await;
    assert_eq!(opened.opened().priming, None);
    opened.finish(Some(text("answer"))).await.unwrap();

    with_server(RedisServer::start_again);
    let Next::Caught(caught) = next(&mut reader).await else {
        panic!("what went out without ids is stored");
    };
    let others = read_when_back(&b, writer.stream()).await;
    assert_eq!(
        others[0].id,
        Some(caught.clone()),
        "the id of what came last"
    );
    writer.append(texts(["4"])).await.unwrap();
    a.shipped().await;
    writer.append(texts(["5"])).await.unwrap();
    let mut had = vec![];
    while had.len() < 2 {
        // a machine that is busy may take the store to be away once more
        let next = next(&mut reader).await;
        if let Next::Event(entry) = next {
            had.push(entry.id);
        } else {
            assert!(matches!(next, Next::Caught(_)), "{next:?}");
        }
    }
    assert!(had[1].is_some(), "with ids again");
    drop(reader);
    let mut again = b.reader(&caught).await;
    assert_eq!(
        payloads(&mut again, 2).await,
        ["4", "5"],
        "nothing comes twice"
    );
    drop(again);
    let mut reader = b.reader(&first.unwrap()).await;
    assert_eq!(payloads(&mut reader, 4).await, ["2", "3", "4", "5"]);
    a.publish("note 3").await;
    assert_eq!(payloads(&mut listening, 1).await, ["note 3"]);
}

/// What a replica that was cut off reads behind the second event, once it has the store again too.
async fn read_when_back(replica: &Replica, stream: &StreamRef) -> Vec<Entry> {
    loop {
        match replica.any.read(stream, 2, 9).await {
            Err(LogError::Unavailable(_)) => tokio::task::yield_now().await,
            read => return read.unwrap(),
        }
    }
}

/// HSE-03, EL-22: what is delivered while the store is away waits for room here, and pushes out nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hse_03_deliveries_wait_for_room_without_the_store() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.limits.stream_events = 2;
    let a = replicas.start();
    let (_, mut reader) = a.standalone().await;
    with_server(RedisServer::stop);
    let senders: Vec<_> = (0..6)
        .map(|number: u32| {
            let log = Arc::clone(&a.any);
            tokio::spawn(async move {
                let delivered = log.deliver(&mine(), text(&number.to_string())).await;
                assert_eq!(delivered.unwrap(), Some(vec![]));
            })
        })
        .collect();
    let mut had = vec![];
    while had.len() < 6 {
        let (id, payload) = event(&mut reader).await;
        assert_eq!(id, None);
        had.push(payload);
    }
    had.sort();
    assert_eq!(had, ["0", "1", "2", "3", "4", "5"]);
    for sender in senders {
        sender.await.unwrap();
    }
}

/// EL-22: what must not go on without the store holds, then closes; new streams are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_22_required_holds_and_then_closes() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.mode = Mode::Required;
    let a = replicas.start();
    let writer = a.writer().await;
    let mut reader = a.any.attach(writer.stream(), 0).await.unwrap();
    with_server(RedisServer::stop);
    writer.append(texts(["1"])).await.unwrap();
    assert!(quiet(&mut reader).await, "held");
    let refused = Writer::open(&a.any, &mine(), texts(["8"]).to_vec()).await;
    assert!(
        matches!(refused, Err(LogError::Unavailable(_))),
        "{refused:?}"
    );
    assert!(quiet(&mut reader).await, "held");
    let large = Bytes::from(vec![b'x'; 300 * 1024]);
    writer.append(vec![large]).await.unwrap();
    assert_eq!(next(&mut reader).await, Next::Stopped(Stop::Away));
    assert_eq!(Stop::Away.retry(), Some(Duration::from_secs(5)));
    drop(reader);
    with_server(RedisServer::start_again);
    let mut reader = a.reader(&priming(&writer)).await;
    assert_eq!(payloads(&mut reader, 2).await[0], "1");
}

/// EL-22: ten seconds are enough even of a little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten seconds of real time"]
async fn el_22_required_closes_after_ten_seconds() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.mode = Mode::Required;
    let a = replicas.start();
    let writer = a.writer().await;
    let mut reader = a.any.attach(writer.stream(), 0).await.unwrap();
    with_server(RedisServer::stop);
    let before = Instant::now();
    writer.append(texts(["1"])).await.unwrap();
    assert_eq!(next(&mut reader).await, Next::Stopped(Stop::Away));
    assert!((9..=14).contains(&before.elapsed().as_secs()));
}

/// EL-29: a resume waits while the store is away, and has its outcome when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_29_a_resume_is_held_while_the_store_is_away() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.append(texts(["1"])).await.unwrap();
    a.shipped().await;
    b.goes(Way::Unanswered);
    let id = priming(&writer);
    let log = Arc::clone(&b.any);
    let held = tokio::spawn(async move { log.resume(&mine(), id.as_str()).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!held.is_finished());
    b.goes(Way::Open);
    let resumed = held.await.unwrap().unwrap();
    assert!(
        matches!(resumed, Resume::Replay { after: 0, .. }),
        "{resumed:?}"
    );
}

/// EL-22: where nothing may be kept, nothing is, and nothing has an id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_22_off_keeps_nothing() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.mode = Mode::Off;
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    assert_eq!(writer.opened().priming, None);
    let mut reader = a.any.attach(writer.stream(), 0).await.unwrap();
    writer.append(texts(["1"])).await.unwrap();
    assert_eq!(event(&mut reader).await, (None, "1".to_owned()));
    writer.finish(Some(text("end"))).await.unwrap();
    assert_eq!(event(&mut reader).await, (None, "end".to_owned()));
    assert_eq!(next(&mut reader).await, Next::Finished);
    assert!(keys_of("e:").is_empty() && keys_of("m:").is_empty());
    let (opened, mut listening) = a.standalone().await;
    assert_eq!(opened.priming, None);
    b.publish("note").await;
    assert_eq!(event(&mut listening).await, (None, "note".to_owned()));
}
