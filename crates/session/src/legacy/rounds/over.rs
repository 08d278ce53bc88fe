//! A call between rounds whose process is gone, and the end of one.

use std::time::Duration;

use vestibule_exchange::{Final, RpcError};

use super::state::{Stage, State};
use super::{Cancelled, Driver, Rounds, Stop, Written, claim, end, form};
use crate::legacy::note::Between;
use crate::legacy::patience::patiently;
use crate::legacy::question::no_longer;
use crate::running::Running;

/// How long the upstream of another process's call waits.
const AGAIN: Duration = Duration::from_secs(2);

impl Driver {
    /// Goes on with a call that another process has left between rounds. A tool is not called again
    /// once it may have been.
    pub(in crate::legacy) async fn take_up(
        &mut self,
        between: Between,
        cancelled: &mut Cancelled,
    ) -> Result<Running, Stop> {
        let Some(rounds) = self.found(&between.record).await? else {
            return end(Final::Error(RpcError::lost(Some(&between.upstream))));
        };
        let mut rounds = Box::new(rounds);
        let next = self.taken_up(&mut rounds, between.step, cancelled).await;
        self.rounds = Some(rounds);
        next
    }

    async fn found(&self, record: &str) -> Result<Option<Rounds>, Stop> {
        let found = patiently(|| async {
            Rounds::find(&self.shared, &self.live, (record, self.method))
                .await
                .inspect_err(|error| {
                    tracing::debug!(%error, "a call between rounds waits for the store");
                })
                .ok()
        });
        found.await.ok_or(Stop::Elsewhere) // it stays an orphan, and is named again
    }

    async fn taken_up(
        &mut self,
        rounds: &mut Rounds,
        step: u64,
        cancelled: &mut Cancelled,
    ) -> Result<Running, Stop> {
        let reached = rounds.state.progress;
        self.relay.next_round(reached);
        let stage = rounds.state.stage;
        let as_noted = rounds.state.step == step;
        let may_go_on = self.method.is_repeatable() || (stage != Stage::Requesting && as_noted);
        let message = form::parse(rounds.state.message.clone());
        let Some(message) = message.filter(|_| may_go_on) else {
            return end(Final::Error(RpcError::lost(Some(&rounds.state.upstream))));
        };
        self.frame = message;
        if stage == Stage::Asking && !as_noted {
            // nobody has seen the questions: the upstream asks again
            let asked = std::mem::take(&mut rounds.state.asked);
            for one in asked {
                claim::remove(&self.shared, &self.live, one.id);
            }
            rounds.state.state = None;
        }
        rounds.state = State {
            owner: self.shared.rooms.fleet.replica().clone(),
            ..rounds.state.clone()
        };
        match rounds.write(&self.shared, &self.live).await {
            Written::Done => {}
            Written::Elsewhere | Written::Away => return Err(Stop::Elsewhere),
        }
        if stage == Stage::Requesting {
            self.relay.silence();
        }
        match stage {
            Stage::Asking if as_noted => {
                for one in rounds.state.asked.clone() {
                    if one.answer.is_none() {
                        self.register(rounds, &one.id, true, cancelled).await?;
                    }
                }
                self.look(rounds).await?;
                self.answers(rounds, cancelled).await?;
            }
            Stage::Waiting => self.pass(rounds, AGAIN, cancelled).await?,
            Stage::Asking | Stage::Requesting => {}
        }
        self.request(rounds).await
    }

    /// Withdraws what the client is still asked: its call is cancelled.
    pub(in crate::legacy) async fn withdraw_questions(&self) {
        let Some(rounds) = &self.rounds else { return };
        for asked in rounds.state.asked.iter().filter(|one| one.answer.is_none()) {
            self.say(no_longer(&asked.id)).await;
        }
    }

    /// Says what pages are done with, when the call has ended well.
    pub(in crate::legacy) async fn rounds_end(&self, end: &Final) {
        let Some(rounds) = &self.rounds else { return };
        if matches!(end, Final::Message(draft) if draft.frame().result().is_some()) {
            self.completed(&rounds.state.asked).await;
        }
    }

    /// Nothing is left of the rounds of a call that is over.
    pub(in crate::legacy) fn forget_rounds(&self) {
        let Some(rounds) = &self.rounds else { return };
        rounds.clear(&self.shared, &self.live);
        for asked in &rounds.state.asked {
            claim::remove(&self.shared, &self.live, asked.id.clone());
        }
    }
}
