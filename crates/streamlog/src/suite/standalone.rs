//! The part of the suite that is about standalone streams.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::advance;

use super::{MINUTE, Make, World, event, keyring, message, next, payload, quiet, sealer, text};
use crate::{Class, Event, Limits, Next, Resume, Stop};

/// GET-04: each message on one stream, the newest; when it closes, the one before it.
pub(crate) async fn get_04_the_newest_standalone_stream_gets_each_message(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let (_, mut first) = world.standalone().await;
    world.publish("a").await;
    assert_eq!(payload(&mut first).await, "a");
    let (_, mut second) = world.standalone().await;
    world.publish("b").await;
    assert!(quiet(&mut first).await);
    assert_eq!(payload(&mut second).await, "b");
    world.publish("c").await;
    let waiting = tokio::spawn(async move { (payload(&mut first).await, first) });
    tokio::task::yield_now().await;
    drop(second);
    let (fallen_back, mut first) = waiting.await.unwrap();
    assert_eq!(fallen_back, "c", "untaken messages go to the stream before");
    world.publish("d").await;
    assert_eq!(payload(&mut first).await, "d");
}

pub(crate) async fn get_04_a_fifth_standalone_stream_closes_the_oldest(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let mut readers = vec![];
    for _ in 0..4 {
        readers.push(world.standalone().await.1);
    }
    let mut oldest = readers.remove(0);
    assert!(quiet(&mut oldest).await);
    let (_, mut fifth) = world.standalone().await;
    assert_eq!(next(&mut oldest).await, Next::Stopped(Stop::Evicted));
    assert_eq!(Stop::Evicted.retry(), Some(Duration::from_secs(30)));
    world.publish("a").await;
    assert_eq!(payload(&mut fifth).await, "a");
    for reader in &mut readers {
        assert!(quiet(reader).await);
    }
}

pub(crate) async fn get_03_a_waiting_reader_gets_what_is_published(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let (opened, mut reader) = world.standalone().await;
    let waiting = tokio::spawn(async move { event(&mut reader).await });
    tokio::task::yield_now().await;
    world.publish("a").await;
    let (id, payload) = waiting.await.unwrap();
    assert_eq!(payload, "a");
    assert_eq!(world.ids(&opened.stream).await, [id]);
}

pub(crate) async fn get_05_messages_wait_for_a_standalone_stream(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let tools = |payload| Event {
        class: Class::Invalidation(Arc::from("tools")),
        payload,
    };
    let log = Event {
        class: Class::Log,
        payload: text("log"),
    };
    let events = vec![tools(text("t1")), message("m"), log, tools(text("t2"))];
    world.log.publish(&world.session, events).await.unwrap();
    advance(MINUTE * 14).await;
    world.log.sweep().await.unwrap();
    let (_, mut reader) = world.standalone().await;
    for expected in ["m", "log", "t2"] {
        assert_eq!(payload(&mut reader).await, expected);
    }
    assert!(quiet(&mut reader).await);
}

pub(crate) async fn get_05_a_loss_in_the_backlog_is_told_to_the_next_reader(make: Make<'_>) {
    let world = World::new(
        make,
        Limits {
            stream_events: 2,
            ..Limits::default()
        },
    )
    .await;
    let question = |key: &str| Event {
        class: Class::Question(Arc::from(key)),
        payload: text(key),
    };
    let first = vec![question("q1"), message("a"), message("b")];
    let lost = world.log.publish(&world.session, first).await.unwrap();
    assert_eq!(lost, [Arc::from("q1")]);
    world.publish("c").await;
    let (_, mut reader) = world.standalone().await;
    assert_eq!(next(&mut reader).await, Next::Gap);
    assert_eq!(payload(&mut reader).await, "b");
    assert_eq!(payload(&mut reader).await, "c");
    drop(reader);
    world
        .log
        .publish(&world.session, vec![question("q2")])
        .await
        .unwrap();
    advance(MINUTE * 15).await;
    let lost = world.log.sweep().await.unwrap().lost;
    assert_eq!(
        (&lost[0].session, &*lost[0].question),
        (&world.session, "q2")
    );
    assert!(world.log.sweep().await.unwrap().lost.is_empty());
}

/// RES-04, T50: what one stream had is replayed on that stream and no other.
pub(crate) async fn res_04_standalone_messages_are_replayed_on_their_own_stream(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let (first, mut reader) = world.standalone().await;
    world.publish("a").await;
    world.publish("b").await;
    let (seen, _) = event(&mut reader).await;
    event(&mut reader).await;
    drop(reader);
    let (_, mut second) = world.standalone().await;
    world.publish("c").await;
    assert_eq!(payload(&mut second).await, "c", "neither a nor b");
    let resume = world.resume(&seen).await;
    assert_eq!(
        resume,
        Resume::Replay {
            stream: first.stream.clone(),
            after: 1
        }
    );
    let mut again = world.log.attach(&first.stream, 1).await.unwrap();
    assert_eq!(payload(&mut again).await, "b");
    world.publish("d").await;
    assert_eq!(
        payload(&mut again).await,
        "d",
        "the newest connection gets what is new"
    );
}

pub(crate) async fn res_05_an_expired_standalone_stream_begins_anew(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let (opened, mut reader) = world.standalone().await;
    world.publish("a").await;
    let (id, _) = event(&mut reader).await;
    advance(MINUTE * 60).await;
    world.log.sweep().await.unwrap();
    drop(reader);
    assert!(
        matches!(world.resume(&id).await, Resume::Replay { after: 1, .. }),
        "open until now"
    );
    assert!(matches!(
        world.resume(opened.priming.as_ref().unwrap()).await,
        Resume::StandaloneGap { after: 1, .. }
    ));
    advance(MINUTE * 10).await;
    world.publish("b").await;
    advance(MINUTE * 5).await;
    let Resume::StandaloneGap { stream, after } = world.resume(&id).await else {
        panic!("the stream is gone");
    };
    assert_ne!(stream, opened.stream);
    let mut reader = world.log.attach(&stream, after).await.unwrap();
    assert_eq!(payload(&mut reader).await, "b", "what is kept");
}

pub(crate) async fn a_key_that_rotated_out_is_a_gap_of_the_standalone_stream(make: Make<'_>) {
    let sealer = sealer();
    let world = World::with(make(sealer.clone(), Limits::default())).await;
    let (opened, reader) = world.standalone().await;
    drop(reader);
    sealer.rotate(keyring("k2", 2));
    let Resume::StandaloneGap { stream, after: 0 } =
        world.resume(opened.priming.as_ref().unwrap()).await
    else {
        panic!("a gap, not a forgery");
    };
    world.publish("a").await;
    let mut reader = world.log.attach(&stream, 0).await.unwrap();
    let (id, _) = event(&mut reader).await;
    assert!(id.as_str().starts_with("1k2."));
    assert!(matches!(
        world.resume(&id).await,
        Resume::Replay { after: 1, .. }
    ));
}
