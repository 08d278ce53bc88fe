//! The handle of the other rooms: runs scripts, passes hints on.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use bytes::Bytes;
use redis::{Cmd, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;

use super::connect::{Connection, Connector};
use super::keeper::{Link, Primary, keep};
use super::names::{Key, Slot, channel_of};
use super::reply::Reply;
use super::script::Script;
use super::settings::{RedisAlarm, Settings};
use super::{endpoint::Endpoint, hints};
use crate::{ReplicaId, StoreError};

/// Hints that may wait for a slow listener; it loses older ones.
const HINTS: usize = 1_024;

/// The client. Clones are one client; it disconnects with the last of them.
#[derive(Clone)]
pub struct Redis(Arc<Client>);

struct Client {
    shared: Arc<Shared>,
    runtime: Option<Handle>,
    tasks: [AbortHandle; 2],
}

impl Drop for Client {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// What the handle and its two tasks have in common.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) connector: Connector,
    pub(super) alarm: RedisAlarm,
    /// How the primary is reached; changed by the keeper alone.
    pub(super) link: watch::Sender<Link>,
    /// The newest link that somebody found broken.
    pub(super) broken: watch::Sender<u64>,
    pub(super) hints: broadcast::Sender<Bytes>,
    places: Semaphore,
}

impl Redis {
    /// Returns at once; tasks of its own connect. The error says what is wrong with the URL or the
    /// certificates.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, unless the settings name one.
    pub fn open(settings: Settings, alarm: RedisAlarm) -> Result<Self, StoreError> {
        let endpoint = Endpoint::parse(settings.url.expose()).map_err(StoreError::Url)?;
        let connector = Connector::new(endpoint, &settings).map_err(StoreError::Url)?;
        let runtime = settings.runtime.clone();
        let shared = Arc::new(Shared {
            places: Semaphore::new(settings.in_flight),
            settings,
            connector,
            alarm,
            link: watch::Sender::new(Link::Finding),
            broken: watch::Sender::new(0),
            hints: broadcast::Sender::new(HINTS),
        });
        let on = runtime.clone().unwrap_or_else(Handle::current);
        let tasks = [
            on.spawn(keep(Arc::clone(&shared))).abort_handle(),
            on.spawn(hints::listen(Arc::clone(&shared))).abort_handle(),
        ];
        Ok(Self(Arc::new(Client {
            shared,
            runtime,
            tasks,
        })))
    }

    /// Runs the script. The keys are all of that slot. On an error it may have run or may not.
    pub async fn run(
        &self,
        script: &'static Script,
        slot: &Slot,
        keys: &[Key],
        args: Vec<Bytes>,
    ) -> Result<Reply, StoreError> {
        debug_assert!(
            !keys.is_empty() && keys.iter().all(|key| key.is_of(slot)),
            "the keys of {} are of one slot",
            script.name()
        );
        let Some(runtime) = &self.0.runtime else {
            return self.0.shared.run(script, keys, args).await;
        };
        let (shared, keys) = (Arc::clone(&self.0.shared), keys.to_vec());
        // While a thread is blocked the caller's paused clock stands still; it goes on when the
        // answer is there.
        let (release, hold) = sync_channel::<()>(1);
        spawn_blocking(move || hold.recv());
        let task = runtime.spawn(async move { shared.run(script, &keys, args).await });
        let answer = task.await;
        drop(release);
        answer.map_err(|gone| StoreError::Unavailable(gone.to_string()))?
    }

    /// Runs `task` where the client runs, whether or not the caller is on a runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let on = self
            .0
            .runtime
            .clone()
            .or_else(|| Handle::try_current().ok());
        if let Some(on) = on {
            on.spawn(task);
        }
    }

    /// What is published to this replica's own channel from now on. Lossy.
    pub fn hints(&self) -> broadcast::Receiver<Bytes> {
        self.0.shared.hints.subscribe()
    }

    /// Who we are.
    pub fn replica(&self) -> &ReplicaId {
        &self.0.shared.settings.replica
    }

    /// Whether a primary answers, as far as is known.
    pub fn is_up(&self) -> bool {
        matches!(*self.0.shared.link.borrow(), Link::Up(_))
    }

    /// Returns when a primary answers.
    pub async fn connected(&self) {
        let mut link = self.0.shared.link.subscribe();
        let up = link.wait_for(|link| matches!(link, Link::Up(_)));
        let _closed = up.await.is_err();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("replica", self.replica())
            .field("up", &self.is_up())
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn channel(&self) -> Bytes {
        channel_of(&self.settings.replica)
    }

    async fn run(
        &self,
        script: &'static Script,
        keys: &[Key],
        args: Vec<Bytes>,
    ) -> Result<Reply, StoreError> {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(unavailable(script, "too many commands are under way"));
        };
        let limit = self.settings.command_timeout + script.allowance(&args);
        let mut asked = None;
        let work = async {
            let primary = asked.insert(self.primary(script).await?);
            evaluate(primary.connection.clone(), script, keys, &args)
                .await
                .map_err(|error| self.judge(script, primary, &error))
        };
        let Ok(answer) = timeout(limit, work).await else {
            if let Some(primary) = asked {
                self.found_broken(&primary);
            }
            return Err(unavailable(script, "no answer in time"));
        };
        Reply::of(answer?).map_err(|what| StoreError::Refused(format!("{}: {what}", script.name())))
    }

    /// Waits while the primary is being found, and not when it was not found.
    async fn primary(&self, script: &Script) -> Result<Arc<Primary>, StoreError> {
        if let Link::Up(primary) = &*self.link.borrow() {
            return Ok(Arc::clone(primary));
        }
        let mut link = self.link.subscribe();
        let known = link.wait_for(|link| !matches!(link, Link::Finding)).await;
        match known.as_deref() {
            Ok(Link::Up(primary)) => Ok(Arc::clone(primary)),
            Ok(Link::Away(why)) => Err(unavailable(script, why)),
            Ok(Link::Finding) | Err(_) => Err(unavailable(script, "not connected")),
        }
    }

    /// What the caller is told of an error, and whether the primary has to be found again.
    fn judge(&self, script: &Script, primary: &Primary, error: &RedisError) -> StoreError {
        let Some(code) = error.code() else {
            self.found_broken(primary);
            return unavailable(script, error.category());
        };
        match code {
            "READONLY" | "LOADING" | "MASTERDOWN" | "NOAUTH" => {
                self.found_broken(primary);
                unavailable(script, code)
            }
            // A cluster that is rearranged, a primary without replicas, a full one: it may pass.
            "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "NOREPLICAS" | "OOM" | "MISCONF"
            | "BUSY" | "NOPERM" | "UNBLOCKED" => unavailable(script, code),
            _ => {
                let detail = error.detail().unwrap_or_default();
                StoreError::Refused(format!("{}: {code} {detail}", script.name()))
            }
        }
    }

    /// The keeper looks for the primary again, unless it has already.
    fn found_broken(&self, primary: &Primary) {
        if primary.connection.patience() > 1 {
            return; // it may have been one node of many
        }
        self.broken.send_if_modified(|newest| {
            let newer = primary.generation > *newest;
            if newer {
                *newest = primary.generation;
            }
            newer
        });
    }
}

fn unavailable(script: &Script, why: &str) -> StoreError {
    StoreError::Unavailable(format!("{}: {why}", script.name()))
}

/// By its digest, and whole where the server does not know it yet.
async fn evaluate(
    mut connection: Connection,
    script: &Script,
    keys: &[Key],
    args: &[Bytes],
) -> Result<Value, RedisError> {
    let by_digest = command("EVALSHA", script.digest(), keys, args);
    match connection.send(&by_digest).await {
        Err(error) if error.code() == Some("NOSCRIPT") => {
            let whole = command("EVAL", script.text(), keys, args);
            connection.send(&whole).await
        }
        answer => answer,
    }
}

fn command(name: &str, script: &str, keys: &[Key], args: &[Bytes]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len());
    for key in keys {
        command.arg(key.as_bytes());
    }
    for arg in args {
        command.arg(&arg[..]);
    }
    command
}
