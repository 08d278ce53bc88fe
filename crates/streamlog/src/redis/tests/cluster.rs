//! The same on a cluster, where the keys of a session are in one slot (EL-24).

use vestibule_testkit::redis::RedisCluster;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn el_24_replicas_over_a_cluster() {
    let Some(cluster) = RedisCluster::start(3) else {
        return;
    };
    let replicas = Replicas {
        town: Arc::default(),
        url: cluster.url(),
        limits: Limits::default(),
        mode: Mode::Required,
    };
    let (a, b) = (replicas.start(), replicas.start());
    let writer = a.writer().await;
    writer.append(texts(["1"])).await.unwrap();
    let mut reader = b.reader(&priming(&writer)).await;
    assert_eq!(payloads(&mut reader, 1).await, ["1"]);
    writer.append(texts(["2"])).await.unwrap();
    assert_eq!(payloads(&mut reader, 1).await, ["2"]);
    let (opened, mut listening) = a.standalone().await;
    b.publish("note 1").await;
    let (first, _) = event(&mut listening).await;
    let mut listening = b.reader(&first.unwrap()).await;
    a.publish("note 2").await;
    assert_eq!(payloads(&mut listening, 1).await, ["note 2"]);
    assert_eq!(listening.stream(), &opened.stream);
    a.kill();
    assert_eq!(b.any.sweep().await.unwrap().orphans.len(), 1);
    b.any
        .finish(writer.stream(), Some(text("end")))
        .await
        .unwrap();
    assert_eq!(payloads(&mut reader, 1).await, ["end"]);
    assert_eq!(next(&mut reader).await, Next::Finished);
    b.any.forget_session(&mine()).await.unwrap();
    assert_eq!(b.resume(&priming(&writer)).await, Resume::NoSession);
}
