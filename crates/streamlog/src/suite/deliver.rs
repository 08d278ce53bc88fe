//! The part of the suite that is about messages which nothing may push out.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, advance};

use super::{Make, World, payload, text};
use crate::Limits;

/// Room for two short messages that wait.
fn narrow() -> Limits {
    Limits {
        stream_events: 2,
        ..Limits::default()
    }
}

/// HSE-03: of several who deliver at once to a reader that is behind, none pushes out another.
pub(crate) async fn hse_03_deliveries_wait_for_room_and_all_arrive(make: Make<'_>) {
    let world = Arc::new(World::new(make, narrow()).await);
    let (_, mut reader) = world.standalone().await;
    let mut senders = JoinSet::new();
    for number in 0..20 {
        let world = Arc::clone(&world);
        senders.spawn(async move {
            let message = text(&number.to_string());
            let delivered = world.log.deliver(&world.session, message).await;
            assert_eq!(delivered.unwrap(), Some(vec![]));
        });
    }
    let mut came = vec![];
    for _ in 0..20 {
        tokio::task::yield_now().await;
        came.push(payload(&mut reader).await.parse::<u32>().unwrap());
    }
    came.sort_unstable();
    assert_eq!(came, (0..20).collect::<Vec<_>>());
    while let Some(sender) = senders.join_next().await {
        sender.unwrap();
    }
}

/// EL-21: whoever delivers to a reader that does not move learns so after the hold, and nothing that
/// waited is lost; without a reader nobody waits.
pub(crate) async fn el_21_a_delivery_without_room_gives_up_after_the_hold(make: Make<'_>) {
    let world = World::new(make, narrow()).await;
    let deliver = async |message: &str| {
        let delivered = world.log.deliver(&world.session, text(message)).await;
        delivered.unwrap()
    };
    let (_, mut reader) = world.standalone().await;
    assert_eq!(deliver("a").await, Some(vec![]));
    assert_eq!(deliver("b").await, Some(vec![]));
    let begun = Instant::now();
    assert_eq!(deliver("c").await, None);
    assert!(begun.elapsed() >= narrow().hold);
    assert_eq!(payload(&mut reader).await, "a");
    assert_eq!(payload(&mut reader).await, "b");
    drop(reader);
    advance(Duration::from_millis(1)).await;
    let begun = Instant::now();
    for message in ["d", "e", "f"] {
        assert_eq!(deliver(message).await, Some(vec![]));
    }
    assert!(begun.elapsed() < narrow().hold);
}

/// EL-19: a message larger than a session may keep has its place while it waits.
pub(crate) async fn el_19_one_waiting_message_of_any_size_is_kept(make: Make<'_>) {
    let limits = Limits {
        stream_bytes: 1000,
        session_bytes: 4000,
        ..Limits::default()
    };
    let world = World::new(make, limits).await;
    let (_, mut reader) = world.standalone().await;
    let large = "x".repeat(10_000);
    for _ in 0..2 {
        world
            .log
            .deliver(&world.session, text(&large))
            .await
            .unwrap();
        assert_eq!(payload(&mut reader).await, large);
    }
    world.publish("after").await;
    assert_eq!(payload(&mut reader).await, "after");
}
