//! A fleet of which only this process is seen, and what it says to the others.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use vestibule_store::{Alone, Command, Fleet, Liveness, Pending, ReplicaId, StoreError, Token};

/// This process and others that hear it, unless the store between them is away.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    alone: Alone,
    away: AtomicBool,
    words: Mutex<usize>,
}

impl Heard {
    pub(crate) fn be_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// How many words the others have been told.
    pub(crate) fn words(&self) -> usize {
        *self.words.lock().unwrap()
    }
}

impl Fleet for Heard {
    fn replica(&self) -> &ReplicaId {
        self.alone.replica()
    }

    fn is_alone(&self) -> bool {
        self.alone.is_alone()
    }

    fn liveness<'a>(&'a self, replica: &'a ReplicaId) -> Pending<'a, Liveness> {
        self.alone.liveness(replica)
    }

    fn may_act(&self) -> bool {
        self.alone.may_act()
    }

    fn send<'a>(&'a self, to: &'a ReplicaId, command: Bytes) -> Pending<'a, bool> {
        self.alone.send(to, command)
    }

    fn broadcast(&self, command: Bytes) -> Pending<'_, ()> {
        if self.away.load(Ordering::Relaxed) {
            let away = StoreError::Unavailable("away".to_owned());
            return Box::pin(std::future::ready(Err(away)));
        }
        *self.words.lock().unwrap() += 1;
        self.alone.broadcast(command)
    }

    fn receive(&self) -> Pending<'_, Command> {
        self.alone.receive()
    }

    fn done(&self, token: Token) -> Pending<'_, ()> {
        self.alone.done(token)
    }

    fn dead(&self) -> Pending<'_, Vec<ReplicaId>> {
        self.alone.dead()
    }

    fn leftovers<'a>(&'a self, dead: &'a ReplicaId) -> Pending<'a, Vec<Command>> {
        self.alone.leftovers(dead)
    }

    fn owns(&self, name: Bytes) -> Pending<'_, ()> {
        self.alone.owns(name)
    }

    fn disowns<'a>(&'a self, replica: &'a ReplicaId, name: Bytes) -> Pending<'a, ()> {
        self.alone.disowns(replica, name)
    }

    fn owned_by<'a>(&'a self, replica: &'a ReplicaId, max: usize) -> Pending<'a, Vec<Bytes>> {
        self.alone.owned_by(replica, max)
    }

    fn leave(&self) -> Pending<'_, ()> {
        self.alone.leave()
    }
}
