//! How many streams this replica has open: what the store is told of them, and whether it has heard.
//!
//! The store is told numbers, not changes, each good until a deadline and with the turn in which it was
//! said: a number may be said twice, late, or in the wrong order. The streams of a replica that is dead
//! stop counting at the deadline.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vestibule_terms::TenantId;

use crate::SessionKey;

/// So long a number is good, in milliseconds.
const GOOD: u64 = 3 * 60 * 1_000;
/// It is said again as often.
const AGAIN: u64 = 60 * 1_000;

#[derive(Debug)]
struct Local {
    open: usize,
    /// When it became so, or was last said to be so.
    at: u64,
    turn: u64,
    /// The store has not heard of this turn.
    unheard: bool,
}

/// What is to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) open: usize,
    pub(super) at: u64,
    pub(super) turn: u64,
}

impl Statement {
    /// Until when it is good.
    pub(super) fn deadline(self) -> u64 {
        if self.open == 0 {
            self.at
        } else {
            self.at + GOOD
        }
    }
}

#[derive(Debug, Default)]
struct All {
    sessions: HashMap<SessionKey, Local>,
    turn: u64,
}

impl All {
    fn change(&mut self, key: &SessionKey, now: u64, open: usize) -> Statement {
        self.turn += 1;
        let local = Local {
            open,
            at: now,
            turn: self.turn,
            unheard: true,
        };
        let statement = local.statement();
        self.sessions.insert(key.clone(), local);
        statement
    }
}

impl Local {
    fn statement(&self) -> Statement {
        Statement {
            open: self.open,
            at: self.at,
            turn: self.turn,
        }
    }
}

/// The open streams of this replica, by session.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<All>);

impl Streams {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more.
    pub(super) fn opened(&self, key: &SessionKey, now: u64) -> Statement {
        let mut all = self.lock();
        let open = all.sessions.get(key).map_or(0, |local| local.open);
        all.change(key, now, open + 1)
    }

    /// One less; `false` where there was none.
    pub(super) fn closed(&self, key: &SessionKey, now: u64) -> bool {
        let mut all = self.lock();
        let open = all.sessions.get(key).map_or(0, |local| local.open);
        if open == 0 {
            return false;
        }
        all.change(key, now, open - 1);
        true
    }

    /// What the store has not heard.
    pub(super) fn unheard(&self, key: &SessionKey) -> Option<Statement> {
        let all = self.lock();
        let local = all.sessions.get(key)?;
        local.unheard.then(|| local.statement())
    }

    /// The store has heard it.
    pub(super) fn heard(&self, key: &SessionKey, statement: Statement) {
        let mut all = self.lock();
        let Some(local) = all.sessions.get_mut(key) else {
            return;
        };
        if local.turn != statement.turn {
            return; // there is something newer to say
        }
        local.unheard = false;
        if local.open == 0 {
            all.sessions.remove(key);
        }
    }

    /// The sessions of which the store has not heard something, of that tenant or of all.
    pub(super) fn all_unheard(&self, tenant: Option<&TenantId>) -> Vec<SessionKey> {
        let all = self.lock();
        let sessions = all.sessions.iter();
        sessions
            .filter(|(key, local)| {
                local.unheard && tenant.is_none_or(|tenant| key.tenant() == tenant)
            })
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Makes what is about to get old a thing to say again.
    pub(super) fn say_again(&self, now: u64) {
        let mut all = self.lock();
        let old = |local: &Local| local.open > 0 && !(local.at..local.at + AGAIN).contains(&now);
        let due = all.sessions.iter().filter(|(_, local)| old(local));
        let due: Vec<_> = due.map(|(key, local)| (key.clone(), local.open)).collect();
        for (key, open) in due {
            all.change(&key, now, open);
        }
    }
}

#[cfg(test)]
mod tests {
    use vestibule_terms::SessionId;

    use super::*;

    #[test]
    fn what_is_said_late_does_not_undo_what_is_newer() {
        let streams = Streams::default();
        let tenant = TenantId::new("acme").unwrap();
        let key = SessionKey::new(&tenant, "alice", &SessionId::new("s"));
        let first = streams.opened(&key, 1);
        let second = streams.opened(&key, 2);
        assert!(second.turn > first.turn);
        streams.heard(&key, first);
        assert_eq!(streams.unheard(&key), Some(second));
        streams.heard(&key, second);
        assert_eq!(streams.unheard(&key), None);
        streams.say_again(2 + AGAIN);
        assert_eq!(streams.unheard(&key).unwrap().open, 2);
        assert!(streams.closed(&key, 3));
        assert!(streams.closed(&key, 4));
        assert!(!streams.closed(&key, 5));
        let none = streams.unheard(&key).unwrap();
        assert_eq!((none.open, none.deadline()), (0, 4));
        streams.heard(&key, none);
        assert!(streams.lock().sessions.is_empty());
    }
}
