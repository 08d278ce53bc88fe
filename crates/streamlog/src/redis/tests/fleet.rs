//! A fleet in memory, whose members die when a test says so.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use vestibule_store::{Command, Fleet, Liveness, Pending, ReplicaId, StoreError, Token};

/// All members, the dead too.
#[derive(Debug, Default)]
pub(super) struct Town(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    members: Vec<ReplicaId>,
    dead: HashSet<ReplicaId>,
    owned: HashMap<ReplicaId, HashSet<Bytes>>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Member {
    me: ReplicaId,
    town: Arc<Town>,
}

impl Town {
    pub(super) fn join(town: &Arc<Self>) -> Arc<Member> {
        let me = ReplicaId::random();
        town.0.lock().unwrap().members.push(me.clone());
        Arc::new(Member {
            me,
            town: Arc::clone(town),
        })
    }

    /// How much all members together own.
    pub(super) fn owned(&self) -> usize {
        let state = self.0.lock().unwrap();
        state.owned.values().map(HashSet::len).sum()
    }
}

impl Member {
    pub(super) fn is_dead(&self, dead: bool) {
        let mut state = self.town.0.lock().unwrap();
        if dead {
            state.dead.insert(self.me.clone());
        } else {
            state.dead.remove(&self.me);
        }
    }

    fn with<T: Send + 'static>(&self, act: impl FnOnce(&mut State) -> T) -> Pending<'static, T> {
        let result: Result<T, StoreError> = Ok(act(&mut self.town.0.lock().unwrap()));
        Box::pin(std::future::ready(result))
    }
}

impl Fleet for Member {
    fn replica(&self) -> &ReplicaId {
        &self.me
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn liveness<'a>(&'a self, replica: &'a ReplicaId) -> Pending<'a, Liveness> {
        self.with(|state| {
            if state.dead.contains(replica) {
                Liveness::Dead
            } else {
                Liveness::Alive
            }
        })
    }

    fn may_act(&self) -> bool {
        !self.town.0.lock().unwrap().dead.contains(&self.me)
    }

    fn send<'a>(&'a self, _to: &'a ReplicaId, _command: Bytes) -> Pending<'a, bool> {
        self.with(|_| false)
    }

    fn broadcast(&self, _command: Bytes) -> Pending<'_, ()> {
        self.with(|_| ())
    }

    fn receive(&self) -> Pending<'_, Command> {
        Box::pin(std::future::pending())
    }

    fn done(&self, _token: Token) -> Pending<'_, ()> {
        self.with(|_| ())
    }

    fn others(&self) -> Pending<'_, Vec<ReplicaId>> {
        self.with(|state| {
            let others = state.members.iter().filter(|member| **member != self.me);
            others.cloned().collect()
        })
    }

    fn dead(&self) -> Pending<'_, Vec<ReplicaId>> {
        self.with(|state| state.dead.iter().cloned().collect())
    }

    fn leftovers<'a>(&'a self, _dead: &'a ReplicaId) -> Pending<'a, Vec<Command>> {
        self.with(|_| vec![])
    }

    fn owns(&self, name: Bytes) -> Pending<'_, ()> {
        self.with(|state| {
            state.owned.entry(self.me.clone()).or_default().insert(name);
        })
    }

    fn disowns<'a>(&'a self, replica: &'a ReplicaId, name: Bytes) -> Pending<'a, ()> {
        self.with(|state| {
            state
                .owned
                .entry(replica.clone())
                .or_default()
                .remove(&name);
        })
    }

    fn owned_by<'a>(&'a self, replica: &'a ReplicaId, max: usize) -> Pending<'a, Vec<Bytes>> {
        self.with(|state| {
            let owned = state.owned.get(replica).into_iter().flatten();
            owned.take(max).cloned().collect()
        })
    }

    fn leave(&self) -> Pending<'_, ()> {
        self.with(|_| ())
    }
}
