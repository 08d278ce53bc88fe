//! What all clients share: doors, tenants, what they wrote down, and which calls are open where.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::history::{AnswerRecord, CallRecord, CancelRecord, Forgery, NewsRecord, Seat};
use crate::net::Balancer;

/// Event ids of before that forgeries are made of.
const KEPT_IDS: usize = 256;

/// One tenant and the credential of its one principal. All of them have the same subject, so that
/// nothing but the tenant tells them apart.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) name: &'static str,
    pub(crate) key: String,
    /// What marks its messages.
    pub(crate) canary: String,
}

/// What clients wrote down.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) calls: Vec<CallRecord>,
    pub(crate) news: Vec<NewsRecord>,
    pub(crate) answers: Vec<AnswerRecord>,
    pub(crate) cancels: Vec<CancelRecord>,
    pub(crate) forgeries: Vec<Forgery>,
    pub(crate) lost_sessions: Vec<String>,
}

/// A call that has an id and no answer yet.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    owner: Option<Seat>,
    reader: Option<Seat>,
}

/// An event id and whose it is.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) tenant: usize,
    pub(super) number: usize,
    pub(super) path: String,
    pub(super) session: String,
    pub(super) id: String,
}

/// The clients' world.
#[derive(Debug)]
pub(crate) struct World {
    /// Where faults of connections happen.
    pub(super) rough: SocketAddr,
    /// Where they do not: sessions are opened here.
    pub(super) calm: SocketAddr,
    pub(super) tenants: Vec<Tenant>,
    pub(super) seed: u64,
    /// How long the last calls may take.
    last_words: Duration,
    balancer: Arc<Balancer>,
    records: Mutex<Records>,
    open: Mutex<HashMap<String, Open>>,
    ids: Mutex<VecDeque<Seen>>,
    /// True when no more work is to be begun.
    over: watch::Sender<bool>,
    sessions: AtomicUsize,
    calls: AtomicU64,
}

impl World {
    /// Clients of these tenants, at these two doors.
    #[must_use]
    pub(crate) fn new(
        (rough, calm): (SocketAddr, SocketAddr),
        balancer: Arc<Balancer>,
        tenants: Vec<Tenant>,
        seed: u64,
        last_words: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            rough,
            calm,
            tenants,
            seed,
            last_words,
            balancer,
            records: Mutex::default(),
            open: Mutex::default(),
            ids: Mutex::default(),
            over: watch::Sender::new(false),
            sessions: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
        })
    }

    /// How many tenants there are.
    #[must_use]
    pub(crate) fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// No more work is begun; what runs goes on to its end.
    pub(crate) fn finish(&self) {
        self.over.send_replace(true);
    }

    /// Everything that was written down.
    pub(crate) fn take_records(&self) -> Records {
        std::mem::take(&mut *lock(&self.records))
    }

    /// Replicas with the number of calls that run there (`owners`) or are read there.
    #[must_use]
    pub(crate) fn open_calls(&self, owners: bool) -> HashMap<Seat, usize> {
        let mut count = HashMap::new();
        for open in lock(&self.open).values() {
            let seat = if owners { open.owner } else { open.reader };
            if let Some(seat) = seat {
                *count.entry(seat).or_default() += 1;
            }
        }
        count
    }

    /// Calls that run or are read at a replica.
    #[must_use]
    pub(crate) fn open_at(&self, seat: Seat) -> usize {
        let open = lock(&self.open);
        let there = open
            .values()
            .filter(|open| open.owner == Some(seat) || open.reader == Some(seat));
        there.count()
    }

    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    pub(super) async fn until_over(&self) {
        // the sender is ours: it cannot go before
        let mut over = self.over.subscribe();
        let _over = over.wait_for(|over| *over).await;
    }

    /// Everything that was begun ought to have ended.
    pub(super) async fn until_too_late(&self) {
        self.until_over().await;
        sleep(self.last_words).await;
    }

    pub(super) fn next_session(&self) -> usize {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn route(&self, local: SocketAddr) -> Option<Seat> {
        self.balancer.route(local)
    }

    pub(super) fn write(&self, write: impl FnOnce(&mut Records)) {
        write(&mut lock(&self.records));
    }

    /// A call with an id: who runs it, who reads it.
    pub(super) fn set_open(&self, key: &str, owner: Option<Seat>, reader: Option<Seat>) {
        lock(&self.open).insert(key.to_owned(), Open { owner, reader });
    }

    pub(super) fn set_closed(&self, key: &str) {
        lock(&self.open).remove(key);
    }

    pub(super) fn keep_id(&self, seen: Seen) {
        let mut ids = lock(&self.ids);
        ids.push_back(seen);
        if ids.len() > KEPT_IDS {
            ids.pop_front();
        }
    }

    pub(super) fn ids(&self) -> Vec<Seen> {
        lock(&self.ids).iter().cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
