//! What every implementation of [`StreamLog`] must do, written once against the trait.
//!
//! `tests!(make)` declares one test a behaviour; `make` builds an empty log.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, advance, sleep, timeout};
use vestibule_store::{Keyring, Sealer, SessionKey};
use vestibule_terms::{Secret, SessionId, TenantId};

use crate::{
    Class, Event, EventId, Limits, LogError, Next, Opened, Reader, Resume, Stop, StreamKind,
    StreamLog, StreamRef, Writer,
};

mod deliver;
mod forgery;
mod orphans;
mod standalone;

macro_rules! tests {
    ($make:path: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                crate::suite::$name(&|sealer, limits| $make(sealer, limits)).await;
            }
        )*
    };
    ($make:path) => {
        crate::suite::tests!($make:
            res_03_a_client_resumes_from_any_event_without_gap_or_duplicate,
            res_07_events_are_visible_once_they_are_appended,
            res_05_a_trimmed_post_stream_names_its_requests,
            res_05_history_ends_with_age_and_the_requests_are_remembered_longer,
            res_06_an_ended_stream_is_replayed_until_the_client_has_its_end,
            res_06_a_cancelled_call_is_complete_at_once,
            sse_04_the_beginning_of_a_stream_can_be_resumed_from,
            el_14_a_stream_ends_once,
            el_15_a_writer_that_goes_away_leaves_an_orphan_that_one_finishes,
            el_15_a_note_is_kept_with_the_next_append,
            el_15_an_orphan_is_claimed_once,
            el_17_a_newer_reader_stops_the_older_before_it_gets_anything,
            el_17_a_stuck_older_connection_holds_the_newer_up_only_briefly,
            el_19_one_event_of_any_size_is_kept,
            el_19_one_waiting_message_of_any_size_is_kept,
            el_21_a_delivery_without_room_gives_up_after_the_hold,
            hse_03_deliveries_wait_for_room_and_all_arrive,
            el_21_a_writer_waits_for_a_reader_that_is_behind,
            el_21_a_reader_is_told_about_history_trimmed_under_it,
            el_21_a_slow_reader_can_be_stopped_and_its_stream_stays,
            get_04_the_newest_standalone_stream_gets_each_message,
            get_04_a_fifth_standalone_stream_closes_the_oldest,
            get_03_a_waiting_reader_gets_what_is_published,
            get_05_messages_wait_for_a_standalone_stream,
            get_05_a_loss_in_the_backlog_is_told_to_the_next_reader,
            res_04_standalone_messages_are_replayed_on_their_own_stream,
            res_05_an_expired_standalone_stream_begins_anew,
            t49_foreign_ids_are_refused,
            t40_a_stream_is_found_by_its_session_alone,
            a_key_that_rotated_out_is_a_gap_of_the_standalone_stream,
            case_65_nothing_survives_a_forgotten_session,
            next_is_cancel_safe,
        );
    };
}
pub(crate) use deliver::{
    el_19_one_waiting_message_of_any_size_is_kept,
    el_21_a_delivery_without_room_gives_up_after_the_hold,
    hse_03_deliveries_wait_for_room_and_all_arrive,
};
pub(crate) use forgery::Forgeries;
pub(crate) use orphans::{
    el_15_a_note_is_kept_with_the_next_append,
    el_15_a_writer_that_goes_away_leaves_an_orphan_that_one_finishes,
    el_15_an_orphan_is_claimed_once,
};
pub(crate) use standalone::{
    a_key_that_rotated_out_is_a_gap_of_the_standalone_stream,
    get_03_a_waiting_reader_gets_what_is_published,
    get_04_a_fifth_standalone_stream_closes_the_oldest,
    get_04_the_newest_standalone_stream_gets_each_message,
    get_05_a_loss_in_the_backlog_is_told_to_the_next_reader,
    get_05_messages_wait_for_a_standalone_stream,
    res_04_standalone_messages_are_replayed_on_their_own_stream,
    res_05_an_expired_standalone_stream_begins_anew,
};
pub(crate) use tests;

type Make<'a> = &'a dyn Fn(Sealer, Limits) -> Arc<dyn StreamLog>;

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn session(tenant: &str, principal: &str, id: &str) -> SessionKey {
    SessionKey::new(
        &TenantId::new(tenant).unwrap(),
        principal,
        &SessionId::new(id),
    )
}

pub(crate) fn sealer() -> Sealer {
    Sealer::new(keyring("k1", 1))
}

fn keyring(id: &str, byte: u8) -> Keyring {
    Keyring::new(vec![(id.to_owned(), Secret::new(vec![byte; 32]))]).unwrap()
}

fn text(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

fn texts<const N: usize>(all: [&str; N]) -> Vec<Bytes> {
    all.into_iter().map(text).collect()
}

fn message(payload: &str) -> Event {
    Event {
        class: Class::Message,
        payload: text(payload),
    }
}

/// A log with one session.
struct World {
    log: Arc<dyn StreamLog>,
    session: SessionKey,
}

impl World {
    async fn new(make: Make<'_>, limits: Limits) -> Self {
        Self::with(make(sealer(), limits)).await
    }

    async fn with(log: Arc<dyn StreamLog>) -> Self {
        let session = session("acme", "alice", "s1");
        log.begin_session(&session).await.unwrap();
        Self { log, session }
    }

    async fn writer(&self) -> Writer {
        Writer::open(&self.log, &self.session, vec![text("7")])
            .await
            .unwrap()
    }

    async fn standalone(&self) -> (Opened, Reader) {
        let opened = self
            .log
            .open(&self.session, StreamKind::Standalone)
            .await
            .unwrap();
        let reader = self.log.attach(&opened.stream, 0).await.unwrap();
        (opened, reader)
    }

    async fn publish(&self, payload: &str) -> Vec<Arc<str>> {
        self.log
            .publish(&self.session, vec![message(payload)])
            .await
            .unwrap()
    }

    async fn resume(&self, id: &EventId) -> Resume {
        self.log.resume(&self.session, id.as_str()).await.unwrap()
    }

    async fn ids(&self, stream: &StreamRef) -> Vec<EventId> {
        settled().await;
        let entries = self.log.read(stream, 0, usize::MAX).await.unwrap();
        entries.into_iter().map(|entry| entry.id.unwrap()).collect()
    }
}

/// Everything that is on its way has arrived: a paused clock moves only then.
async fn settled() {
    sleep(Duration::from_millis(1)).await;
}

async fn next(reader: &mut Reader) -> Next {
    timeout(Duration::from_secs(5), reader.next())
        .await
        .expect("something comes")
        .unwrap()
}

async fn event(reader: &mut Reader) -> (EventId, String) {
    let next = next(reader).await;
    let Next::Event(entry) = next else {
        panic!("an event, not {next:?}");
    };
    (
        entry.id.unwrap(),
        String::from_utf8(entry.payload.to_vec()).unwrap(),
    )
}

async fn payload(reader: &mut Reader) -> String {
    event(reader).await.1
}

async fn quiet(reader: &mut Reader) -> bool {
    timeout(Duration::from_secs(1), reader.next())
        .await
        .is_err()
}

/// RES-03, EL-16: from each event and from the beginning, the rest comes once and in order.
pub(crate) async fn res_03_a_client_resumes_from_any_event_without_gap_or_duplicate(
    make: Make<'_>,
) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let stream = writer.stream().clone();
    let beginning = writer.opened().priming.clone().unwrap();
    writer.append(texts(["a", "b"])).await.unwrap();
    writer.append(texts(["c"])).await.unwrap();
    writer.finish(Some(text("end"))).await.unwrap();
    let mut ids = vec![beginning];
    ids.extend(world.ids(&stream).await);
    let unique: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(unique.len(), 5);
    for (number, id) in ids.iter().enumerate().take(4) {
        let Resume::Ending {
            stream: found,
            after,
        } = world.resume(id).await
        else {
            panic!("the end is still to come");
        };
        assert_eq!((&found, after), (&stream, number as u64));
        let mut reader = world.log.attach(&found, after).await.unwrap();
        for expected in ["a", "b", "c", "end"].iter().skip(number) {
            assert_eq!(payload(&mut reader).await, *expected);
        }
        assert_eq!(next(&mut reader).await, Next::Finished);
    }
}

/// RES-07, EL-8: a reader that waits gets an event when it is in the log, with the id it has there.
pub(crate) async fn res_07_events_are_visible_once_they_are_appended(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let mut reader = world.log.attach(writer.stream(), 0).await.unwrap();
    assert!(quiet(&mut reader).await);
    let waiting = tokio::spawn(async move { (event(&mut reader).await, reader) });
    tokio::task::yield_now().await;
    let appended = writer.append(texts(["a", "b"])).await.unwrap();
    assert_eq!(appended.top, 2);
    let ((id, first), mut reader) = waiting.await.unwrap();
    assert_eq!(
        (&id, first.as_str()),
        (&world.ids(writer.stream()).await[0], "a")
    );
    assert_eq!(reader.lag().events, 1);
    assert_eq!(payload(&mut reader).await, "b");
    assert_eq!(reader.lag().events, 0);
    assert!(quiet(&mut reader).await);
}

pub(crate) async fn res_05_a_trimmed_post_stream_names_its_requests(make: Make<'_>) {
    let world = World::new(
        make,
        Limits {
            stream_events: 2,
            ..Limits::default()
        },
    )
    .await;
    let requests = vec![text("\"x\""), text("8")];
    let writer = Writer::open(&world.log, &world.session, requests.clone())
        .await
        .unwrap();
    let beginning = writer.opened().priming.clone().unwrap();
    writer.append(texts(["a", "b", "c"])).await.unwrap();
    assert_eq!(
        world.resume(&beginning).await,
        Resume::LostPost { requests }
    );
    let kept = world.ids(writer.stream()).await;
    assert_eq!(kept.len(), 2);
    assert!(matches!(
        world.resume(&kept[0]).await,
        Resume::Replay { after: 2, .. }
    ));
}

/// EL-19: events live five minutes after the end, the requests fifteen.
pub(crate) async fn res_05_history_ends_with_age_and_the_requests_are_remembered_longer(
    make: Make<'_>,
) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let stream = writer.stream().clone();
    writer.append(texts(["a"])).await.unwrap();
    advance(MINUTE * 4).await;
    writer.finish(Some(text("end"))).await.unwrap();
    let ids = world.ids(&stream).await;
    advance(MINUTE * 4).await;
    assert!(matches!(world.resume(&ids[0]).await, Resume::Ending { .. }));
    advance(MINUTE).await;
    assert_eq!(
        world.resume(&ids[0]).await,
        Resume::LostPost {
            requests: vec![text("7")]
        }
    );
    assert_eq!(world.resume(&ids[1]).await, Resume::Finished);
    advance(MINUTE * 10).await;
    assert_eq!(world.resume(&ids[0]).await, Resume::Unknown);
}

pub(crate) async fn res_06_an_ended_stream_is_replayed_until_the_client_has_its_end(
    make: Make<'_>,
) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let stream = writer.stream().clone();
    writer.finish(Some(text("end"))).await.unwrap();
    let end = world.ids(&stream).await.remove(0);
    assert_eq!(world.resume(&end).await, Resume::Finished);
    assert_eq!(world.resume(&end).await.status(), 405);
}

pub(crate) async fn res_06_a_cancelled_call_is_complete_at_once(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let mut reader = world.log.attach(writer.stream(), 0).await.unwrap();
    let beginning = writer.opened().priming.clone().unwrap();
    writer.append(texts(["a"])).await.unwrap();
    writer.finish(None).await.unwrap();
    let (id, _) = event(&mut reader).await;
    assert_eq!(next(&mut reader).await, Next::Finished);
    assert_eq!(world.resume(&id).await, Resume::Finished);
    assert!(matches!(
        world.resume(&beginning).await,
        Resume::Ending { after: 0, .. }
    ));
}

pub(crate) async fn sse_04_the_beginning_of_a_stream_can_be_resumed_from(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let resume = world
        .resume(writer.opened().priming.as_ref().unwrap())
        .await;
    assert_eq!(
        resume,
        Resume::Replay {
            stream: writer.stream().clone(),
            after: 0
        }
    );
    let (opened, reader) = world.standalone().await;
    drop(reader);
    let resume = world.resume(opened.priming.as_ref().unwrap()).await;
    assert_eq!(
        resume,
        Resume::Replay {
            stream: opened.stream,
            after: 0
        }
    );
}

pub(crate) async fn el_14_a_stream_ends_once(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let stream = writer.stream().clone();
    writer.finish(Some(text("end"))).await.unwrap();
    let again = world.log.finish(&stream, Some(text("again"))).await;
    assert_eq!(again, Err(LogError::Ended));
    assert_eq!(
        world.log.append(&stream, texts(["late"])).await,
        Err(LogError::Ended)
    );
    assert_eq!(world.ids(&stream).await.len(), 1);
    assert!(world.log.sweep().await.unwrap().orphans.is_empty());
}

/// EL-17, SSE-08: the older reader is stopped and closed before the newer gets anything.
pub(crate) async fn el_17_a_newer_reader_stops_the_older_before_it_gets_anything(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    writer.append(texts(["a", "b"])).await.unwrap();
    let mut older = world.log.attach(writer.stream(), 0).await.unwrap();
    assert_eq!(payload(&mut older).await, "a");
    let mut newer = world.log.attach(writer.stream(), 1).await.unwrap();
    let early = timeout(Duration::from_millis(100), newer.next()).await;
    assert!(early.is_err(), "not before the older is closed");
    assert_eq!(next(&mut older).await, Next::Stopped(Stop::Superseded));
    assert_eq!(older.stopped().await.unwrap(), Stop::Superseded);
    let before = Instant::now();
    drop(older);
    assert_eq!(payload(&mut newer).await, "b");
    assert_eq!(before.elapsed(), Duration::ZERO);
}

pub(crate) async fn el_17_a_stuck_older_connection_holds_the_newer_up_only_briefly(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    writer.append(texts(["a"])).await.unwrap();
    let mut stuck = world.log.attach(writer.stream(), 0).await.unwrap();
    let mut newer = world.log.attach(writer.stream(), 0).await.unwrap();
    let before = Instant::now();
    assert_eq!(payload(&mut newer).await, "a");
    assert!(before.elapsed() <= Duration::from_millis(300));
    assert_eq!(next(&mut stuck).await, Next::Stopped(Stop::Superseded));
    drop(stuck);
    writer.append(texts(["b"])).await.unwrap();
    assert_eq!(
        payload(&mut newer).await,
        "b",
        "closing the older does not close the newer"
    );
}

pub(crate) async fn el_19_one_event_of_any_size_is_kept(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let stream = writer.stream().clone();
    let large = Bytes::from(vec![b'x'; 16 * 1024 * 1024]);
    writer.append(texts(["a"])).await.unwrap();
    let first = world.ids(&stream).await.remove(0);
    writer.finish(Some(large.clone())).await.unwrap();
    let Resume::Ending { stream, after } = world.resume(&first).await else {
        panic!("the end is kept");
    };
    let mut reader = world.log.attach(&stream, after).await.unwrap();
    let Next::Event(entry) = next(&mut reader).await else {
        panic!("the large event")
    };
    assert_eq!(entry.payload, large);
}

/// EL-21: back-pressure until the reader has moved on, has left, or a minute has passed.
pub(crate) async fn el_21_a_writer_waits_for_a_reader_that_is_behind(make: Make<'_>) {
    let world = World::new(
        make,
        Limits {
            stream_events: 2,
            ..Limits::default()
        },
    )
    .await;
    let writer = world.writer().await;
    let has_room = async |limit| timeout(limit, writer.room(1)).await.is_ok();
    let short = Duration::from_secs(1);
    assert!(has_room(short).await, "nothing is kept yet");
    writer.append(texts(["a", "b"])).await.unwrap();
    assert!(has_room(short).await, "nobody reads");
    let mut reader = world.log.attach(writer.stream(), 0).await.unwrap();
    assert!(!has_room(short).await);
    let (room, read) = tokio::join!(writer.room(1), payload(&mut reader));
    assert_eq!((room, read.as_str()), (Ok(()), "a"));
    writer.append(texts(["c"])).await.unwrap();
    assert!(!has_room(short).await);
    let before = Instant::now();
    writer.room(1).await.unwrap();
    assert_eq!(before.elapsed(), MINUTE);
    drop(reader);
    assert!(has_room(short).await);
}

pub(crate) async fn el_21_a_reader_is_told_about_history_trimmed_under_it(make: Make<'_>) {
    let world = World::new(
        make,
        Limits {
            stream_events: 2,
            ..Limits::default()
        },
    )
    .await;
    let writer = world.writer().await;
    let mut reader = world.log.attach(writer.stream(), 0).await.unwrap();
    writer.append(texts(["a", "b", "c"])).await.unwrap();
    assert_eq!(next(&mut reader).await, Next::Gap);
    assert_eq!(payload(&mut reader).await, "b");
    assert_eq!(payload(&mut reader).await, "c");
}

/// EL-21, SSE-17: the log says how far the reader is behind; stopping it closes only the connection.
pub(crate) async fn el_21_a_slow_reader_can_be_stopped_and_its_stream_stays(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let reader = world.log.attach(writer.stream(), 0).await.unwrap();
    let large = Bytes::from(vec![b'x'; 300 * 1024]);
    let appended = writer.append(vec![large.clone()]).await.unwrap();
    assert!(
        !appended.lag.unwrap().is_too_slow(),
        "the first event does not count"
    );
    writer.append(vec![large]).await.unwrap();
    settled().await;
    // told with an append at the latest that comes after it could have been read
    let lag = writer.append(texts(["more"])).await.unwrap().lag.unwrap();
    settled().await;
    assert!(lag.is_too_slow() && reader.lag().is_too_slow());
    let (stopped, ()) = tokio::join!(reader.stopped(), async {
        tokio::task::yield_now().await;
        world.log.stop(writer.stream(), Stop::Slow).await.unwrap();
    });
    assert_eq!(stopped.unwrap().retry(), Some(Duration::from_secs(1)));
    drop(reader);
    let resume = world
        .resume(writer.opened().priming.as_ref().unwrap())
        .await;
    assert!(matches!(resume, Resume::Replay { after: 0, .. }));
}

pub(crate) async fn t49_foreign_ids_are_refused(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let theirs = session("acme", "bob", "s2");
    world.log.begin_session(&theirs).await.unwrap();
    let writer = Writer::open(&world.log, &theirs, vec![text("7")])
        .await
        .unwrap();
    let foreign = writer.opened().priming.as_ref().unwrap().as_str();
    let long = "1k1.".to_owned() + &"A".repeat(10_000);
    for bad in [
        foreign,
        "",
        "7",
        "_GET_stream",
        "1k1.",
        "1.",
        "%0d%0a",
        "1k1.AAAA",
        &long,
    ] {
        let resume = world.log.resume(&world.session, bad).await.unwrap();
        assert_eq!(resume, Resume::Foreign, "{bad}");
    }
    let forgotten = session("acme", "carol", "never");
    let resume = world.log.resume(&forgotten, foreign).await.unwrap();
    assert_eq!(
        resume,
        Resume::Foreign,
        "not even whether the session exists is told"
    );
}

/// T40: another session that knows the stream's name finds nothing.
pub(crate) async fn t40_a_stream_is_found_by_its_session_alone(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let thief = session("acme", "bob", "s1");
    world.log.begin_session(&thief).await.unwrap();
    let guessed = StreamRef {
        session: thief,
        id: writer.stream().id,
    };
    assert!(world.log.attach(&guessed, 0).await.is_err());
    assert_eq!(
        world.log.append(&guessed, texts(["x"])).await,
        Err(LogError::Gone)
    );
    assert!(world.log.read(&guessed, 0, 10).await.unwrap().is_empty());
}

pub(crate) async fn case_65_nothing_survives_a_forgotten_session(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    writer.append(texts(["a"])).await.unwrap();
    let mut post = world.log.attach(writer.stream(), 1).await.unwrap();
    let question = Event {
        class: Class::Question(Arc::from("q1")),
        payload: text("q"),
    };
    world
        .log
        .publish(&world.session, vec![question, message("b")])
        .await
        .unwrap();
    let (waiting, lost) = tokio::join!(next(&mut post), async {
        tokio::task::yield_now().await;
        world.log.forget_session(&world.session).await.unwrap()
    });
    assert_eq!(waiting, Next::Stopped(Stop::Forgotten));
    assert_eq!(lost, [Arc::from("q1")]);
    assert_eq!(writer.append(texts(["late"])).await, Err(LogError::Gone));
    assert_eq!(
        world
            .resume(writer.opened().priming.as_ref().unwrap())
            .await,
        Resume::NoSession
    );
    let late = world
        .log
        .publish(&world.session, vec![message("late")])
        .await;
    assert_eq!(late, Err(LogError::Gone));
    let late = world.log.open(&world.session, StreamKind::Standalone).await;
    assert_eq!(late, Err(LogError::Gone));
    assert_eq!(world.log.forget_session(&world.session).await, Ok(vec![]));
    drop((writer, post));
    assert_eq!(world.log.sweep().await, Ok(crate::Swept::default()));
}

/// An event counts as read when it is returned, not when it was asked for.
pub(crate) async fn next_is_cancel_safe(make: Make<'_>) {
    let world = World::new(make, Limits::default()).await;
    let writer = world.writer().await;
    let mut reader = world.log.attach(writer.stream(), 0).await.unwrap();
    writer.append(texts(["a", "b"])).await.unwrap();
    drop(reader.next());
    for expected in ["a", "b"] {
        for _ in 0..3 {
            tokio::select! {
                biased;
                () = std::future::ready(()) => {}
                _ = reader.next() => panic!("the other branch is ready first"),
            }
        }
        assert_eq!(payload(&mut reader).await, expected);
    }
}
