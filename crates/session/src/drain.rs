//! The handle of whoever starts and stops the process: sweeps while it runs, a graceful end of
//! every stream when it stops.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::time::{Interval, MissedTickBehavior, interval};
use vestibule_store::{Command, SessionKey};
use vestibule_terms::mutation;

use crate::legacy::{adopt, ended, expelled, leftovers, look_again, lost};
use crate::replicas::{Word, obey};
use crate::room::Shared;

/// How often expired sessions are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// How often is looked whether everything has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Every so many sweeps the event log is swept too.
const LOG_EVERY: u32 = 5;
/// Every so many, what this process holds is compared with the store.
const COMPARE_EVERY: u32 = 60;

/// How many sessions that are over are taken down at the same time.
const TOGETHER: usize = 64;

fn every(time: Duration) -> Interval {
    let mut ticks = interval(time);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Sweeps and stops the session room.
#[derive(Clone)]
pub struct Supervisor(Arc<Shared>);

impl Supervisor {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Ends what is over, again and again, until it is dropped. Runs once a process.
    pub async fn keep(self) {
        tokio::join!(self.keep_sessions(), self.keep_streams());
    }

    /// Upstreams of sessions that are over may take their time.
    async fn keep_sessions(&self) {
        let mut ticks = every(SWEEP);
        let mut turn: u32 = 0;
        loop {
            ticks.tick().await;
            self.sweep_sessions().await;
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(COMPARE_EVERY) {
                leftovers(&self.0).await;
            }
        }
    }

    async fn keep_streams(&self) {
        let mut ticks = every(SWEEP);
        let mut turn: u32 = 0;
        loop {
            ticks.tick().await;
            turn = turn.wrapping_add(1);
            let bereaved = self.sweep_fleet().await;
            if bereaved || turn.is_multiple_of(LOG_EVERY) {
                self.sweep_log().await;
            }
        }
    }

    /// Does what other processes say of the sessions they share with this one, until it is dropped.
    /// Runs once a process.
    pub async fn hear(self) {
        let fleet = Arc::clone(&self.0.rooms.fleet);
        loop {
            match fleet.receive().await {
                Ok(command) => {
                    if mutation::on("ack-before-effect") {
                        let _acknowledged = fleet.done(command.token.clone()).await;
                        tokio::time::sleep(4 * SWEEP).await;
                    }
                    self.obey(command).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "other replicas are not heard");
                    tokio::time::sleep(SWEEP).await;
                }
            }
        }
    }

    /// Ends the sessions whose time is over (SES-03).
    pub async fn sweep_sessions(&self) {
        match self.0.rooms.sessions.sweep().await {
            Ok(over) => {
                let all = stream::iter(over);
                all.for_each_concurrent(TOGETHER, |over| ended(&self.0, over))
                    .await;
            }
            Err(error) => tracing::warn!(%error, "sessions could not be swept"),
        }
        if let Some(counted) = self.0.rooms.sessions.census() {
            self.0.observer.counted(&counted);
        }
    }

    /// Ends streams that lost their task and questions that were never delivered (EL-15).
    pub async fn sweep_log(&self) {
        let swept = match self.0.rooms.log.sweep().await {
            Ok(swept) => swept,
            Err(error) => {
                tracing::warn!(%error, "the event log could not be swept");
                return;
            }
        };
        // side by side: who dies in the midst of it leaves the rest to wait for another death
        let orphans = swept.orphans.into_iter();
        join_all(orphans.map(|orphan| adopt(&self.0, orphan))).await;
        for missing in swept.lost {
            self.lose(&missing.session, &[missing.question]);
        }
    }

    /// Does what dead replicas were told and did not do. Whether there are any, which may have left
    /// streams as well.
    pub async fn sweep_fleet(&self) -> bool {
        let fleet = &self.0.rooms.fleet;
        if fleet.is_alone() {
            return false;
        }
        let remembered = fleet.others().await;
        let dead = fleet.dead().await;
        if let (Ok(remembered), Ok(dead)) = (remembered, &dead) {
            self.0.others.seen(remembered, dead);
        }
        if self.0.others.take_due() && !look_again(&self.0).await {
            self.0.others.look_again(); // the store is away: another time
        }
        let dead = dead.unwrap_or_default();
        for dead in &dead {
            for command in fleet.leftovers(dead).await.unwrap_or_default() {
                self.obey(command).await;
            }
        }
        !dead.is_empty()
    }

    /// Does what is said, and only then says so. What takes its time keeps nothing else waiting.
    async fn obey(&self, command: Command) {
        let supervisor = self.clone();
        let word = Word::read(&command.bytes);
        let takes_time = word.as_ref().is_some_and(Word::takes_time);
        let obeying = async move {
            match word {
                Some(word) => obey(&supervisor.0, word).await,
                None => tracing::debug!("another replica says something unknown"),
            }
            if let Err(error) = supervisor.0.rooms.fleet.done(command.token).await {
                tracing::debug!(%error, "a word of another replica will be heard again");
            }
        };
        if takes_time {
            tokio::spawn(obeying);
        } else {
            obeying.await;
        }
    }

    fn lose(&self, session: &SessionKey, keys: &[Arc<str>]) {
        let name = crate::legacy::Live::name_of(session);
        let live = self.0.lives.get(&name).map(|live| Arc::clone(&live));
        if let Some(live) = live {
            lost(&self.0, &live, keys);
        }
    }

    /// Ends every stream in the way of its era (case 69): listen streams get their result, streams
    /// of sessions a `retry:` and can be resumed; calls go on until they are done. New streams end
    /// the same way at once.
    pub fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Resolves when no call of a session runs here, with or without its client.
    pub async fn settled(&self) {
        while self.calls() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends every call that is still running with an explicit error: the last thing before
    /// connections are cut. With `outlived`, calls that another process can go on with are left to it.
    pub fn end_calls(&self, outlived: bool) {
        self.0.endings.stop(outlived);
    }

    /// Ends the calls, streams and sessions of callers who are no longer let in (AUT-23): after
    /// every change of what is accepted or served, and when a credential has expired.
    pub async fn recheck(&self) {
        self.0.endings.recheck();
        expelled(&self.0).await;
    }

    /// Calls in flight in sessions of this process.
    pub fn calls(&self) -> usize {
        self.0.lives.iter().map(|live| live.calls()).sum()
    }

    /// Sessions this process holds something of.
    pub fn sessions(&self) -> usize {
        self.0.lives.len()
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("sessions", &self.sessions())
            .finish()
    }
}
