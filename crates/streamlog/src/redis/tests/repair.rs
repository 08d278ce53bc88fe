//! Answers that are lost, tails that are lost, histories that are not ours (EL-6, EL-12).

use super::*;
use crate::LogError;
use crate::redis::import::REPAIR;

/// EL-6: an append whose answer was lost is not repeated, however often it is tried, also with more
/// than there was at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_06_a_lost_answer_repeats_nothing() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.mode = Mode::Required; // however long it takes, nothing goes on without the store
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    let mut reader = a.any.attach(writer.stream(), 0).await.unwrap();
    a.goes(Way::Unanswered);
    writer.append(texts(["1", "2"])).await.unwrap();
    while !ask(&["XLEN", &keys_of("e:").pop().unwrap_or("none".into())]).contains('2') {
        tokio::task::yield_now().await;
    }
    assert!(quiet(&mut reader).await, "EL-8: not before the answer");
    writer.append(texts(["3"])).await.unwrap();
    a.goes(Way::Open);
    assert_eq!(payloads(&mut reader, 3).await, ["1", "2", "3"]);
    let begun = priming(&writer);
    writer.finish(None).await.unwrap();
    a.shipped().await;
    let mut reader = b.reader(&begun).await;
    assert_eq!(payloads(&mut reader, 3).await, ["1", "2", "3"]);
    assert_eq!(next(&mut reader).await, Next::Finished);
}

/// EL-6, EL-12: what the store has lost altogether, its owner appends again: with the next event,
/// and at once when a client elsewhere asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_12_a_store_that_has_lost_everything_is_repaired() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.note(text("noted")).await.unwrap();
    writer.append(texts(["1", "2"])).await.unwrap();
    a.shipped().await;
    ask(&["FLUSHALL"]);
    let mut reader = b.reader(&priming(&writer)).await;
    assert_eq!(payloads(&mut reader, 2).await, ["1", "2"]);
    ask(&["FLUSHALL"]);
    writer.append(texts(["3"])).await.unwrap();
    a.shipped().await;
    a.kill();
    let c = replicas.start();
    let mut reader = c.reader(&priming(&writer)).await;
    assert_eq!(payloads(&mut reader, 3).await, ["1", "2", "3"]);
    let Next::Orphaned { note, .. } = next(&mut reader).await else {
        panic!("its owner is dead");
    };
    assert_eq!(note, Some(text("noted")));
}

/// EL-12, EL-5: a failover has lost the tail that a client has seen already. While the owner lives
/// that is not the last word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_12_a_lost_tail_is_repaired_before_the_verdict() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.append(texts(["1", "2"])).await.unwrap();
    a.shipped().await;
    snapshot();
    writer.append(texts(["3", "4", "5"])).await.unwrap();
    a.shipped().await;
    let seen = a.any.read(writer.stream(), 0, 9).await.unwrap();
    let fourth = seen[3].id.clone().unwrap();
    roll_back();
    let mut reader = b.reader(&fourth).await;
    assert_eq!(payloads(&mut reader, 1).await, ["5"]);
    roll_back();
    writer.append(texts(["6"])).await.unwrap();
    assert_eq!(payloads(&mut reader, 1).await, ["6"]);
    a.shipped().await;
    let all = b.any.read(writer.stream(), 0, 9).await.unwrap();
    assert_eq!(all.len(), 6);
    assert_eq!(all[..5], seen[..], "under the same ids");
}

/// EL-13, EL-5: the owner is dead and the tail is lost: the client is told, never given another
/// history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_13_a_lost_tail_of_a_dead_owner_is_told() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.append(texts(["1", "2"])).await.unwrap();
    a.shipped().await;
    snapshot();
    writer.append(texts(["3", "4"])).await.unwrap();
    a.shipped().await;
    let seen = a.any.read(writer.stream(), 0, 9).await.unwrap();
    roll_back();
    a.kill();
    let orphans = b.any.sweep().await.unwrap().orphans;
    assert_eq!(orphans.len(), 1);
    b.any
        .append(writer.stream(), texts(["x", "y"]))
        .await
        .unwrap();
    b.any
        .finish(writer.stream(), Some(text("z")))
        .await
        .unwrap();
    b.shipped().await;
    for entry in &seen[2..] {
        let lost = b.resume(entry.id.as_ref().unwrap()).await;
        let requests = texts(["7"]);
        assert_eq!(lost, Resume::LostPost { requests }, "{}", entry.seq);
    }
    let c = replicas.start();
    let mut reader = c.reader(seen[1].id.as_ref().unwrap()).await;
    assert_eq!(payloads(&mut reader, 3).await, ["x", "y", "z"]);
}

/// EL-15, EL-12: the owner is dead and the tail is lost, but the call is gone on with from its note,
/// and its upstream says once more what it had said: under the same ids, so the client that had all
/// of that lacks nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_15_a_lost_tail_comes_again_from_the_upstream() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.note(text("behind 2")).await.unwrap();
    writer.append(texts(["1", "2"])).await.unwrap();
    a.shipped().await;
    snapshot();
    writer.append(texts(["3", "4"])).await.unwrap();
    a.shipped().await;
    let seen = a.any.read(writer.stream(), 0, 9).await.unwrap();
    roll_back();
    a.kill();
    let at_the_end = seen[3].id.clone().unwrap();
    let (resuming, at) = (Arc::clone(&b.any), at_the_end.clone());
    let resumed = tokio::spawn(async move { resuming.resume(&mine(), at.as_str()).await });
    let found = async {
        loop {
            let orphans = b.any.sweep().await.unwrap().orphans;
            if let [orphan] = &orphans[..] {
                return orphan.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let orphan = tokio::time::timeout(Duration::from_secs(60), found).await;
    let orphan = orphan.expect("whoever takes the stream over is told of it");
    assert_eq!(orphan.note, Some(text("behind 2")));
    assert!(!resumed.is_finished(), "nothing is said before that");
    let writer = Writer::claim(&b.any, &orphan.stream)
        .await
        .unwrap()
        .unwrap();
    for event in ["3", "4", "5"] {
        writer.append(texts([event])).await.unwrap();
    }
    let Resume::Replay { stream, after: 4 } = resumed.await.unwrap().unwrap() else {
        panic!("all of it is there again");
    };
    let mut reader = b.any.attach(&stream, 4).await.unwrap();
    assert_eq!(payloads(&mut reader, 1).await, ["5"]);
}

/// EL-13: nobody has the stream any more. Who asks first waits until everybody was asked, who comes
/// back is told at once, and the owner that turns up after all is still found.
#[tokio::test(start_paused = true)]
async fn el_13_a_stream_that_nobody_has_is_not_looked_for_each_time() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    a.shipped().await;
    a.goes(Way::Unanswered);
    ask(&["FLUSHALL"]);
    for longest in [REPAIR * 2, REPAIR / 2] {
        let before = Instant::now();
        assert_eq!(b.resume(&priming(&writer)).await, Resume::Unknown);
        assert!(before.elapsed() <= longest, "{:?}", before.elapsed());
    }
    a.goes(Way::Open);
    writer.append(texts(["1"])).await.unwrap();
    a.shipped().await;
    let mut reader = b.reader(&priming(&writer)).await;
    assert_eq!(payloads(&mut reader, 1).await, ["1"]);
}

/// EL-6: a history that is not ours is not written to; the stream's reader is told and its writer
/// has nothing to write to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_06_another_history_ends_the_stream_with_a_word() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let a = replicas.start();
    let writer = a.writer().await;
    let mut reader = a.any.attach(writer.stream(), 0).await.unwrap();
    writer.append(texts(["1"])).await.unwrap();
    let (first, _) = event(&mut reader).await;
    let stream = keys_of("m:").pop().unwrap();
    ask(&["HSET", &stream, "c", "12345678"]);
    writer.append(texts(["2"])).await.unwrap();
    assert_eq!(next(&mut reader).await, Next::Gap);
    assert_eq!(writer.append(texts(["3"])).await, Err(LogError::Gone));
    let requests = texts(["7"]);
    let told = a.resume(&first.unwrap()).await;
    assert_eq!(told, Resume::LostPost { requests });
    super::owners::nobody_owns_anything(&replicas).await;
}

/// EL-19: the store keeps what the limits keep, and everything in it has an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_19_the_store_has_what_the_limits_keep() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.limits.stream_events = 3;
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    for number in 0..10 {
        writer
            .append(vec![text(&number.to_string())])
            .await
            .unwrap();
        if number % 3 == 0 {
            a.shipped().await;
        }
    }
    a.shipped().await;
    let events = keys_of("e:").pop().unwrap();
    assert_eq!(ask(&["XLEN", &events]).trim(), ":3");
    let lost = b.resume(&priming(&writer)).await;
    assert_eq!(
        lost,
        Resume::LostPost {
            requests: texts(["7"])
        }
    );
    let (_, _reader) = b.standalone().await;
    b.publish("waits").await;
    writer.finish(Some(text("end"))).await.unwrap();
    a.shipped().await;
    assert_eq!(ask(&["XLEN", &events]).trim(), ":3");
    for key in keys_of("") {
        assert!(left(&key) > 0, "{key} has an end");
    }
    assert!(
        left(&events) <= 300_000,
        "events of an ended stream: five minutes"
    );
}

/// EL-9: what comes while an append is under way goes with the next, and a large batch goes in
/// parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_09_appends_are_grouped_and_bounded() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    a.goes(Way::Stopped);
    let all: Vec<Bytes> = (0..200).map(|n| text(&format!("event {n}"))).collect();
    for event in &all {
        writer.append(vec![event.clone()]).await.unwrap();
    }
    writer
        .append(vec![Bytes::from(vec![b'x'; 400 * 1024])])
        .await
        .unwrap();
    let before = appends();
    a.goes(Way::Open);
    a.shipped().await;
    let used = appends() - before;
    assert!((5..=7).contains(&used), "{used} appends for 201 events");
    let mut reader = b.reader(&priming(&writer)).await;
    let had = payloads(&mut reader, 201).await;
    assert_eq!(
        had[..200],
        all.iter()
            .map(|e| String::from_utf8(e.to_vec()).unwrap())
            .collect::<Vec<_>>()[..]
    );
    assert_eq!(had[200].len(), 400 * 1024);
}

/// How long that key has to live.
fn left(key: &str) -> i64 {
    let answer = ask(&["PTTL", key]);
    answer.trim().trim_start_matches(':').parse().unwrap()
}

fn appends() -> usize {
    let stats = ask(&["INFO", "commandstats"]);
    let line = stats.lines().filter(|line| line.contains("cmdstat_eval"));
    let calls = line.filter_map(|line| line.split("calls=").nth(1)?.split(',').next());
    calls.map(|calls| calls.parse::<usize>().unwrap()).sum()
}

/// Remembers what is stored, as a replica of the server does that is behind.
fn snapshot() {
    for key in keys_of("")
        .into_iter()
        .filter(|key| !key.ends_with("-copy"))
    {
        ask(&["COPY", &key, &format!("{key}-copy"), "REPLACE"]);
    }
}

/// That replica has become the primary.
fn roll_back() {
    for key in keys_of("") {
        if let Some(name) = key.strip_suffix("-copy") {
            ask(&["COPY", &key, name, "REPLACE"]);
        }
    }
}
