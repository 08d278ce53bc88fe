//! The sessions of one tenant in memory: pure bookkeeping, time comes in as an argument.
//!
//! One [`Held`] owns all there is of a session. The orders beside the table (least recently used,
//! oldest) hold ids only and are changed together with it, in the few functions at the end.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use vestibule_terms::SessionId;

use crate::belongings::Belongings;
use crate::{
    Belonging, Caps, EndReason, Ended, Lifetimes, Opening, SessionKey, State, StoreError, Stored,
    Update,
};

/// One reading of both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    pub(crate) unix_millis: u64,
}

impl Now {
    /// When that moment of the other clock was.
    fn at(self, unix_millis: u64) -> Instant {
        let ago = Duration::from_millis(self.unix_millis.saturating_sub(unix_millis));
        self.instant.checked_sub(ago).unwrap_or(self.instant)
    }
}

#[derive(Debug)]
struct Held {
    key: SessionKey,
    opening: Arc<Opening>,
    state: Arc<State>,
    version: u64,
    belongings: Belongings,
    streams: usize,
    born: Instant,
    born_turn: u64,
    seen: Instant,
    seen_unix: u64,
    /// The last use that is known on disk.
    noted_unix: u64,
    /// Its place in the order of use; current only while no stream is open.
    seen_turn: u64,
}

impl Held {
    fn stored(&self) -> Stored {
        Stored {
            key: self.key.clone(),
            opening: Arc::clone(&self.opening),
            state: Arc::clone(&self.state),
            version: self.version,
            last_seen: self.seen_unix,
            streams_open: self.streams,
        }
    }

    fn over(&self, lifetimes: &Lifetimes, now: Instant) -> Option<EndReason> {
        if lifetimes
            .age
            .is_some_and(|age| now.saturating_duration_since(self.born) >= age)
        {
            return Some(EndReason::Age);
        }
        let idle = now.saturating_duration_since(self.seen);
        (self.streams == 0 && idle >= lifetimes.idle).then_some(EndReason::Idle)
    }
}

/// What one principal has.
#[derive(Debug, Default)]
struct Share {
    count: usize,
    idle: BTreeMap<u64, SessionId>,
}

/// The sessions of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Table {
    sessions: HashMap<SessionId, Held>,
    /// Sessions without open streams, least recently used first.
    idle: BTreeMap<u64, SessionId>,
    /// All sessions, oldest first.
    ages: BTreeMap<u64, SessionId>,
    shares: HashMap<Arc<str>, Share>,
    turn: u64,
}

impl Table {
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The session of that name, if its time is not over.
    fn live(&self, key: &SessionKey, lifetimes: &Lifetimes, now: Instant) -> Option<&Held> {
        let held = self.sessions.get(key.id())?;
        (held.key == *key && held.over(lifetimes, now).is_none()).then_some(held)
    }

    pub(crate) fn get(&self, key: &SessionKey, life: &Lifetimes, now: Instant) -> Option<Stored> {
        self.live(key, life, now).map(Held::stored)
    }

    pub(crate) fn create(
        &mut self,
        key: SessionKey,
        opening: Opening,
        caps: Caps,
        now: Now,
    ) -> Result<(Stored, Vec<Ended>), StoreError> {
        if self.sessions.contains_key(key.id()) {
            return Err(StoreError::Exists);
        }
        let evicted = self.make_room(&key, caps)?;
        let turn = self.next_turn();
        let held = Held {
            key: key.clone(),
            opening: Arc::new(opening),
            state: Arc::default(),
            version: 1,
            belongings: Belongings::default(),
            streams: 0,
            born: now.instant,
            born_turn: turn,
            seen: now.instant,
            seen_unix: now.unix_millis,
            noted_unix: now.unix_millis,
            seen_turn: turn,
        };
        let stored = held.stored();
        self.enter(held);
        Ok((stored, evicted))
    }

    /// Takes back sessions of an earlier process, with the time they have left. Their streams went
    /// with that process.
    pub(crate) fn restore(&mut self, mut all: Vec<Stored>, now: Now) {
        all.sort_by_key(|stored| stored.opening.created);
        let mut held: Vec<Held> = all
            .into_iter()
            .map(|stored| Held {
                born: now.at(stored.opening.created),
                born_turn: self.next_turn(),
                seen: now.at(stored.last_seen),
                seen_unix: stored.last_seen,
                noted_unix: stored.last_seen,
                key: stored.key,
                opening: stored.opening,
                state: stored.state,
                version: stored.version,
                belongings: Belongings::default(),
                streams: 0,
                seen_turn: 0,
            })
            .collect();
        held.sort_by_key(|held| held.seen_unix);
        for mut held in held {
            held.seen_turn = self.next_turn();
            self.enter(held);
        }
    }

    /// Every session, also one whose time is over.
    pub(crate) fn all(&self) -> Vec<Stored> {
        self.sessions.values().map(Held::stored).collect()
    }

    /// Every session with what belongs to it.
    pub(crate) fn everything(&self) -> Vec<(Stored, Belongings)> {
        let all = self.sessions.values();
        all.map(|held| (held.stored(), held.belongings.clone()))
            .collect()
    }

    /// What belongs to the session, if its time is not over.
    pub(crate) fn belongings(
        &mut self,
        key: &SessionKey,
        life: &Lifetimes,
        now: Instant,
    ) -> Option<&mut Belongings> {
        self.live(key, life, now)?;
        let held = self.sessions.get_mut(key.id())?;
        Some(&mut held.belongings)
    }

    /// Takes back a belonging of an earlier process; `None` where its session is no more.
    pub(crate) fn restore_belonging(&mut self, key: &SessionKey, one: Belonging) -> Option<()> {
        let held = self.sessions.get_mut(key.id())?;
        let owned = held.key == *key;
        owned.then(|| held.belongings.put(one.kind, &one.name, one.record))
    }

    /// The last use of the sessions that were used since this was last asked. One with an open
    /// stream is used all the time.
    pub(crate) fn take_seen(&mut self, unix_millis: u64) -> Vec<(SessionKey, u64)> {
        let mut seen = Vec::new();
        for held in self.sessions.values_mut() {
            let last = if held.streams > 0 {
                unix_millis
            } else {
                held.seen_unix
            };
            if std::mem::replace(&mut held.noted_unix, last) != last {
                seen.push((held.key.clone(), last));
            }
        }
        seen
    }

    /// Ends as many sessions as one more needs, or none at all where that is not enough.
    fn make_room(&mut self, key: &SessionKey, caps: Caps) -> Result<Vec<Ended>, StoreError> {
        let (count, idle) = match self.shares.get(key.principal()) {
            Some(share) => (share.count, share.idle.len()),
            None => (0, 0),
        };
        let of_principal = (count + 1).saturating_sub(caps.per_principal);
        if of_principal > idle {
            return Err(StoreError::PrincipalFull(count));
        }
        let total = self.sessions.len();
        let of_tenant = (total + 1 - of_principal).saturating_sub(caps.per_tenant);
        if of_tenant > self.idle.len() - of_principal {
            return Err(StoreError::TenantFull(total));
        }
        let mut evicted = Vec::with_capacity(of_principal + of_tenant);
        for _ in 0..of_principal {
            let share = self.shares.get(key.principal());
            let oldest = share.and_then(|share| share.idle.values().next()).cloned();
            evicted.extend(oldest.and_then(|id| self.remove(&id, EndReason::Evicted)));
        }
        for _ in 0..of_tenant {
            let oldest = self.idle.values().next().cloned();
            evicted.extend(oldest.and_then(|id| self.remove(&id, EndReason::Evicted)));
        }
        Ok(evicted)
    }

    pub(crate) fn touch(&mut self, key: &SessionKey, life: &Lifetimes, now: Now) -> Option<Stored> {
        self.live(key, life, now.instant)?;
        self.seen(key.id(), now);
        self.get(key, life, now.instant)
    }

    pub(crate) fn update(
        &mut self,
        key: &SessionKey,
        version: u64,
        state: State,
        live: (&Lifetimes, Instant),
    ) -> Update {
        if self.live(key, live.0, live.1).is_none() {
            return Update::Gone;
        }
        let Some(held) = self.sessions.get_mut(key.id()) else {
            return Update::Gone;
        };
        if held.version != version {
            return Update::Conflict(held.stored());
        }
        held.version += 1;
        held.state = Arc::new(state);
        Update::Done(held.stored())
    }

    pub(crate) fn stream_opened(
        &mut self,
        key: &SessionKey,
        life: &Lifetimes,
        now: Now,
    ) -> Option<Stored> {
        self.live(key, life, now.instant)?;
        self.seen(key.id(), now);
        let held = self.sessions.get_mut(key.id())?;
        held.streams += 1;
        if held.streams == 1 {
            let turn = held.seen_turn;
            self.leave_idle(key.principal(), turn);
        }
        self.get(key, life, now.instant)
    }

    pub(crate) fn stream_closed(&mut self, key: &SessionKey, now: Now) {
        let Some(held) = self.sessions.get_mut(key.id()) else {
            return; // the session ended while the stream was open
        };
        if held.key != *key || held.streams == 0 {
            return;
        }
        held.streams -= 1;
        if held.streams > 0 {
            return;
        }
        let turn = self.next_turn();
        if let Some(held) = self.sessions.get_mut(key.id()) {
            held.seen = now.instant;
            held.seen_unix = now.unix_millis;
            held.seen_turn = turn;
        }
        self.enter_idle(key, turn);
    }

    pub(crate) fn end(
        &mut self,
        key: &SessionKey,
        life: &Lifetimes,
        now: Instant,
    ) -> Option<Ended> {
        self.live(key, life, now)?;
        self.remove(key.id(), EndReason::Requested)
    }

    /// Ends what is over; looks at nothing else.
    pub(crate) fn sweep(&mut self, life: &Lifetimes, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        while let Some(id) = self.next_over(life, now) {
            let reason = self.sessions.get(&id).and_then(|held| held.over(life, now));
            let Some(reason) = reason else { break };
            ended.extend(self.remove(&id, reason));
        }
        ended
    }

    fn next_over(&self, life: &Lifetimes, now: Instant) -> Option<SessionId> {
        let oldest = self.ages.values().next();
        let longest_idle = self.idle.values().next();
        [oldest, longest_idle]
            .into_iter()
            .flatten()
            .find(|id| {
                self.sessions
                    .get(*id)
                    .is_some_and(|held| held.over(life, now).is_some())
            })
            .cloned()
    }

    pub(crate) fn count(&self, principal: Option<&str>) -> usize {
        match principal {
            Some(principal) => self.shares.get(principal).map_or(0, |share| share.count),
            None => self.sessions.len(),
        }
    }

    pub(crate) fn list(&self, max: usize, life: &Lifetimes, now: Instant) -> Vec<Stored> {
        self.ages
            .values()
            .filter_map(|id| self.sessions.get(id))
            .filter(|held| held.over(life, now).is_none())
            .take(max)
            .map(Held::stored)
            .collect()
    }

    // === the only places that change more than one of the tables ===

    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    fn enter(&mut self, held: Held) {
        let (id, key) = (held.key.id().clone(), held.key.clone());
        let (born, seen) = (held.born_turn, held.seen_turn);
        self.sessions.insert(id.clone(), held);
        self.ages.insert(born, id);
        self.shares
            .entry(Arc::clone(key.principal()))
            .or_default()
            .count += 1;
        self.enter_idle(&key, seen);
    }

    fn seen(&mut self, id: &SessionId, now: Now) {
        let turn = self.next_turn();
        let Some(held) = self.sessions.get_mut(id) else {
            return;
        };
        held.seen = now.instant;
        held.seen_unix = now.unix_millis;
        if held.streams > 0 {
            return;
        }
        let before = std::mem::replace(&mut held.seen_turn, turn);
        let key = held.key.clone();
        self.leave_idle(key.principal(), before);
        self.enter_idle(&key, turn);
    }

    fn enter_idle(&mut self, key: &SessionKey, turn: u64) {
        self.idle.insert(turn, key.id().clone());
        if let Some(share) = self.shares.get_mut(key.principal()) {
            share.idle.insert(turn, key.id().clone());
        }
    }

    fn leave_idle(&mut self, principal: &str, turn: u64) {
        self.idle.remove(&turn);
        if let Some(share) = self.shares.get_mut(principal) {
            share.idle.remove(&turn);
        }
    }

    fn remove(&mut self, id: &SessionId, reason: EndReason) -> Option<Ended> {
        let held = self.sessions.remove(id)?;
        self.ages.remove(&held.born_turn);
        if held.streams == 0 {
            self.leave_idle(held.key.principal(), held.seen_turn);
        }
        if let Some(share) = self.shares.get_mut(held.key.principal()) {
            share.count -= 1;
            if share.count == 0 {
                self.shares.remove(held.key.principal());
            }
        }
        Some(Ended {
            session: held.stored(),
            reason,
            belongings: held.belongings.into_all(),
        })
    }
}

#[cfg(test)]
impl Table {
    /// Case 65: the tables agree, and none holds anything of a session that is gone.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.ages.len(), self.sessions.len());
        let idle = self
            .sessions
            .values()
            .filter(|held| held.streams == 0)
            .count();
        assert_eq!(self.idle.len(), idle);
        let counted: usize = self.shares.values().map(|share| share.count).sum();
        assert_eq!(counted, self.sessions.len());
        let shared: usize = self.shares.values().map(|share| share.idle.len()).sum();
        assert_eq!(shared, idle);
        for (id, held) in &self.sessions {
            assert_eq!(self.ages.get(&held.born_turn), Some(id));
            let share = &self.shares[held.key.principal()];
            let expected = (held.streams == 0).then_some(id);
            assert_eq!(self.idle.get(&held.seen_turn), expected);
            assert_eq!(share.idle.get(&held.seen_turn), expected);
        }
    }
}
