//! What every implementation of [`Sessions`] must do, written once against the trait.
//!
//! `tests!(make)` declares one test a behaviour; `make` builds an empty store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::advance;
use vestibule_terms::clock::ManualClock;
use vestibule_terms::{Clock, Revision, ServerId, SessionId, TenantId};

use crate::{
    Belonging, Caps, EndReason, Ended, Kept, Kind, Lifetimes, OpenStream, Opening, SessionKey,
    Sessions, State, StoreError, Update, modify,
};

/// Long enough for a store that several share to know the order of two uses.
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

macro_rules! tests {
    // All of them in one test, one after the other; `$between` empties what is behind the stores.
    (@ all $make:ident, $between:ident: $($name:ident),* $(,)?) => {
        $(
            $between();
            let clock = Arc::new(vestibule_terms::clock::ManualClock::at(1_000));
            let make = |lifetimes| $make(lifetimes, Arc::clone(&clock) as Arc<dyn Clock>);
            crate::suite::$name(&make, &clock).await;
        )*
    };
    // On a server that may not be there; `$make` says how stores are made on it.
    (@ server: $server:expr, $make:path: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                let Some(server) = $server else { return };
                let clock = Arc::new(vestibule_terms::clock::ManualClock::at(1_000));
                let make = $make(&server);
                let make = |lifetimes| make(lifetimes, Arc::clone(&clock) as Arc<dyn Clock>);
                crate::suite::$name(&make, &clock).await;
            }
        )*
    };
    (@ $make:path: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                let clock = Arc::new(vestibule_terms::clock::ManualClock::at(1_000));
                let make = |lifetimes| $make(lifetimes, Arc::clone(&clock) as Arc<dyn Clock>);
                crate::suite::$name(&make, &clock).await;
            }
        )*
    };
    ($($how:tt)*) => {
        crate::suite::tests!(@ $($how)*:
            ses_02_a_session_is_found_by_its_owner_alone,
            ses_03_the_idle_limit_slides_and_stands_still_while_a_stream_is_open,
            ses_03_an_ended_session_is_gone_and_handed_out_once,
            ses_03_a_longest_life_ends_sessions_in_use,
            case_63_over_a_cap_the_least_recently_used_streamless_session_ends,
            case_63_sessions_with_open_streams_are_never_evicted,
            a_tenant_is_bounded_and_leaves_others_alone,
            changes_are_made_by_compare_and_swap,
            concurrent_changes_are_all_kept,
            an_id_cannot_be_created_twice,
            a_cap_of_zero_lets_none_in,
            what_is_kept_belongs_to_its_session_alone,
            what_is_kept_changes_by_compare_and_swap,
            what_is_kept_is_bounded,
            what_is_kept_ends_with_its_session_and_is_handed_out,
        );
    };
}
pub(crate) use tests;

type Make<'a> = &'a dyn Fn(Lifetimes) -> Arc<dyn Sessions>;

pub(crate) fn tenant(text: &str) -> TenantId {
    TenantId::new(text).unwrap()
}

pub(crate) fn opening() -> Opening {
    Opening {
        server: ServerId::new("tools").unwrap(),
        revision: Revision::R2025_11_25,
        capabilities: Bytes::from_static(b"{}"),
        client_info: Bytes::from_static(br#"{"name":"c","version":"1"}"#),
        created: 1_000,
    }
}

/// Time passes, on both clocks.
async fn pass(clock: &ManualClock, time: Duration) {
    advance(time).await;
    clock.advance(u64::try_from(time.as_millis()).unwrap());
}

fn key(tenant_name: &str, principal: &str, id: &str) -> SessionKey {
    SessionKey::new(&tenant(tenant_name), principal, &SessionId::new(id))
}

async fn open(sessions: &Arc<dyn Sessions>, key: &SessionKey) -> Vec<Ended> {
    open_within(sessions, key, Caps::default()).await.unwrap()
}

async fn open_within(
    sessions: &Arc<dyn Sessions>,
    key: &SessionKey,
    caps: Caps,
) -> Result<Vec<Ended>, StoreError> {
    sessions
        .create(key.clone(), opening(), caps)
        .await
        .map(|created| created.evicted)
}

async fn alive(sessions: &Arc<dyn Sessions>, key: &SessionKey) -> bool {
    sessions.get(key).await.unwrap().is_some()
}

fn ids(ended: &[Ended]) -> Vec<&str> {
    ended
        .iter()
        .map(|ended| ended.session.key.id().expose())
        .collect()
}

pub(crate) async fn ses_02_a_session_is_found_by_its_owner_alone(make: Make<'_>, _: &ManualClock) {
    let sessions = make(Lifetimes::default());
    let mine = key("acme", "alice", "s");
    open(&sessions, &mine).await;
    for foreign in [
        key("acme", "bob", "s"),
        key("evil", "alice", "s"),
        key("acme", "alice", "t"),
    ] {
        assert!(!alive(&sessions, &foreign).await);
        assert!(sessions.touch(&foreign).await.unwrap().is_none());
        assert!(sessions.stream_opened(&foreign).await.unwrap().is_none());
        assert!(sessions.end(&foreign).await.unwrap().is_none());
        let update = sessions
            .update(&foreign, 1, State::default())
            .await
            .unwrap();
        assert_eq!(update, Update::Gone);
        sessions.stream_closed(&foreign);
    }
    let stored = sessions.get(&mine).await.unwrap().unwrap();
    assert_eq!(stored.version, 1);
    assert_eq!(*stored.opening, opening());
}

pub(crate) async fn ses_03_the_idle_limit_slides_and_stands_still_while_a_stream_is_open(
    make: Make<'_>,
    clock: &ManualClock,
) {
    let sessions = make(Lifetimes::default());
    let mine = key("acme", "alice", "s");
    open(&sessions, &mine).await;
    pass(clock, DAY - HOUR).await;
    let touched = sessions.touch(&mine).await.unwrap().unwrap();
    assert_eq!(touched.last_seen, clock.unix_millis());
    pass(clock, DAY - HOUR).await;
    let stream = OpenStream::begin(&sessions, &mine).await.unwrap().unwrap();
    pass(clock, DAY * 7).await;
    assert!(sessions.sweep().await.unwrap().is_empty());
    assert!(alive(&sessions, &mine).await);
    drop(stream);
    pass(clock, DAY - HOUR).await;
    assert!(alive(&sessions, &mine).await);
    pass(clock, HOUR).await;
    assert!(!alive(&sessions, &mine).await, "over before anybody swept");
    assert!(sessions.touch(&mine).await.unwrap().is_none());
    assert!(OpenStream::begin(&sessions, &mine).await.unwrap().is_none());
    let ended = sessions.sweep().await.unwrap();
    assert_eq!(ids(&ended), ["s"]);
    assert_eq!(ended[0].reason, EndReason::Idle);
    assert!(sessions.sweep().await.unwrap().is_empty());
}

pub(crate) async fn ses_03_an_ended_session_is_gone_and_handed_out_once(
    make: Make<'_>,
    _: &ManualClock,
) {
    let sessions = make(Lifetimes::default());
    let mine = key("acme", "alice", "s");
    open(&sessions, &mine).await;
    let stream = OpenStream::begin(&sessions, &mine).await.unwrap().unwrap();
    let ended = sessions.end(&mine).await.unwrap().unwrap();
    assert_eq!(ended.reason, EndReason::Requested);
    assert_eq!(ended.session.key, mine);
    assert!(sessions.end(&mine).await.unwrap().is_none());
    assert!(!alive(&sessions, &mine).await);
    drop(stream);
    assert_eq!(sessions.count(mine.tenant(), None).await.unwrap(), 0);
}

pub(crate) async fn ses_03_a_longest_life_ends_sessions_in_use(
    make: Make<'_>,
    clock: &ManualClock,
) {
    let sessions = make(Lifetimes {
        age: Some(DAY * 2),
        ..Lifetimes::default()
    });
    let (old, young) = (key("acme", "alice", "old"), key("acme", "alice", "young"));
    open(&sessions, &old).await;
    let _stream = OpenStream::begin(&sessions, &old).await.unwrap().unwrap();
    pass(clock, DAY).await;
    open(&sessions, &young).await;
    let _other = OpenStream::begin(&sessions, &young).await.unwrap().unwrap();
    pass(clock, DAY).await;
    assert!(!alive(&sessions, &old).await);
    let ended = sessions.sweep().await.unwrap();
    assert_eq!(
        (ids(&ended), ended[0].reason),
        (vec!["old"], EndReason::Age)
    );
    assert!(alive(&sessions, &young).await);
}

pub(crate) async fn case_63_over_a_cap_the_least_recently_used_streamless_session_ends(
    make: Make<'_>,
    clock: &ManualClock,
) {
    let sessions = make(Lifetimes::default());
    let caps = Caps {
        per_principal: 3,
        ..Caps::default()
    };
    let keys: Vec<_> = ["a", "b", "c", "d"]
        .map(|id| key("acme", "alice", id))
        .into();
    open(&sessions, &key("acme", "bob", "bobs")).await;
    for key in &keys[..3] {
        pass(clock, MINUTE).await;
        assert!(open_within(&sessions, key, caps).await.unwrap().is_empty());
    }
    pass(clock, MINUTE).await;
    sessions.touch(&keys[0]).await.unwrap();
    let evicted = open_within(&sessions, &keys[3], caps).await.unwrap();
    assert_eq!(
        (ids(&evicted), evicted[0].reason),
        (vec!["b"], EndReason::Evicted)
    );
    assert!(alive(&sessions, &keys[0]).await);
    assert!(!alive(&sessions, &keys[1]).await);
    assert_eq!(
        sessions
            .count(keys[0].tenant(), Some("alice"))
            .await
            .unwrap(),
        3
    );
    assert_eq!(
        sessions.count(keys[0].tenant(), Some("bob")).await.unwrap(),
        1
    );
}

pub(crate) async fn case_63_sessions_with_open_streams_are_never_evicted(
    make: Make<'_>,
    _: &ManualClock,
) {
    let sessions = make(Lifetimes::default());
    let caps = Caps {
        per_principal: 2,
        ..Caps::default()
    };
    let [a, b, c] = ["a", "b", "c"].map(|id| key("acme", "alice", id));
    open(&sessions, &a).await;
    let of_a = OpenStream::begin(&sessions, &a).await.unwrap().unwrap();
    let of_a_too = OpenStream::begin(&sessions, &a).await.unwrap().unwrap();
    open(&sessions, &b).await;
    let of_b = OpenStream::begin(&sessions, &b).await.unwrap().unwrap();
    let refused = open_within(&sessions, &c, caps).await;
    assert_eq!(refused, Err(StoreError::PrincipalFull(2)));
    drop(of_a);
    assert_eq!(
        open_within(&sessions, &c, caps).await,
        Err(StoreError::PrincipalFull(2))
    );
    drop(of_a_too);
    let evicted = open_within(&sessions, &c, caps).await.unwrap();
    assert_eq!(ids(&evicted), ["a"]);
    drop(of_b);
}

pub(crate) async fn a_tenant_is_bounded_and_leaves_others_alone(
    make: Make<'_>,
    clock: &ManualClock,
) {
    let sessions = make(Lifetimes::default());
    let caps = Caps {
        per_principal: 2,
        per_tenant: 3,
    };
    open(&sessions, &key("other", "alice", "theirs")).await;
    for (principal, id) in [("p", "1"), ("q", "2"), ("r", "3")] {
        pass(clock, MINUTE).await;
        open_within(&sessions, &key("acme", principal, id), caps)
            .await
            .unwrap();
    }
    pass(clock, MINUTE).await;
    let evicted = open_within(&sessions, &key("acme", "s", "4"), caps)
        .await
        .unwrap();
    assert_eq!(ids(&evicted), ["1"]);
    let listed = sessions.list(&tenant("acme"), 2).await.unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|stored| stored.key.id().expose())
        .collect();
    assert_eq!(listed, ["2", "3"]);
    let mut streams = vec![];
    for (principal, id) in [("q", "2"), ("r", "3"), ("s", "4")] {
        let key = key("acme", principal, id);
        streams.push(OpenStream::begin(&sessions, &key).await.unwrap().unwrap());
    }
    let refused = open_within(&sessions, &key("acme", "t", "5"), caps).await;
    assert_eq!(refused, Err(StoreError::TenantFull(3)));
    assert!(alive(&sessions, &key("other", "alice", "theirs")).await);
}

pub(crate) async fn changes_are_made_by_compare_and_swap(make: Make<'_>, _: &ManualClock) {
    let sessions = make(Lifetimes::default());
    let mine = key("acme", "alice", "s");
    open(&sessions, &mine).await;
    let first = State {
        initialized: true,
        ..State::default()
    };
    let Update::Done(stored) = sessions.update(&mine, 1, first.clone()).await.unwrap() else {
        panic!("the first change of version 1 succeeds");
    };
    assert_eq!((stored.version, &*stored.state), (2, &first));
    let late = State {
        next_question: 9,
        ..State::default()
    };
    let Update::Conflict(stored) = sessions.update(&mine, 1, late).await.unwrap() else {
        panic!("the second change of version 1 does not");
    };
    assert_eq!((stored.version, &*stored.state), (2, &first));
    let next = |state: &mut State| {
        state.next_question += 1;
        state.next_question
    };
    assert_eq!(modify(&*sessions, &mine, next).await.unwrap(), Some(1));
    assert_eq!(modify(&*sessions, &mine, next).await.unwrap(), Some(2));
    assert!(
        sessions
            .get(&mine)
            .await
            .unwrap()
            .unwrap()
            .state
            .initialized
    );
    let foreign = key("acme", "bob", "s");
    assert_eq!(modify(&*sessions, &foreign, next).await.unwrap(), None);
}

pub(crate) async fn concurrent_changes_are_all_kept(make: Make<'_>, _: &ManualClock) {
    let sessions = make(Lifetimes::default());
    let mine = key("acme", "alice", "s");
    open(&sessions, &mine).await;
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let (sessions, mine) = (Arc::clone(&sessions), mine.clone());
            tokio::spawn(async move {
                let uri: Arc<str> = Arc::from(format!("file:///{number}"));
                modify(&*sessions, &mine, |state| {
                    state.subscriptions.insert(Arc::clone(&uri))
                })
                .await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap(), Some(true));
    }
    let stored = sessions.get(&mine).await.unwrap().unwrap();
    assert_eq!(stored.state.subscriptions.len(), 50);
}

pub(crate) async fn an_id_cannot_be_created_twice(make: Make<'_>, _: &ManualClock) {
    let sessions = make(Lifetimes::default());
    let mine = key("acme", "alice", "s");
    open(&sessions, &mine).await;
    let again = open_within(&sessions, &mine, Caps::default()).await;
    assert_eq!(again, Err(StoreError::Exists));
    let as_bob = open_within(&sessions, &key("acme", "bob", "s"), Caps::default()).await;
    assert_eq!(as_bob, Err(StoreError::Exists));
}

pub(crate) async fn a_cap_of_zero_lets_none_in(make: Make<'_>, _: &ManualClock) {
    let sessions = make(Lifetimes::default());
    let mine = key("acme", "alice", "s");
    let none = Caps {
        per_principal: 0,
        per_tenant: 5,
    };
    assert_eq!(
        open_within(&sessions, &mine, none).await,
        Err(StoreError::PrincipalFull(0))
    );
    let none = Caps {
        per_principal: 5,
        per_tenant: 0,
    };
    assert_eq!(
        open_within(&sessions, &mine, none).await,
        Err(StoreError::TenantFull(0))
    );
    assert_eq!(sessions.count(mine.tenant(), None).await.unwrap(), 0);
}

fn bytes(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

pub(crate) async fn what_is_kept_belongs_to_its_session_alone(make: Make<'_>, _: &ManualClock) {
    let sessions = make(Lifetimes::default());
    let (mine, other) = (key("acme", "alice", "s"), key("acme", "alice", "t"));
    open(&sessions, &mine).await;
    open(&sessions, &other).await;
    let keep = |key: SessionKey, kind, record: &'static str| {
        let sessions = Arc::clone(&sessions);
        async move { sessions.keep(&key, kind, "n", bytes(record)).await.unwrap() }
    };
    let kept = |record, mine| {
        Some(Kept {
            record: bytes(record),
            mine,
        })
    };
    let first = keep(mine.clone(), Kind::Upstream, "one").await;
    assert_eq!(first, kept("one", true));
    let second = keep(mine.clone(), Kind::Upstream, "two").await;
    assert_eq!(second, kept("one", false), "what is there stays");
    let question = keep(mine.clone(), Kind::Question, "ask").await;
    assert_eq!(question, kept("ask", true), "kinds have names of their own");
    for foreign in [
        key("acme", "bob", "s"),
        key("evil", "alice", "s"),
        key("acme", "alice", "u"),
    ] {
        assert_eq!(keep(foreign.clone(), Kind::Question, "x").await, None);
        let found = sessions.kept(&foreign, Kind::Upstream, "n").await;
        assert_eq!(found.unwrap(), None);
        let all = sessions.all_kept(&foreign, Kind::Upstream).await;
        assert!(all.unwrap().is_empty());
        let swap = sessions.swap_kept(&foreign, Kind::Upstream, "n", b"one", None);
        assert!(!swap.await.unwrap());
    }
    let found = sessions.kept(&other, Kind::Upstream, "n").await;
    assert_eq!(found.unwrap(), None);
    let found = sessions.kept(&mine, Kind::Upstream, "n").await;
    assert_eq!(found.unwrap(), Some(bytes("one")));
}

pub(crate) async fn what_is_kept_changes_by_compare_and_swap(make: Make<'_>, _: &ManualClock) {
    let sessions = make(Lifetimes::default());
    let mine = key("acme", "alice", "s");
    open(&sessions, &mine).await;
    for name in ["b", "a", ""] {
        let keep = sessions.keep(&mine, Kind::Question, name, bytes("open"));
        assert!(keep.await.unwrap().unwrap().mine);
    }
    let swap = |name: &'static str, expected: &'static str, record: Option<&str>| {
        let (sessions, mine, record) = (Arc::clone(&sessions), mine.clone(), record.map(bytes));
        async move {
            let expected = expected.as_bytes();
            let swap = sessions.swap_kept(&mine, Kind::Question, name, expected, record);
            swap.await.unwrap()
        }
    };
    assert!(!swap("a", "answered", Some("again")).await);
    assert!(swap("a", "open", Some("answered")).await);
    assert!(!swap("a", "open", Some("answered")).await, "answered once");
    assert!(swap("b", "open", None).await);
    assert!(!swap("b", "open", None).await, "removed once");
    assert!(
        !swap("c", "", Some("x")).await,
        "nothing is not an empty record"
    );
    let all = sessions.all_kept(&mine, Kind::Question).await.unwrap();
    let expected = [("", "open"), ("a", "answered")];
    let expected = expected.map(|(name, record)| (name.to_owned(), bytes(record)));
    assert_eq!(all, expected);
    let again = sessions.keep(&mine, Kind::Question, "b", bytes("new"));
    assert!(again.await.unwrap().unwrap().mine, "a removed name is free");
}

pub(crate) async fn what_is_kept_is_bounded(make: Make<'_>, _: &ManualClock) {
    let sessions = make(Lifetimes::default());
    let (many, large) = (key("acme", "alice", "many"), key("acme", "alice", "large"));
    open(&sessions, &many).await;
    open(&sessions, &large).await;
    for number in 0..256 {
        let name = number.to_string();
        let keep = sessions.keep(&many, Kind::Question, &name, bytes("x"));
        assert!(keep.await.unwrap().unwrap().mine);
    }
    let keep = sessions
        .keep(&many, Kind::Upstream, "more", bytes("x"))
        .await;
    assert_eq!(keep, Err(StoreError::NoRoom("upstream")));
    let there = sessions.keep(&many, Kind::Question, "7", bytes("y")).await;
    assert!(!there.unwrap().unwrap().mine, "what is there needs no room");
    let swap = sessions.swap_kept(&many, Kind::Question, "7", b"x", None);
    assert!(swap.await.unwrap());
    let keep = sessions.keep(&many, Kind::Upstream, "more", bytes("x"));
    assert!(keep.await.unwrap().unwrap().mine);

    let record = Bytes::from(vec![b'x'; (256 << 10) - 4]);
    let keep = sessions.keep(&large, Kind::Question, "full", record.clone());
    assert!(keep.await.unwrap().unwrap().mine);
    let keep = sessions.keep(&large, Kind::Question, "", bytes("x")).await;
    assert_eq!(keep, Err(StoreError::NoRoom("question")));
    let longer = Some(Bytes::from(vec![b'x'; 256 << 10]));
    let swap = sessions.swap_kept(&large, Kind::Question, "full", &record, longer);
    assert_eq!(swap.await, Err(StoreError::NoRoom("question")));
    let shorter = Some(bytes("short"));
    let swap = sessions.swap_kept(&large, Kind::Question, "full", &record, shorter);
    assert!(swap.await.unwrap());
    let keep = sessions.keep(&large, Kind::Question, "", bytes("x"));
    assert!(
        keep.await.unwrap().unwrap().mine,
        "its bytes are free again"
    );
}

pub(crate) async fn what_is_kept_ends_with_its_session_and_is_handed_out(
    make: Make<'_>,
    clock: &ManualClock,
) {
    let sessions = make(Lifetimes::default());
    let mine = key("acme", "alice", "s");
    open(&sessions, &mine).await;
    let keep = sessions.keep(&mine, Kind::Upstream, "u", bytes("one"));
    keep.await.unwrap().unwrap();
    let ended = sessions.end(&mine).await.unwrap().unwrap();
    let expected = Belonging {
        kind: Kind::Upstream,
        name: "u".to_owned(),
        record: bytes("one"),
    };
    assert_eq!(ended.belongings, [expected]);
    let keep = sessions.keep(&mine, Kind::Upstream, "u", bytes("late"));
    assert_eq!(keep.await.unwrap(), None);
    open(&sessions, &mine).await;
    let found = sessions.kept(&mine, Kind::Upstream, "u").await;
    assert_eq!(
        found.unwrap(),
        None,
        "a new session of that id has none of it"
    );
    pass(clock, DAY).await;
    let ended = sessions.sweep().await.unwrap();
    assert_eq!((ids(&ended), ended[0].belongings.len()), (vec!["s"], 0));
}
