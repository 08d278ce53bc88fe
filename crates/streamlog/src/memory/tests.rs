use std::time::Duration;

use super::*;
use crate::suite::{self, Forgeries, sealer, session};
use crate::{Class, EventId, Next, Writer};

fn make(sealer: Sealer, limits: Limits) -> Arc<dyn StreamLog> {
    Arc::new(MemoryLog::new(sealer, limits))
}

suite::tests!(make);

async fn post(log: &MemoryLog, session: &SessionKey) -> StreamRef {
    log.begin_session(session).await.unwrap();
    let kind = StreamKind::Post(vec![Bytes::from_static(b"1")].into());
    log.open(session, kind).await.unwrap().stream
}

fn events(count: usize, size: usize) -> Vec<Bytes> {
    vec![Bytes::from(vec![b'x'; size]); count]
}

async fn ids(log: &MemoryLog, stream: &StreamRef) -> Vec<EventId> {
    let entries = log.read(stream, 0, usize::MAX).await.unwrap();
    entries.into_iter().map(|entry| entry.id.unwrap()).collect()
}

/// T49: what does not prove itself is refused without a look at what is stored.
#[tokio::test(start_paused = true)]
async fn t49_a_foreign_id_costs_no_lookup() {
    let log = MemoryLog::new(sealer(), Limits::default());
    let (mine, theirs) = (session("acme", "alice", "s1"), session("acme", "bob", "s2"));
    let stream = post(&log, &mine).await;
    log.append(&stream, events(1, 10)).await.unwrap();
    let id = ids(&log, &stream).await.remove(0);
    let before = log.stats().lookups;
    for number in 0..1000 {
        let forged = format!("1k1.{number:070}");
        assert_eq!(log.resume(&mine, &forged).await.unwrap(), Resume::Foreign);
        assert_eq!(
            log.resume(&theirs, id.as_str()).await.unwrap(),
            Resume::Foreign
        );
    }
    assert_eq!(log.stats().lookups, before);
    assert!(matches!(
        log.resume(&mine, id.as_str()).await.unwrap(),
        Resume::Replay { .. }
    ));
    assert_eq!(log.stats().lookups, before + 1);
}

/// T49, EL-4: ten thousand that are not, among a thousand that are.
#[tokio::test(start_paused = true)]
async fn t49_forged_ids_among_valid_ones() {
    let log = Arc::new(MemoryLog::new(sealer(), Limits::default()));
    let any = Arc::clone(&log) as Arc<dyn StreamLog>;
    let ids = Forgeries::of(&any).await;
    let reads = || log.stats().lookups;
    ids.are_refused(&*any, reads).await;
    ids.are_told_apart(&*any, reads).await;
}

/// EL-20: a session's oldest history goes first, whichever stream it is of.
#[tokio::test(start_paused = true)]
async fn el_20_a_session_is_bounded() {
    let limits = Limits {
        session_bytes: 10_000,
        ..Limits::default()
    };
    let log = MemoryLog::new(sealer(), limits);
    let mine = session("acme", "alice", "s1");
    let (old, new) = (post(&log, &mine).await, post(&log, &mine).await);
    for _ in 0..10 {
        log.append(&old, events(1, 400)).await.unwrap();
    }
    for _ in 0..12 {
        log.append(&new, events(1, 400)).await.unwrap();
        log.check_invariants();
    }
    assert!(log.stats().bytes <= 10_000);
    assert_eq!(ids(&log, &new).await.len(), 12);
    assert_eq!(ids(&log, &old).await.len(), 8);
}

/// A tenant makes room for itself; another tenant's history is not touched.
#[tokio::test(start_paused = true)]
async fn el_20_a_tenant_makes_room_for_itself() {
    let limits = Limits {
        tenant_bytes: 20_000,
        ..Limits::default()
    };
    let log = MemoryLog::new(sealer(), limits);
    let quiet = post(&log, &session("quiet", "q", "q")).await;
    log.append(&quiet, events(10, 1000)).await.unwrap();
    for number in 0..50 {
        let stream = post(&log, &session("loud", "l", &number.to_string())).await;
        log.append(&stream, events(3, 1000)).await.unwrap();
        log.check_invariants();
        let stats = log.stats();
        assert!(stats.bytes <= 20_000 + 11_000, "{stats:?}");
        assert!(
            !ids(&log, &stream).await.is_empty(),
            "the newest event of a stream is kept"
        );
    }
    assert_eq!(ids(&log, &quiet).await.len(), 10);
}

/// When the process is full the tenant that uses most makes room, and no single event is refused.
#[tokio::test(start_paused = true)]
async fn el_20_a_full_process_takes_from_the_largest_tenant() {
    let limits = Limits {
        process_bytes: 50_000,
        ..Limits::default()
    };
    let log = MemoryLog::new(sealer(), limits);
    let small = post(&log, &session("small", "s", "s")).await;
    log.append(&small, events(5, 1000)).await.unwrap();
    let large = post(&log, &session("large", "l", "l")).await;
    for _ in 0..100 {
        log.append(&large, events(1, 1000)).await.unwrap();
        log.check_invariants();
    }
    assert!(log.stats().bytes <= 50_000);
    assert_eq!(ids(&log, &small).await.len(), 5);
    log.append(&small, events(1, 200_000)).await.unwrap();
    log.check_invariants();
    let kept = log.read(&small, 5, 10).await.unwrap();
    assert_eq!(kept[0].payload.len(), 200_000);
}

/// Undelivered last events go when nothing else can, and then their clients are told.
#[tokio::test(start_paused = true)]
async fn el_20_undelivered_ends_make_room_last_and_explicitly() {
    let limits = Limits {
        process_bytes: 10_000,
        ..Limits::default()
    };
    let log = MemoryLog::new(sealer(), limits);
    let mine = session("acme", "alice", "s1");
    let mut beginnings = vec![];
    for _ in 0..20 {
        log.begin_session(&mine).await.unwrap();
        let kind = StreamKind::Post(vec![Bytes::from_static(b"1")].into());
        let opened = log.open(&mine, kind).await.unwrap();
        let last = Some(Bytes::from(vec![b'x'; 1000]));
        log.finish(&opened.stream, last).await.unwrap();
        log.check_invariants();
        beginnings.push(opened.priming.unwrap());
    }
    assert!(log.stats().bytes <= 10_000);
    let mut outcomes = vec![];
    for id in &beginnings {
        outcomes.push(log.resume(&mine, id.as_str()).await.unwrap().label());
    }
    let lost = outcomes
        .iter()
        .filter(|label| **label == "lost_post")
        .count();
    assert_eq!(lost, 11);
    assert!(
        outcomes[lost..].iter().all(|label| *label == "ending"),
        "the newest are kept"
    );
}

/// Case 65: the gauges are back at nothing when all sessions are.
#[tokio::test(start_paused = true)]
async fn case_65_tables_are_empty_when_all_sessions_are_forgotten() {
    let log = MemoryLog::new(sealer(), Limits::default());
    let sessions: Vec<_> = (0..50)
        .map(|n| session("acme", "alice", &n.to_string()))
        .collect();
    let mut readers = vec![];
    for session in &sessions {
        let stream = post(&log, session).await;
        readers.push(log.attach(&stream, 0).await.unwrap());
        log.append(&stream, events(3, 100)).await.unwrap();
        let event = Event {
            class: Class::Message,
            payload: Bytes::from_static(b"{}"),
        };
        log.publish(session, vec![event]).await.unwrap();
    }
    assert_eq!(log.stats().sessions, 50);
    for session in &sessions {
        log.forget_session(session).await.unwrap();
    }
    for reader in &mut readers {
        assert_eq!(reader.next().await.unwrap(), Next::Stopped(Stop::Forgotten));
    }
    drop(readers);
    log.sweep().await.unwrap();
    log.check_invariants();
    let stats = log.stats();
    assert_eq!(
        Stats {
            lookups: 0,
            ..stats
        },
        Stats::default()
    );
    assert_eq!(log.tenants(), 0);
}

/// Streams that are remembered are bounded; those in use are not forgotten for others.
#[tokio::test(start_paused = true)]
async fn el_20_remembered_streams_are_bounded() {
    let log = MemoryLog::new(
        sealer(),
        Limits {
            session_streams: 3,
            ..Limits::default()
        },
    );
    let mine = session("acme", "alice", "s1");
    let running = post(&log, &mine).await;
    for _ in 0..10 {
        let stream = post(&log, &mine).await;
        log.finish(&stream, None).await.unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(log.stats().streams, 3);
    log.append(&running, events(1, 1)).await.unwrap();
    let (_two, _three) = (post(&log, &mine).await, post(&log, &mine).await);
    let kind = StreamKind::Post(vec![].into());
    assert_eq!(log.open(&mine, kind).await, Err(LogError::Full(3)));
}

/// Case 65: whoever found the session just before it was forgotten brings nothing back.
#[tokio::test(start_paused = true)]
async fn case_65_a_late_writer_does_not_revive_a_session() {
    let log = MemoryLog::new(sealer(), Limits::default());
    let mine = session("acme", "alice", "s1");
    let stream = post(&log, &mine).await;
    let held = log.find(&mine).unwrap();
    log.forget_session(&mine).await.unwrap();
    assert_eq!(held.open(StreamKind::Standalone), Err(LogError::Gone));
    let event = Event {
        class: Class::Message,
        payload: Bytes::from_static(b"{}"),
    };
    let late = held.grow(None, |log, at| log.publish(vec![event], at));
    assert_eq!(late, Err(LogError::Gone));
    let late = held.with(|log, at| log.append(stream.id, events(1, 1), false, at));
    assert_eq!(late, Err(LogError::Gone));
    assert_eq!(log.stats().bytes, 0);
}

async fn write_and_read(log: Arc<dyn StreamLog>, number: usize) -> usize {
    let mine = session(
        if number.is_multiple_of(2) {
            "even"
        } else {
            "odd"
        },
        "p",
        &number.to_string(),
    );
    log.begin_session(&mine).await.unwrap();
    let writer = Writer::open(&log, &mine, vec![Bytes::from_static(b"1")])
        .await
        .unwrap();
    let mut reader = log.attach(writer.stream(), 0).await.unwrap();
    let reading = tokio::spawn(async move {
        let (mut last, mut had) = (0, 0);
        loop {
            match reader.next().await.unwrap() {
                Next::Event(entry) => {
                    assert!(entry.seq > last, "in order");
                    last = entry.seq;
                    had += 1;
                }
                Next::Gap => {}
                Next::Finished => return had,
                other @ (Next::Caught(_) | Next::Orphaned { .. } | Next::Stopped(_)) => {
                    panic!("{other:?}")
                }
            }
        }
    });
    for _ in 0..500 {
        writer.append(events(1, 200)).await.unwrap();
        tokio::task::yield_now().await;
    }
    writer
        .finish(Some(Bytes::from_static(b"end")))
        .await
        .unwrap();
    reading.await.unwrap()
}

/// Sessions that make room for each other at the same time: no deadlock, and the accounts agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn el_20_room_is_made_across_sessions_in_parallel() {
    let limits = Limits {
        process_bytes: 20_000,
        tenant_bytes: 15_000,
        ..Limits::default()
    };
    let memory = Arc::new(MemoryLog::new(sealer(), limits));
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let log: Arc<dyn StreamLog> = Arc::clone(&memory) as Arc<dyn StreamLog>;
            tokio::spawn(write_and_read(log, number))
        })
        .collect();
    let mut had = 0;
    for task in tasks {
        had += task.await.unwrap();
    }
    assert!(had > 0);
    memory.check_invariants();
    assert!(memory.stats().bytes <= 20_000);
}
