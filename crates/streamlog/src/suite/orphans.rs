//! The part of the suite that is about streams without a writer (EL-15).

use bytes::Bytes;

use super::{Make, World, event, next, payload, settled, text, texts};
use crate::{Limits, LogError, NOTE_BYTES, Next, Orphan, Writer};

pub(crate) async fn el_15_a_writer_that_goes_away_leaves_an_orphan_that_one_finishes(
    make: Make<'_>,
) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let stream = writer.stream().clone();
    writer.append(texts(["a"])).await.unwrap();
    let mut reader = world.log.attach(&stream, 0).await.unwrap();
    assert!(world.log.sweep().await.unwrap().orphans.is_empty());
    drop(writer);
    assert_eq!(payload(&mut reader).await, "a");
    let orphaned = next(&mut reader).await;
    assert!(
        matches!(&orphaned, Next::Orphaned { requests, .. } if !requests.is_empty()),
        "{orphaned:?}"
    );
    let orphans = world.log.sweep().await.unwrap().orphans;
    assert_eq!(orphans[0].stream, stream);
    assert_eq!(orphans[0].requests, [text("7")]);
    world
        .log
        .finish(&stream, Some(text("error")))
        .await
        .unwrap();
    let second = world.log.finish(&stream, Some(text("error"))).await;
    assert_eq!(second, Err(LogError::Ended));
    assert_eq!(payload(&mut reader).await, "error");
    assert_eq!(next(&mut reader).await, Next::Finished);
    assert!(world.log.sweep().await.unwrap().orphans.is_empty());
}

/// What a sweep says of the one stream that has no writer.
async fn orphan(world: &World) -> Orphan {
    let mut orphans = world.log.sweep().await.unwrap().orphans;
    assert_eq!(orphans.len(), 1);
    orphans.remove(0)
}

/// EL-15: a note says how far the upstream was read, so it is kept with what was read, never
/// before, and stays until there is another.
pub(crate) async fn el_15_a_note_is_kept_with_the_next_append(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let stream = writer.stream().clone();
    writer.note(text("at a")).await.unwrap();
    writer.append(texts(["a"])).await.unwrap();
    writer.append(texts(["b"])).await.unwrap();
    writer.note(text("never kept")).await.unwrap();
    drop(writer);
    let left = orphan(&world).await;
    assert_eq!(
        (left.stream, left.note),
        (stream.clone(), Some(text("at a")))
    );
    let mut writer = Writer::claim(&world.log, &stream).await.unwrap().unwrap();
    for (note, kept) in [
        (text("alone"), Some(text("alone"))),
        (Bytes::from(vec![b'x'; NOTE_BYTES + 1]), None),
        (text("again"), Some(text("again"))),
        (Bytes::new(), None),
    ] {
        writer.note(note).await.unwrap();
        writer.append(vec![]).await.unwrap();
        settled().await;
        drop(writer);
        assert_eq!(orphan(&world).await.note, kept);
        writer = Writer::claim(&world.log, &stream).await.unwrap().unwrap();
    }
    writer.finish(Some(text("end"))).await.unwrap();
    let late = world.log.note(&stream, text("late")).await;
    assert_eq!(late, Err(LogError::Ended));
}

/// EL-15: one goes on with a stream that lost its writer, and nobody else is told to; when that one
/// goes away too, it is an orphan again.
pub(crate) async fn el_15_an_orphan_is_claimed_once(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let stream = writer.stream().clone();
    let claim = || Writer::claim(&world.log, &stream);
    assert!(claim().await.unwrap().is_none(), "it has a writer");
    let mut reader = world.log.attach(&stream, 0).await.unwrap();
    drop(writer);
    assert!(matches!(next(&mut reader).await, Next::Orphaned { .. }));
    let second = claim().await.unwrap().unwrap();
    assert!(claim().await.unwrap().is_none());
    assert!(world.log.sweep().await.unwrap().orphans.is_empty());
    second.append(texts(["a"])).await.unwrap();
    assert_eq!(payload(&mut reader).await, "a");
    drop(second);
    assert!(matches!(next(&mut reader).await, Next::Orphaned { .. }));
    let third = claim().await.unwrap().unwrap();
    third.finish(Some(text("end"))).await.unwrap();
    assert_eq!(event(&mut reader).await.1, "end");
    assert_eq!(next(&mut reader).await, Next::Finished);
    assert!(claim().await.unwrap().is_none(), "it has ended");
}
