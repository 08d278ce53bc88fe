//! What this replica has lately seen of sessions.
//!
//! For a second it is as good as the store, which spares a busy session most of its look-ups: what
//! another replica does to a session is seen a second later at most. While the store is away, it is all
//! there is, and sessions that were seen in the last minutes go on from it.

use dashmap::DashMap;
use vestibule_terms::FastHash;

use super::record::Found;
use crate::{Lifetimes, SessionKey, Stored};

/// So long, in milliseconds, it is as good as the store; and a use as often is written down.
const FRESH: u64 = 1_000;
/// So long it is good enough while the store is away.
const GRACE: u64 = 5 * 60 * 1_000;
/// A use is noted in the index as often.
const INDEX_EVERY: u64 = 15_000;
/// How many sessions are remembered.
const MOST: usize = 65_536;

#[derive(Debug, Clone)]
struct Seen {
    found: Found,
    /// When the store said so.
    confirmed: u64,
    /// It may have been changed since, by a command that got no answer.
    doubtful: bool,
    /// When the last use was written down by this replica, in the session and in the index.
    noted: Option<u64>,
    indexed: Option<u64>,
}

impl Seen {
    /// A clock that was set back makes everything old.
    fn within(at: u64, now: u64, limit: u64) -> bool {
        (at..at.saturating_add(limit)).contains(&now)
    }

    fn lives(&self, now: u64, lifetimes: &Lifetimes) -> bool {
        let since = |at: u64| u128::from(now.saturating_sub(at));
        let aged = lifetimes
            .age
            .is_some_and(|age| since(self.found.born) >= age.as_millis());
        let stored = &self.found.stored;
        let idle =
            stored.streams_open == 0 && since(stored.last_seen) >= lifetimes.idle.as_millis();
        !aged && !idle
    }
}

#[derive(Debug, Default)]
pub(super) struct Cache(DashMap<SessionKey, Seen, FastHash>);

impl Cache {
    /// The session, if what is known of it is fresh and its use, if it counts as one, need not be
    /// written down yet.
    pub(super) fn fresh(
        &self,
        key: &SessionKey,
        counts: bool,
        now: u64,
        lifetimes: &Lifetimes,
    ) -> Option<Stored> {
        let mut seen = self.0.get_mut(key)?;
        let noted = seen.noted.is_some_and(|at| Seen::within(at, now, FRESH));
        let fresh = Seen::within(seen.confirmed, now, FRESH) && !seen.doubtful;
        let fresh = fresh && (noted || !counts);
        if !fresh || !seen.lives(now, lifetimes) {
            return None;
        }
        if counts {
            let last = &mut seen.found.stored.last_seen;
            *last = now.max(*last);
        }
        Some(seen.found.stored.clone())
    }

    /// The session, if it was seen lately enough to go on without the store.
    pub(super) fn without_store(
        &self,
        key: &SessionKey,
        now: u64,
        lifetimes: &Lifetimes,
    ) -> Option<Stored> {
        let seen = self.0.get(key)?;
        let known = Seen::within(seen.confirmed, now, GRACE) && seen.lives(now, lifetimes);
        known.then(|| seen.found.stored.clone())
    }

    /// Whether a use ought to be noted in the index.
    pub(super) fn index_is_due(&self, key: &SessionKey, now: u64) -> bool {
        let indexed = self.0.get(key).and_then(|seen| seen.indexed);
        !indexed.is_some_and(|at| Seen::within(at, now, INDEX_EVERY))
    }

    /// The index knows of a use.
    pub(super) fn indexed(&self, key: &SessionKey, now: u64) {
        if let Some(mut seen) = self.0.get_mut(key) {
            seen.indexed = Some(now);
        }
    }

    /// What the store has said, unless something newer is known already.
    pub(super) fn put(&self, key: &SessionKey, found: &Found, now: u64, counted: bool) {
        let noted = counted.then_some(now);
        if let Some(mut seen) = self.0.get_mut(key) {
            if seen.found.stored.version <= found.stored.version {
                // what is settled is in memory once, with whoever has it already
                let before = std::mem::replace(&mut seen.found, found.clone()).stored;
                let stored = &mut seen.found.stored;
                (stored.key, stored.opening) = (before.key, before.opening);
                if stored.version == before.version {
                    stored.state = before.state;
                }
                seen.confirmed = now;
                seen.doubtful = false;
                seen.noted = noted.or(seen.noted);
            }
            return;
        }
        if self.0.len() < MOST {
            let seen = Seen {
                found: found.clone(),
                confirmed: now,
                doubtful: false,
                noted,
                indexed: None,
            };
            self.0.insert(key.clone(), seen);
        }
    }

    /// The session may have been changed: the store has to be asked, while it is there.
    pub(super) fn doubt(&self, key: &SessionKey) {
        if let Some(mut seen) = self.0.get_mut(key) {
            seen.doubtful = true;
        }
    }

    /// The session is not there, or not as it was.
    pub(super) fn remove(&self, key: &SessionKey) {
        self.0.remove(key);
    }

    /// Forgets what is too old to be good for anything.
    pub(super) fn prune(&self, now: u64) {
        self.0
            .retain(|_, seen| Seen::within(seen.confirmed, now, GRACE));
    }
}
