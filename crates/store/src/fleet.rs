//! The processes that share one store, and what they tell each other through it.
//!
//! A *replica* is one process, from its start to its end. It lives as long as it says so every few
//! seconds; who has not for a while is dead, and others go on with what it owned. The name of a
//! replica is never used again, so one that was dead never lives again; a process that was stopped
//! and goes on finds that it may not act, and that others have fenced it off.
//!
//! [`Alone`] is the form for one process. The form over Redis is
//! [`RedisFleet`](crate::redis::RedisFleet).

use std::fmt::{self, Debug};
use std::sync::Arc;

use bytes::Bytes;

use crate::sessions::done;
use crate::{Pending, random_digits};

/// The name of one process, new with each start.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId(Arc<str>);

impl ReplicaId {
    const LENGTH: std::ops::RangeInclusive<usize> = 8..=32;

    /// 8 to 32 of `a-z`, `0-9` and `-`.
    pub fn new(text: &str) -> Option<Self> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = Self::LENGTH.contains(&text.len()) && text.bytes().all(good);
        fits.then(|| Self(Arc::from(text)))
    }

    /// One that no other process has.
    pub fn random() -> Self {
        Self(Arc::from(random_digits::<10>()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is known of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// It said so within its lease.
    Alive,
    /// It did not, although the store was there for it to say so. It acts no more: its own lease is
    /// over as well.
    Dead,
    /// It did not, and the store was away meanwhile, or this process was: wait.
    Unknown,
}

/// A command for this replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What the sender said.
    pub bytes: Bytes,
    /// For [`Fleet::done`].
    pub token: Token,
}

/// Names a command until it is done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Token {
    /// Whose inbox it is in.
    pub(crate) inbox: ReplicaId,
    pub(crate) id: Bytes,
}

/// The fleet, as one of its replicas sees it.
///
/// Commands and names are small; what is in them is their senders' affair. A name that is owned is
/// whatever its owner will be found by: a slot, a stream.
pub trait Fleet: Debug + Send + Sync + 'static {
    /// Who this process is.
    fn replica(&self) -> &ReplicaId;

    /// Whether there can be no other, so that nobody needs to be told anything.
    fn is_alone(&self) -> bool;

    /// Whether that replica lives.
    fn liveness<'a>(&'a self, replica: &'a ReplicaId) -> Pending<'a, Liveness>;

    /// Whether this process may act as an owner: its own lease has time left. Asked after every
    /// await, since the process may have been stopped there; it costs one reading of a clock that
    /// counts while the machine sleeps.
    fn may_act(&self) -> bool;

    /// Puts a command into the inbox of a replica; `false` when that replica does not live.
    fn send<'a>(&'a self, to: &'a ReplicaId, command: Bytes) -> Pending<'a, bool>;

    /// Puts it into the inbox of every other replica that lives.
    fn broadcast(&self, command: Bytes) -> Pending<'_, ()>;

    /// The next command for this replica; waits for one. What is not [`done`](Fleet::done) in two
    /// seconds comes again. One caller at a time.
    fn receive(&self) -> Pending<'_, Command>;

    /// The command has had its effect and does not come again.
    fn done(&self, token: Token) -> Pending<'_, ()>;

    /// The other replicas that are remembered; some of them may be dead.
    fn others(&self) -> Pending<'_, Vec<ReplicaId>> {
        done(Ok(vec![]))
    }

    /// The replicas that are dead and may have left something.
    fn dead(&self) -> Pending<'_, Vec<ReplicaId>>;

    /// What a dead replica has received and not done, oldest first. Handed to one caller; another
    /// gets what that one has not done after half a minute.
    fn leftovers<'a>(&'a self, dead: &'a ReplicaId) -> Pending<'a, Vec<Command>>;

    /// Writes down that this replica owns something, for those who come after it.
    fn owns(&self, name: Bytes) -> Pending<'_, ()>;

    /// That replica does not own it any more.
    fn disowns<'a>(&'a self, replica: &'a ReplicaId, name: Bytes) -> Pending<'a, ()>;

    /// What that replica owns, at most `max`, in no order.
    fn owned_by<'a>(&'a self, replica: &'a ReplicaId, max: usize) -> Pending<'a, Vec<Bytes>>;

    /// This process ends: nobody needs to wait for its lease. It owns nothing from now on, and
    /// [`may_act`](Fleet::may_act) is false.
    fn leave(&self) -> Pending<'_, ()>;
}

/// A fleet of one process. Every other process is dead: one that is named was here before.
#[derive(Debug)]
pub struct Alone(ReplicaId);

impl Alone {
    /// This process.
    pub fn new() -> Self {
        Self(ReplicaId::random())
    }
}

impl Default for Alone {
    fn default() -> Self {
        Self::new()
    }
}

impl Fleet for Alone {
    fn replica(&self) -> &ReplicaId {
        &self.0
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn liveness<'a>(&'a self, replica: &'a ReplicaId) -> Pending<'a, Liveness> {
        done(Ok(if *replica == self.0 {
            Liveness::Alive
        } else {
            Liveness::Dead
        }))
    }

    fn may_act(&self) -> bool {
        true
    }

    fn send<'a>(&'a self, _to: &'a ReplicaId, _command: Bytes) -> Pending<'a, bool> {
        done(Ok(false))
    }

    fn broadcast(&self, _command: Bytes) -> Pending<'_, ()> {
        done(Ok(()))
    }

    fn receive(&self) -> Pending<'_, Command> {
        Box::pin(std::future::pending())
    }

    fn done(&self, _token: Token) -> Pending<'_, ()> {
        done(Ok(()))
    }

    fn dead(&self) -> Pending<'_, Vec<ReplicaId>> {
        done(Ok(vec![]))
    }

    fn leftovers<'a>(&'a self, _dead: &'a ReplicaId) -> Pending<'a, Vec<Command>> {
        done(Ok(vec![]))
    }

    fn owns(&self, _name: Bytes) -> Pending<'_, ()> {
        done(Ok(()))
    }

    fn disowns<'a>(&'a self, _replica: &'a ReplicaId, _name: Bytes) -> Pending<'a, ()> {
        done(Ok(()))
    }

    fn owned_by<'a>(&'a self, _replica: &'a ReplicaId, _max: usize) -> Pending<'a, Vec<Bytes>> {
        done(Ok(vec![]))
    }

    fn leave(&self) -> Pending<'_, ()> {
        done(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_named_by_few_harmless_characters() {
        let random = ReplicaId::random();
        assert_eq!(ReplicaId::new(random.as_str()), Some(random.clone()));
        assert_ne!(random, ReplicaId::random());
        for bad in [
            "",
            "short",
            "UPPERCASE",
            "with:colon",
            "{braces}",
            "a\nbcdefgh",
        ] {
            assert_eq!(ReplicaId::new(bad), None, "{bad}");
        }
        assert_eq!(ReplicaId::new(&"a".repeat(33)), None);
    }

    #[tokio::test]
    async fn alone_every_other_process_was_before() {
        let fleet = Alone::new();
        let own = fleet.liveness(fleet.replica()).await;
        assert_eq!(own, Ok(Liveness::Alive));
        let other = ReplicaId::random();
        assert_eq!(fleet.liveness(&other).await, Ok(Liveness::Dead));
        let sent = fleet.send(&other, Bytes::from_static(b"hello")).await;
        assert_eq!(sent, Ok(false));
    }
}
