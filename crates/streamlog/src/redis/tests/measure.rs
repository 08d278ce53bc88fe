//! What it costs, measured by hand: `cargo test --release -p vestibule-streamlog measure --
//! --ignored --nocapture`. Server, clients and load share the machine.

use super::*;

const PAYLOAD: usize = 300;

/// Events a second over many streams, and from the append to the delivery.
async fn streams(count: usize, events: usize) {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let a = replicas.start();
    let before = Instant::now();
    let tasks: Vec<_> = (0..count)
        .map(|number| {
            let log = Arc::clone(&a.any);
            tokio::spawn(one_stream(log, number, events))
        })
        .collect();
    let mut waits = vec![];
    for task in tasks {
        waits.extend(task.await.unwrap());
    }
    let elapsed = before.elapsed();
    waits.sort();
    let (half, most) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
    let rate = waits.len() as f64 / elapsed.as_secs_f64();
    println!("{count} streams: {rate:.0} events/s, p50 {half:?}, p99 {most:?}");
}

async fn one_stream(log: Arc<dyn StreamLog>, number: usize, events: usize) -> Vec<Duration> {
    let session = session("acme", "alice", &number.to_string());
    let writer = Writer::open(&log, &session, texts(["7"]).to_vec())
        .await
        .unwrap();
    let mut reader = log.attach(writer.stream(), 0).await.unwrap();
    let payload = Bytes::from(vec![b'x'; PAYLOAD]);
    let mut waits = Vec::with_capacity(events);
    for _ in 0..events {
        let before = Instant::now();
        writer.append(vec![payload.clone()]).await.unwrap();
        event(&mut reader).await;
        waits.push(before.elapsed());
    }
    writer.finish(None).await.unwrap();
    waits
}

/// A client comes back for a thousand events, here and at another replica.
async fn replay() {
    let Some(mut replicas) = Replicas::new() else {
        return;
    };
    replicas.limits.stream_events = 2000;
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    for _ in 0..1000 {
        let payload = Bytes::from(vec![b'x'; PAYLOAD]);
        writer.append(vec![payload]).await.unwrap();
    }
    a.shipped().await;
    for (replica, place) in [(&a, "at its owner"), (&b, "at another replica")] {
        let before = Instant::now();
        let mut reader = replica.reader(&priming(&writer)).await;
        let first = event(&mut reader).await;
        let began = before.elapsed();
        assert!(first.0.is_some());
        payloads(&mut reader, 999).await;
        println!(
            "1,000 events {place}: first {began:?}, all {:?}",
            before.elapsed()
        );
    }
}

/// A burst on one stream, as fast as it goes.
async fn burst() {
    let Some(replicas) = Replicas::new() else {
        return;
    };
    let a = replicas.start();
    let writer = a.writer().await;
    let mut reader = a.any.attach(writer.stream(), 0).await.unwrap();
    let reading = tokio::spawn(async move { payloads(&mut reader, 20_000).await.len() });
    let before = Instant::now();
    for _ in 0..20_000 {
        writer.room(PAYLOAD).await.unwrap();
        let payload = Bytes::from(vec![b'x'; PAYLOAD]);
        writer.append(vec![payload]).await.unwrap();
    }
    let had = reading.await.unwrap();
    let rate = had as f64 / before.elapsed().as_secs_f64();
    println!("one stream, written without waiting: {rate:.0} events/s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_the_log_over_redis() {
    streams(1, 3000).await;
    streams(64, 300).await;
    streams(512, 60).await;
    burst().await;
    replay().await;
}
