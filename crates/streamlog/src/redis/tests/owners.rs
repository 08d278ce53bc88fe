//! Streams that are read, owned and taken over by several replicas.

use super::*;
use crate::suite::Forgeries;
use crate::{LogError, Stop};

/// EL-10, EL-11: a client that resumes at another replica gets the rest there, and what its owner
/// appends from then on, and the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_11_a_stream_is_followed_at_another_replica() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.append(texts(["1", "2"])).await.unwrap();
    let mut reader = a.any.attach(writer.stream(), 0).await.unwrap();
    let (first, _) = event(&mut reader).await;
    drop(reader);
    let mut reader = b.reader(&first.unwrap()).await;
    assert_eq!(payloads(&mut reader, 1).await, ["2"]);
    assert!(quiet(&mut reader).await);
    writer.append(texts(["3"])).await.unwrap();
    let (third, payload) = event(&mut reader).await;
    assert_eq!(payload, "3");
    writer.append(texts(["4"])).await.unwrap();
    writer.finish(Some(text("end"))).await.unwrap();
    assert_eq!(payloads(&mut reader, 2).await, ["4", "end"]);
    assert_eq!(next(&mut reader).await, Next::Finished);
    drop(reader);
    let c = replicas.start();
    let mut reader = c.reader(&third.unwrap()).await;
    assert_eq!(payloads(&mut reader, 2).await, ["4", "end"]);
    assert_eq!(next(&mut reader).await, Next::Finished);
    nobody_owns_anything(&replicas).await;
}

/// SSE-04, RES-03: the beginning of a stream can be resumed from, elsewhere and before any event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sse_04_the_beginning_can_be_resumed_from_at_another_replica() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    let mut reader = b.reader(&priming(&writer)).await;
    assert!(quiet(&mut reader).await);
    writer.append(texts(["1"])).await.unwrap();
    assert_eq!(payloads(&mut reader, 1).await, ["1"]);
}

/// EL-10: every hint is lost, and nothing else.
#[tokio::test(start_paused = true)]
async fn el_10_what_no_hint_says_is_found_by_polling() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    a.deafen();
    b.deafen();
    let writer = a.writer().await;
    let mut reader = b.reader(&priming(&writer)).await;
    let waiting = tokio::spawn(async move { (payloads(&mut reader, 1).await, reader) });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = Instant::now();
    writer.append(texts(["1"])).await.unwrap();
    let (had, mut reader) = waiting.await.unwrap();
    assert_eq!(had, ["1"]);
    assert!(
        before.elapsed() <= Duration::from_secs(6),
        "{:?}",
        before.elapsed()
    );
    writer.finish(Some(text("end"))).await.unwrap();
    assert_eq!(payloads(&mut reader, 1).await, ["end"]);
    assert_eq!(next(&mut reader).await, Next::Finished);
    // standalone readers too
    let (_, mut listening) = b.standalone().await;
    let waiting = tokio::spawn(async move { payloads(&mut listening, 1).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    a.publish("note").await;
    assert_eq!(waiting.await.unwrap(), ["note"]);
}

/// EL-17: the newest connection wins wherever it is, and the older one is closed before it gets
/// anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_17_a_newer_reader_elsewhere_stops_the_older_first() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.limits.handoff = Duration::from_secs(60);
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.append(texts(["1", "2", "3"])).await.unwrap();
    let mut older = a.any.attach(writer.stream(), 0).await.unwrap();
    assert_eq!(payloads(&mut older, 1).await, ["1"]);
    let entries = a.any.read(writer.stream(), 0, 9).await.unwrap();
    let first = entries[0].id.clone().unwrap();
    let mut newer = b.reader(&first).await;
    assert!(quiet(&mut newer).await, "not before the older is closed");
    assert_eq!(older.stopped().await.unwrap(), Stop::Superseded);
    assert_eq!(next(&mut older).await, Next::Stopped(Stop::Superseded));
    assert!(quiet(&mut newer).await);
    drop(older);
    assert_eq!(payloads(&mut newer, 1).await, ["2"]);
    // and back again
    let second = entries[1].id.clone().unwrap();
    let mut newest = a.reader(&second).await;
    assert!(quiet(&mut newest).await);
    assert_eq!(next(&mut newer).await, Next::Stopped(Stop::Superseded));
    drop(newer);
    assert_eq!(payloads(&mut newest, 1).await, ["3"]);
}

/// EL-17: a replica that does not answer holds the newer reader up only briefly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_17_a_stuck_replica_holds_a_newer_reader_up_only_briefly() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.append(texts(["1"])).await.unwrap();
    a.shipped().await;
    let _stuck = a.any.attach(writer.stream(), 0).await.unwrap();
    a.deafen();
    let mut reader = b.reader(&priming(&writer)).await;
    assert_eq!(payloads(&mut reader, 1).await, ["1"]);
}

/// EL-15, EL-14: the stream of a dead replica is an orphan at exactly one other, with what its
/// writer noted last, and gets exactly one end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_15_the_stream_of_a_dead_replica_gets_exactly_one_end() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b, c) = (replicas.start(), replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.note(text("after 1")).await.unwrap();
    writer.append(texts(["1"])).await.unwrap();
    a.shipped().await;
    let begun = priming(&writer);
    let mut reader = c.reader(&begun).await;
    assert_eq!(payloads(&mut reader, 1).await, ["1"]);
    writer.note(text("never stored")).await.unwrap();
    assert!(b.any.sweep().await.unwrap().orphans.is_empty());
    a.kill();
    let (mut orphans, other) = tokio::join!(b.any.sweep(), c.any.sweep());
    let (mine, theirs) = (orphans.as_mut().unwrap(), other.unwrap());
    let all = [mine.orphans.clone(), theirs.orphans].concat();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0].stream, *writer.stream());
    assert_eq!(all[0].requests, texts(["7"]));
    assert_eq!(
        all[0].note,
        Some(text("after 1")),
        "of the last event that is stored"
    );
    let unknown = Some(text("outcome unknown"));
    let ends = [
        b.any.finish(writer.stream(), unknown.clone()).await,
        c.any.finish(writer.stream(), unknown).await,
    ];
    assert_eq!(ends.iter().filter(|end| end.is_ok()).count(), 1, "{ends:?}");
    assert_eq!(payloads(&mut reader, 1).await, ["outcome unknown"]);
    assert_eq!(next(&mut reader).await, Next::Finished);
    nobody_owns_anything(&replicas).await;
}

/// EL-15: whoever touches the stream first takes it over, without waiting for a sweep; a call that
/// is gone on with is an orphan again when that replica dies too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_15_a_resume_takes_the_stream_of_a_dead_replica_over() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.note(text("note")).await.unwrap();
    writer.append(texts(["1"])).await.unwrap();
    a.shipped().await;
    let begun = priming(&writer);
    a.kill();
    let mut reader = b.reader(&begun).await;
    assert_eq!(payloads(&mut reader, 1).await, ["1"]);
    let orphaned = Next::Orphaned {
        requests: texts(["7"]),
        note: Some(text("note")),
    };
    assert_eq!(next(&mut reader).await, orphaned);
    let going_on = Writer::claim(&b.any, writer.stream())
        .await
        .unwrap()
        .unwrap();
    assert!(
        Writer::claim(&b.any, writer.stream())
            .await
            .unwrap()
            .is_none()
    );
    assert!(quiet(&mut reader).await);
    assert!(b.any.sweep().await.unwrap().orphans.is_empty());
    going_on.append(texts(["2"])).await.unwrap();
    let (second, _) = event(&mut reader).await;
    b.kill();
    let c = replicas.start();
    let mut reader = c.reader(&second.unwrap()).await;
    assert_eq!(
        next(&mut reader).await,
        orphaned,
        "the note stays until there is another"
    );
    c.any
        .finish(writer.stream(), Some(text("end")))
        .await
        .unwrap();
    assert_eq!(payloads(&mut reader, 1).await, ["end"]);
}

/// EL-7: a replica that was stopped, and is taken for dead, appends nothing when it wakes up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_07_an_owner_that_wakes_up_is_fenced_off() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    let stream = writer.stream().clone();
    writer.append(texts(["1"])).await.unwrap();
    let mut old = a.any.attach(&stream, 0).await.unwrap();
    assert_eq!(payloads(&mut old, 1).await, ["1"]);
    a.deafen(); // not even a hint tells it
    a.kill();
    writer.append(texts(["late"])).await.unwrap();
    let orphans = b.any.sweep().await.unwrap().orphans;
    assert_eq!(orphans.len(), 1);
    b.any.finish(&stream, Some(text("end"))).await.unwrap();
    b.shipped().await;
    a.goes(Way::Open);
    assert_eq!(next(&mut old).await, Next::Stopped(Stop::Superseded));
    let late = writer.append(texts(["later"])).await;
    assert_eq!(late, Err(LogError::Gone));
    drop(old);
    a.member.is_dead(false);
    let mut reader = a.reader(&priming(&writer)).await;
    assert_eq!(payloads(&mut reader, 2).await, ["1", "end"]);
    assert_eq!(next(&mut reader).await, Next::Finished);
}

/// EL-21: a reader elsewhere that is behind is closed there, and its stream stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_21_a_slow_reader_elsewhere_is_stopped() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    let reader = b.reader(&priming(&writer)).await;
    for _ in 0..3 {
        let large = Bytes::from(vec![b'x'; 150 * 1024]);
        writer.append(vec![large]).await.unwrap();
        a.shipped().await;
    }
    let stopped = timeout(Duration::from_secs(20), reader.stopped()).await;
    assert_eq!(stopped.unwrap().unwrap(), Stop::Slow);
    drop(reader);
    b.reader(&priming(&writer)).await;
}

/// SSE-05: a stream that is paused is closed where it is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sse_05_a_pause_reaches_the_reader_elsewhere() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    let mut reader = b.reader(&priming(&writer)).await;
    assert!(quiet(&mut reader).await);
    a.any.stop(writer.stream(), Stop::Planned).await.unwrap();
    assert_eq!(next(&mut reader).await, Next::Stopped(Stop::Planned));
}

/// T40, T49: names of streams and ids of others are worth nothing, at any replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_a_foreign_id_costs_no_lookup_in_the_store() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.append(texts(["1"])).await.unwrap();
    a.shipped().await;
    let thief = session("evil", "alice", "s1");
    let stolen = priming(&writer);
    let before = (b.log.stats().lookups, commands());
    for _ in 0..100 {
        let resumed = b.any.resume(&thief, stolen.as_str()).await.unwrap();
        assert_eq!(resumed, Resume::Foreign);
        let forged = b.any.resume(&thief, "1k1.AAAA").await.unwrap();
        assert_eq!(forged, Resume::Foreign);
    }
    assert_eq!((b.log.stats().lookups, commands()), before);
    let guessed = StreamRef {
        session: thief,
        id: writer.stream().id,
    };
    assert!(is_empty(&b, &guessed).await);
    assert!(b.any.attach(&guessed, 0).await.is_err());
}

/// T49, EL-4: ten thousand that are not, among a thousand that are, at a replica that has to read in
/// the store what it does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_forged_ids_among_valid_ones() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let (a, b) = (replicas.start(), replicas.start());
    let ids = Forgeries::of(&a.any).await;
    a.shipped().await;
    let lookups = || b.log.stats().lookups;
    ids.are_refused(&*b.any, || lookups() + commands() as u64)
        .await;
    ids.are_told_apart(&*b.any, lookups).await;
}

/// Ended streams are in no index any more.
pub(super) async fn nobody_owns_anything(replicas: &Replicas) {
    let over = async {
        while replicas.town.owned() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), over).await.unwrap();
}

/// Scripts that the server has run.
fn commands() -> usize {
    let stats = ask(&["INFO", "commandstats"]);
    let evals = stats.lines().filter(|line| line.contains("cmdstat_eval"));
    let calls = evals.filter_map(|line| line.split("calls=").nth(1)?.split(',').next());
    calls.map(|calls| calls.parse::<usize>().unwrap()).sum()
}
