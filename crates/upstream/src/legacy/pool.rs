//! Which calls share an upstream session (translation rules, section 4; T43): those of one legacy
//! client session, or those of one principal and capability class. Never two principals.
//!
//! Where questions cannot be told apart by the stream they came on, a call during which the
//! upstream may ask holds its session alone; others take a further one, up to a limit, then wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use vestibule_exchange::{Capabilities, Outbound, SessionKey, Sharing};
use vestibule_terms::FastHash;

use crate::fault::Fault;
use crate::legacy::session::{PoolKey, Session};
use crate::locked;

/// Pooled sessions of one upstream over HTTP.
const POOLED_MAX: usize = 200;
/// How long an unused pooled session is kept.
const IDLE: Duration = Duration::from_secs(300);

/// How many sessions there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Sessions in all; private ones count too.
    total: usize,
    /// Whether private sessions count.
    counts_private: bool,
    /// Sessions of one key.
    per_key: usize,
}

/// The sessions of one upstream.
#[derive(Debug)]
pub(crate) struct Pool {
    bounds: Bounds,
    sessions: Mutex<HashMap<PoolKey, Vec<Arc<Session>>, FastHash>>,
    freed: Notify,
}

/// The use of a session by one call; ends when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) session: Arc<Session>,
    pool: Arc<Pool>,
    hold: bool,
}

/// What a look into the pool came to.
enum Found {
    Session(Arc<Session>),
    /// After this one has been closed, there is room.
    Evicted(Arc<Session>),
    Nothing,
}

// === impl Bounds ===

impl Bounds {
    /// Over HTTP: private sessions are bounded by the client sessions they belong to.
    pub(crate) fn http(max_sessions: usize) -> Self {
        Self {
            total: POOLED_MAX,
            counts_private: false,
            per_key: max_sessions,
        }
    }

    /// A process each.
    pub(crate) fn stdio(max_sessions: usize) -> Self {
        Self {
            total: max_sessions,
            counts_private: true,
            per_key: max_sessions,
        }
    }

    /// Lists must not be kept waiting by clients that hold processes, so theirs comes on top; but
    /// where there may be one process only, there is one.
    fn counts(&self, key: &PoolKey) -> bool {
        match key.sharing {
            Sharing::Session(_) => self.counts_private,
            Sharing::Catalog => !self.counts_private || self.total == 1,
            Sharing::Principal(_) => true,
        }
    }
}

fn is_private(key: &PoolKey) -> bool {
    matches!(key.sharing, Sharing::Session(_))
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            sessions: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// The session for a call; waits while all that could serve are held. `hold` says that the
    /// call must be the only interactive one. Sessions that had to make room are closed by `close`.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        outbound: &Outbound,
        class: Arc<Capabilities>,
        hold: bool,
        close: impl Fn(Arc<Session>),
    ) -> Lease {
        let key = PoolKey::of(&outbound.sharing, &class);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.find(&key, &class, hold) {
                Found::Session(session) => {
                    return Lease {
                        session,
                        pool: Arc::clone(self),
                        hold,
                    };
                }
                Found::Evicted(session) => close(session),
                Found::Nothing => freed.await,
            }
        }
    }

    /// The place of the session that lists are fetched with, for one that is open already.
    pub(crate) fn place(&self, sharing: Sharing, class: Arc<Capabilities>) -> Arc<Session> {
        let key = PoolKey::of(&sharing, &class);
        let mut sessions = locked(&self.sessions);
        let of_key = sessions.entry(key.clone()).or_default();
        if let Some(session) = of_key.first() {
            return Arc::clone(session);
        }
        let session = Arc::new(Session::new(key, class));
        of_key.push(Arc::clone(&session));
        session
    }

    /// The private sessions of a client session.
    pub(crate) fn of(&self, client: &SessionKey) -> Vec<Arc<Session>> {
        let key = PoolKey::private(client);
        locked(&self.sessions)
            .get(&key)
            .cloned()
            .unwrap_or_default()
    }

    /// Removes the private sessions of a client session.
    pub(crate) fn remove(&self, client: &SessionKey) -> Vec<Arc<Session>> {
        let removed = locked(&self.sessions).remove(&PoolKey::private(client));
        self.freed.notify_waiters();
        removed.unwrap_or_default()
    }

    /// Removes every session.
    pub(crate) fn remove_all(&self) -> Vec<Arc<Session>> {
        locked(&self.sessions)
            .drain()
            .flat_map(|(_, of_key)| of_key)
            .collect()
    }

    /// Removes pooled sessions that nobody has used for a while.
    pub(crate) fn remove_idle(&self) -> Vec<Arc<Session>> {
        let now = Instant::now();
        let is_idle = |session: &Arc<Session>| {
            session
                .idle_since()
                .is_some_and(|since| now - since >= IDLE)
        };
        let mut removed = Vec::new();
        let mut sessions = locked(&self.sessions);
        for (_, of_key) in sessions.iter_mut().filter(|(key, _)| !is_private(key)) {
            removed.extend(of_key.extract_if(.., |session| is_idle(session)));
        }
        sessions.retain(|_, of_key| !of_key.is_empty());
        removed
    }

    fn find(&self, key: &PoolKey, class: &Arc<Capabilities>, hold: bool) -> Found {
        let mut sessions = locked(&self.sessions);
        let of_key = sessions.get(key).map(Vec::as_slice).unwrap_or_default();
        if let Some(session) = of_key.iter().find(|session| session.take(hold)) {
            return Found::Session(Arc::clone(session));
        }
        if of_key.len() >= self.bounds.per_key {
            return Found::Nothing;
        }
        let counted = |(key, of_key): (&PoolKey, &Vec<_>)| {
            if self.bounds.counts(key) {
                of_key.len()
            } else {
                0
            }
        };
        let total: usize = sessions.iter().map(counted).sum();
        if self.bounds.counts(key) && total >= self.bounds.total {
            return self
                .evict(&mut sessions)
                .map_or(Found::Nothing, Found::Evicted);
        }
        let session = Arc::new(Session::new(key.clone(), Arc::clone(class)));
        session.take(hold);
        sessions
            .entry(key.clone())
            .or_default()
            .push(Arc::clone(&session));
        Found::Session(session)
    }

    /// Removes the pooled session that has been unused for longest.
    fn evict(
        &self,
        sessions: &mut HashMap<PoolKey, Vec<Arc<Session>>, FastHash>,
    ) -> Option<Arc<Session>> {
        let pooled = sessions
            .iter()
            .filter(|(key, _)| !is_private(key) && self.bounds.counts(key))
            .flat_map(|(_, of_key)| of_key);
        let idle = pooled.filter_map(|session| Some((session.idle_since()?, session)));
        let (_, oldest) = idle.min_by_key(|(since, _)| *since)?;
        let oldest = Arc::clone(oldest);
        let of_key = sessions.get_mut(oldest.key())?;
        of_key.retain(|session| !Arc::ptr_eq(session, &oldest));
        if of_key.is_empty() {
            sessions.remove(oldest.key());
        }
        Some(oldest)
    }
}

// === impl PoolKey ===

impl PoolKey {
    fn of(sharing: &Sharing, class: &Arc<Capabilities>) -> Self {
        match sharing {
            Sharing::Session(client) => Self::private(client),
            Sharing::Principal(_) | Sharing::Catalog => Self {
                sharing: sharing.clone(),
                class: Arc::clone(class),
            },
        }
    }

    pub(crate) fn private(client: &SessionKey) -> Self {
        Self {
            sharing: Sharing::Session(client.clone()),
            class: Arc::default(),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.session.give_back(self.hold);
        self.pool.freed.notify_waiters();
    }
}

/// A call that found no room within its time.
pub(crate) fn no_room(fault: Fault) -> Fault {
    if fault == Fault::Timeout {
        Fault::Full
    } else {
        fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::outbound;
    use futures_util::FutureExt;
    use std::cell::RefCell;
    use vestibule_terms::{Method, SessionId, TenantId};

    const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

    fn call(sharing: Sharing) -> Outbound {
        Outbound {
            sharing,
            ..outbound(Method::ToolsCall, LIST)
        }
    }

    fn principal(name: &str) -> Sharing {
        Sharing::Principal(Arc::from(name))
    }

    fn private(name: &str) -> Sharing {
        let tenant = TenantId::new("t").unwrap();
        Sharing::Session(SessionKey {
            tenant,
            session: SessionId::new(name),
        })
    }

    fn elicits() -> Arc<Capabilities> {
        Arc::new(Capabilities {
            elicit_form: true,
            ..Capabilities::default()
        })
    }

    fn now(
        pool: &Arc<Pool>,
        sharing: Sharing,
        class: &Arc<Capabilities>,
        hold: bool,
    ) -> Option<Lease> {
        let outbound = call(sharing);
        pool.acquire(&outbound, Arc::clone(class), hold, |_| {})
            .now_or_never()
    }

    /// T43, case 92: neither two principals nor two classes ever share a session.
    #[tokio::test]
    async fn t43_sessions_are_shared_within_principal_and_class_only() {
        let pool = Arc::new(Pool::new(Bounds::http(8)));
        let none = Arc::new(Capabilities::default());
        let lease = |name, class| now(&pool, principal(name), class, false).unwrap();
        let (a, b, c, d) = (
            lease("a", &none),
            lease("b", &none),
            lease("a", &elicits()),
            lease("a", &none),
        );
        assert!(!Arc::ptr_eq(&a.session, &b.session));
        assert!(!Arc::ptr_eq(&a.session, &c.session));
        assert!(Arc::ptr_eq(&a.session, &d.session));
        let one = now(&pool, private("s1"), &none, false).unwrap();
        let two = now(&pool, private("s2"), &none, false).unwrap();
        let again = now(&pool, private("s1"), &elicits(), false).unwrap();
        assert!(!Arc::ptr_eq(&one.session, &two.session));
        assert!(
            Arc::ptr_eq(&one.session, &again.session),
            "case 93: one per client session"
        );
    }

    #[tokio::test]
    async fn interactive_calls_hold_their_session_and_wait_beyond_the_limit() {
        let pool = Arc::new(Pool::new(Bounds::stdio(2)));
        let class = elicits();
        let first = now(&pool, principal("a"), &class, true).unwrap();
        let second = now(&pool, principal("a"), &class, true).unwrap();
        assert!(!Arc::ptr_eq(&first.session, &second.session));
        assert!(
            now(&pool, principal("a"), &class, true).is_none(),
            "all are held"
        );
        assert!(
            now(&pool, principal("a"), &class, false).is_some(),
            "plain calls share"
        );
        let outbound = call(principal("a"));
        let waiting = pool.acquire(&outbound, class, true, |_| {});
        tokio::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        let freed = Arc::clone(&first.session);
        drop(first);
        assert!(Arc::ptr_eq(&waiting.await.session, &freed));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_unused_pooled_session_makes_room_and_private_ones_stay() {
        let pool = Arc::new(Pool::new(Bounds::stdio(2)));
        let none = Arc::new(Capabilities::default());
        let kept = now(&pool, private("s"), &none, false).unwrap();
        drop(kept);
        drop(now(&pool, principal("a"), &none, false).unwrap());
        let closed = RefCell::new(0);
        let outbound = call(principal("b"));
        let made = pool.acquire(&outbound, Arc::clone(&none), false, |_| {
            *closed.borrow_mut() += 1
        });
        let made = made.now_or_never().unwrap();
        assert_eq!(*closed.borrow(), 1);
        assert!(
            now(&pool, principal("c"), &none, false).is_none(),
            "the rest is in use or private"
        );
        drop(made);
        tokio::time::advance(IDLE).await;
        assert_eq!(pool.remove_idle().len(), 1);
        let tenant = TenantId::new("t").unwrap();
        let client = SessionKey {
            tenant,
            session: SessionId::new("s"),
        };
        assert_eq!(pool.remove(&client).len(), 1);
    }
}
