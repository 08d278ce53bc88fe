//! The wait between two requests: for the client's answers, or until the upstream may be called again.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use vestibule_frame::Id;

use super::state::Stage;
use super::{Cancelled, Driver, HUMAN, Rounds, Stop, claim, end, ends, form};
use crate::ending::{Ending, Over};

/// How often a client with a progress token hears that its call is still there (6.2).
const TICK: Duration = Duration::from_secs(20);
/// How often answers are looked for that other processes may have taken without being able to say so.
const LOOK: Duration = Duration::from_secs(5);
/// Most times in a row that an upstream is called again without an answer of the client.
const WAITS_MAX: u8 = 20;
/// The first and the longest wait of an upstream that asks nothing.
const NOTHING_ASKED: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The same while the user is at a page in the browser.
const AT_A_PAGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Waits that are shorter are not worth being written down.
const WRITTEN: Duration = Duration::from_secs(1);

/// The clocks of one wait.
struct Clocks {
    until: Instant,
    tick: Instant,
    /// The progress that comes with the next tick.
    progress: f64,
    look: Option<Instant>,
}

/// What a wait has come to.
enum Woken {
    Answer(Id, Bytes),
    Look,
    Over,
}

impl Driver {
    /// Waits before the upstream is called again without asking anything new.
    pub(super) async fn wait(
        &mut self,
        rounds: &mut Rounds,
        cancelled: &mut Cancelled,
    ) -> Result<(), Stop> {
        let state = &mut rounds.state;
        let at_a_page = !state.asked.is_empty();
        let (first, most) = if at_a_page { AT_A_PAGE } else { NOTHING_ASKED };
        let delay = first.saturating_mul(1 << state.waits.min(16)).min(most);
        let now = self.shared.rooms.clock.unix_millis();
        if at_a_page && now >= state.until {
            return end(ends::late(&state.upstream));
        }
        if state.waits >= WAITS_MAX && !at_a_page {
            return end(ends::too_many(self.method, &state.upstream));
        }
        state.waits = state.waits.saturating_add(1);
        if delay >= WRITTEN {
            self.enter(rounds, Stage::Waiting).await?;
            let note = self.standing(rounds);
            self.sink.note(note, false).await;
        }
        self.pass(rounds, delay, cancelled).await
    }

    /// Lets that time pass.
    pub(super) async fn pass(
        &mut self,
        rounds: &mut Rounds,
        delay: Duration,
        cancelled: &mut Cancelled,
    ) -> Result<(), Stop> {
        let mut clocks = self.clocks(rounds, Instant::now() + delay, false);
        let mut ending = self.shared.endings.watch(&self.caller.user, &self.plan);
        loop {
            let woken = self.woken(rounds, &mut clocks, (&mut *cancelled, &mut ending));
            if matches!(woken.await?, Woken::Over) {
                return Ok(());
            }
        }
    }

    /// Waits for all answers that are missing.
    pub(super) async fn answers(
        &mut self,
        rounds: &mut Rounds,
        cancelled: &mut Cancelled,
    ) -> Result<(), Stop> {
        let now = self.shared.rooms.clock.unix_millis();
        let left = Duration::from_millis(rounds.state.until.saturating_sub(now)).min(HUMAN);
        let mut clocks = self.clocks(rounds, Instant::now() + left, true);
        let mut ending = self.shared.endings.watch(&self.caller.user, &self.plan);
        let mut paused = !self.plan.poll_close || !self.live.revision().has_priming();
        loop {
            if rounds.state.asked.iter().all(|one| one.answer.is_some()) {
                return Ok(());
            }
            let woken = self.woken(rounds, &mut clocks, (&mut *cancelled, &mut ending));
            match woken.await? {
                Woken::Answer(id, answer) => self.take(rounds, &id, answer)?,
                Woken::Look => {
                    if !std::mem::replace(&mut paused, true) {
                        self.sink.pause(None).await; // SSE-05: it comes back for the rest
                    }
                    self.look(rounds).await?;
                }
                Woken::Over => return end(ends::late(&rounds.state.upstream)),
            }
        }
    }

    /// Looks for answers that were given elsewhere.
    pub(super) async fn look(&self, rounds: &mut Rounds) -> Result<(), Stop> {
        let asked = rounds.state.asked.iter();
        let open: Vec<Id> = asked
            .filter(|one| one.answer.is_none())
            .map(|one| one.id.clone())
            .collect();
        for id in open {
            match claim::taken_over(&self.shared, &self.live, &id).await {
                Ok(Some(answer)) => self.take(rounds, &id, answer)?,
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "an answer cannot be looked for"),
            }
        }
        Ok(())
    }

    fn take(&self, rounds: &mut Rounds, id: &Id, answer: Bytes) -> Result<(), Stop> {
        let asked = rounds.state.asked.iter_mut().find(|one| one.id == *id);
        let Some(asked) = asked.filter(|one| one.answer.is_none()) else {
            return Ok(());
        };
        let _no_longer_open = self.live.machine().answer(id).is_some();
        // it was a message when it came
        let Some(frame) = form::parse(answer) else {
            return end(ends::malformed(self.method));
        };
        if frame.error().is_some() {
            return end(ends::unanswered(self.method, &frame));
        }
        asked.answer = form::answer(&frame, asked.method);
        if asked.answer.is_none() {
            return end(ends::malformed(self.method));
        }
        Ok(())
    }

    fn clocks(&self, rounds: &Rounds, until: Instant, looks: bool) -> Clocks {
        let now = self.shared.rooms.clock.unix_millis();
        let state = &rounds.state;
        let tick = u64::try_from(TICK.as_millis()).unwrap_or(u64::MAX);
        // another process may have ticked before
        let ticks = now.saturating_sub(state.since.max(1)) / tick;
        let told = if looks { ticks } else { 0 };
        let told = f64::from(u32::try_from(told).unwrap_or(u32::MAX));
        let reached = self.relay.reached().max(state.progress);
        Clocks {
            until,
            tick: Instant::now() + TICK,
            progress: reached + told + 1.0,
            look: looks.then(|| Instant::now() + LOOK),
        }
    }

    /// Waits for whatever is next.
    async fn woken(
        &mut self,
        rounds: &mut Rounds,
        clocks: &mut Clocks,
        (cancelled, ending): (&mut Cancelled, &mut Ending),
    ) -> Result<Woken, Stop> {
        loop {
            let moments = [Some(clocks.tick), clocks.look, self.streams_at];
            let due = moments
                .into_iter()
                .flatten()
                .fold(clocks.until, Instant::min);
            tokio::select! {
                biased;
                done = &mut *cancelled => return Err(Stop::Cancelled(done.ok())),
                Some((id, answer)) = rounds.inbox.recv() => return Ok(Woken::Answer(id, answer)),
                over = ending.over() => return Err(match over {
                    Over::Ended(error) => Stop::End(Box::new(vestibule_exchange::Final::Error(error))),
                    Over::Left(error) => Stop::Left(error),
                }),
                () = sleep_until(due) => {}
            }
            let now = Instant::now();
            if now >= clocks.until {
                return Ok(Woken::Over);
            }
            if self.streams_at.is_some_and(|at| now >= at) {
                self.streams_at = None;
                self.sink.open().await;
            }
            if now >= clocks.tick {
                clocks.tick = now + TICK;
                if let Some(message) = self.relay.still_there(clocks.progress) {
                    self.sink.tell(message).await;
                }
                clocks.progress += 1.0;
            }
            if clocks.look.is_some_and(|at| now >= at) {
                clocks.look = Some(now + LOOK);
                return Ok(Woken::Look);
            }
        }
    }
}
