//! The fleet over Redis.
//!
//! Everything of a replica is in its one slot: `alive`, which it renews and which runs out; `inbox`,
//! the stream of its commands; `own`, the names of what it owns. Which replicas there are, or were, is
//! in one sorted set of the fleet. What no process keeps alive runs out within the hour.

mod inbox;
mod lease;
mod scripts;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep, timeout};
use vestibule_terms::Clock;

use self::inbox::{Inbox, commands};
use self::lease::{Beats, now};
use super::{Key, Redis, Reply, Script, Slot, channel_of};
use crate::{Command, Fleet, Liveness, Pending, ReplicaId, StoreError, Token};

pub use self::lease::Lease;

/// What is published when there is a command.
const HINT: &[u8] = b"inbox";
/// A hint may be lost: the inbox is looked into as often anyway.
const POLL: Duration = Duration::from_secs(1);
/// How many commands are read at once.
const READ: u32 = 128;
/// How many commands may wait for a replica, and how large each may be.
const INBOX: u32 = 1_000;
const COMMAND_BYTES: usize = 256 << 10;
/// How many names a replica may own.
const OWN: u32 = 1_000_000;
/// How long a dead replica's commands are one caller's.
const CLAIM: Duration = Duration::from_secs(30);
/// What nobody renews runs out.
const NET: Duration = Duration::from_secs(60 * 60);
/// So long a replica is remembered that says nothing.
const REMEMBER: Duration = Duration::from_secs(24 * 60 * 60);

/// The [`Fleet`] of the processes that share a Redis. Dropping it ends its beats, and the lease runs
/// out.
pub struct RedisFleet {
    redis: Redis,
    clock: Arc<dyn Clock>,
    lease: Lease,
    beats: Mutex<Beats>,
    inbox: Mutex<Inbox>,
    left: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(time: Duration) -> Bytes {
    Bytes::from(time.as_millis().to_string())
}

fn number(number: impl ToString) -> Bytes {
    Bytes::from(number.to_string())
}

/// The keys of a replica.
struct Names {
    slot: Slot,
    alive: Key,
    /// Its name is never given again, so whoever has said that it goes is dead for good.
    parted: Key,
    inbox: Key,
    own: Key,
}

impl Names {
    fn of(replica: &ReplicaId) -> Self {
        let slot = Slot::of_replica(replica);
        Self {
            alive: slot.key("alive"),
            parted: slot.key("parted"),
            inbox: slot.key("inbox"),
            own: slot.key("own"),
            slot,
        }
    }
}

impl RedisFleet {
    /// Joins the fleet under the client's name; a task of its own renews the lease.
    pub fn open(redis: Redis, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::with_lease(redis, clock, Lease::default())
    }

    /// The same with another lease; everybody of a fleet must have the same.
    pub fn with_lease(redis: Redis, clock: Arc<dyn Clock>, lease: Lease) -> Arc<Self> {
        let fleet = Arc::new(Self {
            redis,
            clock,
            lease,
            beats: Mutex::default(),
            inbox: Mutex::default(),
            left: AtomicBool::new(false),
        });
        fleet.redis.spawn(keep_beating(Arc::downgrade(&fleet)));
        fleet
    }

    fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Says that this replica lives.
    async fn beat(&self) -> Result<(), StoreError> {
        if self.has_left() {
            return Err(StoreError::Unavailable("this replica has left".to_owned()));
        }
        let names = Names::of(self.replica());
        let beat = lock(&self.beats).begin(now());
        let args = vec![number(beat.number), millis(self.lease.ttl), millis(NET)];
        let keys = [names.alive, names.own, names.inbox];
        let kept = self.redis.run(&scripts::BEAT, &names.slot, &keys, args);
        let kept = kept.await?;
        if !self.has_left() {
            lock(&self.beats).end(beat, kept.count(), now(), self.lease);
        }
        Ok(())
    }

    /// Says that this replica is one of the fleet: before the first beat, so that nobody lives whom
    /// the others cannot find. Whether the fleet has had the store for a whole lease.
    async fn register(&self) -> Result<bool, StoreError> {
        let slot = Slot::of_fleet();
        let keys = ["replicas", "since", "young"].map(|suffix| slot.key(suffix));
        let args = vec![
            Bytes::copy_from_slice(self.replica().as_str().as_bytes()),
            number(self.clock.unix_millis()),
            millis(REMEMBER),
            millis(self.lease.gap()),
            millis(self.lease.ttl),
        ];
        let whole = self.redis.run(&scripts::REGISTER, &slot, &keys, args);
        Ok(whole.await?.int() == Some(1))
    }

    async fn of_fleet(
        &self,
        script: &'static Script,
        args: Vec<Bytes>,
    ) -> Result<Reply, StoreError> {
        let slot = Slot::of_fleet();
        let key = slot.key("replicas");
        self.redis.run(script, &slot, &[key], args).await
    }

    /// Every replica that is remembered, but this one.
    async fn others(&self) -> Result<Vec<ReplicaId>, StoreError> {
        let members = self.of_fleet(&scripts::MEMBERS, vec![]).await?;
        let members = members.list().iter();
        let names = members.filter_map(|name| ReplicaId::new(name.text()?));
        Ok(names.filter(|name| name != self.replica()).collect())
    }

    async fn liveness_of(&self, replica: &ReplicaId) -> Result<Liveness, StoreError> {
        let names = Names::of(replica);
        let keys = [names.alive, names.parted];
        let look = self.redis.run(&scripts::LOOK, &names.slot, &keys, vec![]);
        let look = look.await?;
        let found: Vec<_> = look.list().iter().map(Reply::int).collect();
        match found[..] {
            [_, Some(1)] => return Ok(Liveness::Dead),
            [Some(1), _] => return Ok(Liveness::Alive),
            _ => {}
        }
        // After the look: what the store had lost until then, this beat sees.
        self.beat().await?;
        let whole = self.register().await?;
        if lock(&self.beats).may_judge(now(), self.lease, whole) {
            return Ok(Liveness::Dead);
        }
        Ok(Liveness::Unknown)
    }

    async fn put(&self, to: &ReplicaId, command: Bytes) -> Result<bool, StoreError> {
        if command.len() > COMMAND_BYTES {
            return Err(StoreError::NoRoom("command"));
        }
        let names = Names::of(to);
        let args = vec![
            command,
            channel_of(to),
            Bytes::from_static(HINT),
            number(INBOX),
            millis(NET),
        ];
        let keys = [names.alive, names.inbox];
        let sent = self.redis.run(&scripts::SEND, &names.slot, &keys, args);
        match sent.await?.int() {
            Some(1) => Ok(true),
            Some(0) => Ok(false),
            _ => Err(StoreError::NoRoom("command")),
        }
    }

    async fn next(&self) -> Result<Command, StoreError> {
        loop {
            // Before the look, so that what comes after it is heard of.
            let mut hints = self.redis.hints();
            if let Some(command) = lock(&self.inbox).next(Instant::now()) {
                return Ok(command);
            }
            let names = Names::of(self.replica());
            let (keys, args) = ([names.inbox], vec![number(READ)]);
            let found = self.redis.run(&scripts::READ, &names.slot, &keys, args);
            let found = commands(self.replica(), &found.await?);
            if let Some(command) = self.take(found) {
                return Ok(command);
            }
            let _nothing_heard = timeout(POLL, hinted(&mut hints)).await.is_err();
        }
    }

    fn take(&self, found: Vec<Command>) -> Option<Command> {
        let mut inbox = lock(&self.inbox);
        inbox.fill(found, Instant::now());
        inbox.next(Instant::now())
    }

    /// Whether a dead replica has left nothing; then it is forgotten.
    async fn forget_if_empty(&self, dead: &ReplicaId) -> Result<bool, StoreError> {
        let names = Names::of(dead);
        let keys = [names.own, names.inbox];
        let left = self.redis.run(&scripts::LEFT, &names.slot, &keys, vec![]);
        let empty = left.await?.int() == Some(0);
        if empty {
            let name = Bytes::copy_from_slice(dead.as_str().as_bytes());
            self.of_fleet(&scripts::FORGET, vec![name]).await?;
        }
        Ok(empty)
    }
}

/// Until a command has come, or somebody else's hints were so many that this one may be lost.
async fn hinted(hints: &mut broadcast::Receiver<Bytes>) {
    while let Ok(hint) = hints.recv().await {
        if hint == HINT {
            return;
        }
    }
}

async fn keep_beating(fleet: Weak<RedisFleet>) {
    loop {
        let Some(living) = fleet.upgrade().filter(|fleet| !fleet.has_left()) else {
            return;
        };
        let done = async {
            living.register().await?;
            living.beat().await
        };
        let lease = living.lease;
        let pause = match done.await {
            Ok(()) => lease.renew,
            Err(_) => lease.retry(),
        };
        drop(living);
        sleep(pause).await;
    }
}

impl Fleet for RedisFleet {
    fn replica(&self) -> &ReplicaId {
        self.redis.replica()
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn liveness<'a>(&'a self, replica: &'a ReplicaId) -> Pending<'a, Liveness> {
        Box::pin(async move {
            match self.liveness_of(replica).await {
                Err(StoreError::Unavailable(_)) => Ok(Liveness::Unknown),
                known => known,
            }
        })
    }

    fn may_act(&self) -> bool {
        lock(&self.beats).may_act(now())
    }

    fn send<'a>(&'a self, to: &'a ReplicaId, command: Bytes) -> Pending<'a, bool> {
        Box::pin(self.put(to, command))
    }

    fn broadcast(&self, command: Bytes) -> Pending<'_, ()> {
        Box::pin(async move {
            let others = self.others().await?;
            let sent = others.iter().map(|to| self.put(to, command.clone()));
            let sent = join_all(sent).await;
            sent.into_iter().try_for_each(|sent| sent.map(drop))
        })
    }

    fn receive(&self) -> Pending<'_, Command> {
        Box::pin(self.next())
    }

    fn done(&self, token: Token) -> Pending<'_, ()> {
        Box::pin(async move {
            let names = Names::of(&token.inbox);
            let (keys, args) = ([names.inbox], vec![token.id]);
            let done = self.redis.run(&scripts::DONE, &names.slot, &keys, args);
            done.await.map(drop)
        })
    }

    fn others(&self) -> Pending<'_, Vec<ReplicaId>> {
        Box::pin(self.others())
    }

    fn dead(&self) -> Pending<'_, Vec<ReplicaId>> {
        Box::pin(async move {
            let mut dead = Vec::new();
            for replica in self.others().await? {
                let is_dead = self.liveness_of(&replica).await? == Liveness::Dead;
                if is_dead && !self.forget_if_empty(&replica).await? {
                    dead.push(replica);
                }
            }
            Ok(dead)
        })
    }

    fn leftovers<'a>(&'a self, dead: &'a ReplicaId) -> Pending<'a, Vec<Command>> {
        Box::pin(async move {
            if self.liveness_of(dead).await? != Liveness::Dead {
                return Ok(vec![]);
            }
            let names = Names::of(dead);
            let keys = [names.alive, names.slot.key("claim"), names.inbox];
            let me = Bytes::copy_from_slice(self.replica().as_str().as_bytes());
            let args = vec![me, millis(CLAIM), number(READ)];
            let found = self
                .redis
                .run(&scripts::LEFTOVERS, &names.slot, &keys, args);
            Ok(commands(dead, &found.await?))
        })
    }

    fn owns(&self, name: Bytes) -> Pending<'_, ()> {
        Box::pin(async move {
            let names = Names::of(self.replica());
            let (keys, args) = ([names.own], vec![name, number(OWN), millis(NET)]);
            let owned = self.redis.run(&scripts::OWN, &names.slot, &keys, args);
            match owned.await?.int() {
                Some(1) => Ok(()),
                _ => Err(StoreError::NoRoom("name that a replica owns")),
            }
        })
    }

    fn disowns<'a>(&'a self, replica: &'a ReplicaId, name: Bytes) -> Pending<'a, ()> {
        Box::pin(async move {
            let names = Names::of(replica);
            let keys = [names.own];
            let gone = self
                .redis
                .run(&scripts::DISOWN, &names.slot, &keys, vec![name]);
            gone.await.map(drop)
        })
    }

    fn owned_by<'a>(&'a self, replica: &'a ReplicaId, max: usize) -> Pending<'a, Vec<Bytes>> {
        Box::pin(async move {
            let names = Names::of(replica);
            let (keys, args) = ([names.own], vec![number(max)]);
            let owned = self.redis.run(&scripts::OWNED, &names.slot, &keys, args);
            let owned = owned.await?.into_list().into_iter();
            Ok(owned.filter_map(|name| name.bytes().cloned()).collect())
        })
    }

    fn leave(&self) -> Pending<'_, ()> {
        self.left.store(true, Ordering::Release);
        lock(&self.beats).stop();
        Box::pin(async move {
            let names = Names::of(self.replica());
            let (keys, args) = ([names.alive, names.parted], vec![millis(NET)]);
            let gone = self.redis.run(&scripts::LEAVE, &names.slot, &keys, args);
            gone.await.map(drop)
        })
    }
}

impl fmt::Debug for RedisFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFleet")
            .field("replica", self.replica())
            .field("may_act", &self.may_act())
            .finish_non_exhaustive()
    }
}
