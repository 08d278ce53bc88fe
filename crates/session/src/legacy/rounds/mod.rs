//! A call whose upstream wants answers before it goes on, between two requests (6.2): its client is
//! asked on the stream of the call, and the upstream is called again with what it said.
//!
//! The upstream holds nothing meanwhile and neither does this process alone: questions, answers and all
//! that the next request needs are in the session's record, so that any process can go on. Only while a
//! tool is being called nobody can, because it may have run.
//!
//! | module | holds |
//! |---|---|
//! | `state`, `kept` | where the call stands, and who may make its next request |
//! | `ask` | questions on their way to the client |
//! | `form` | questions and answers in the forms of both sides |
//! | `wait` | the wait for the client, or for the upstream's next chance |
//! | `over` | taking a call over from a process that is gone, and its end |
//! | `ends` | how calls end that cannot go on |

mod ask;
mod ends;
mod form;
mod kept;
mod over;
mod state;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;
use vestibule_exchange::{Call, Final, Rounds as Called, RpcError, Wanted, Wish};
use vestibule_frame::Draft;
use vestibule_terms::UpstreamId;

pub(super) use self::kept::Rounds;
use self::kept::Written;
use self::state::{Asked, Stage, State, complete, url_of};
use super::call::Driver;
use super::claim;
use crate::running::Running;

/// What cancels a call.
pub(super) type Cancelled = oneshot::Receiver<oneshot::Sender<()>>;

/// How long a client may take (6.2).
const HUMAN: Duration = Duration::from_secs(600);
/// How long what has come waits for the store.
const AT_ONCE: Duration = Duration::from_secs(1);
const AWAY: &str = "the client cannot be asked: the gateway's store is away";

/// Why a call does not go on here.
pub(super) enum Stop {
    /// It has ended.
    End(Box<Final>),
    /// It was cancelled; nobody is told when its session has ended.
    Cancelled(Option<oneshot::Sender<()>>),
    /// The process stops.
    Left(RpcError),
    /// Another process goes on with it.
    Elsewhere,
}

fn end<T>(end: Final) -> Result<T, Stop> {
    Err(Stop::End(Box::new(end)))
}

impl Driver {
    /// The upstream wants something first: the next request to it, when it can be made.
    pub(super) async fn round(
        &mut self,
        wanted: Wanted,
        cancelled: &mut Cancelled,
    ) -> Result<Running, Stop> {
        let mut rounds = match self.rounds.take() {
            Some(rounds) => rounds,
            None => Box::new(self.first_round(wanted.upstream.clone()).await?),
        };
        let next = self.next_round(&mut rounds, wanted, cancelled).await;
        self.rounds = Some(rounds);
        next
    }

    /// What has no effect is asked for again by whoever takes it over, also before its upstream has
    /// wanted anything. A client that holds no id of its stream yet asks again itself.
    pub(super) async fn remember(&mut self) {
        if std::mem::replace(&mut self.remembered, true) || !self.sink.outlives() {
            return;
        }
        // what has come is not kept waiting by a store that is away (EL-22)
        if timeout(AT_ONCE, self.noted()).await.is_err() {
            tracing::debug!("a call is not written down");
        }
    }

    async fn noted(&mut self) {
        let Some(upstream) = self.record.upstream().cloned() else {
            return;
        };
        let Ok(mut rounds) = self.first_round(upstream).await else {
            return;
        };
        if self.enter(&mut rounds, Stage::Requesting).await.is_ok() {
            let note = self.standing(&rounds);
            self.sink.note(note, false).await;
            self.rounds = Some(Box::new(rounds));
        }
    }

    /// Its upstream remembers the call itself.
    pub(super) fn marked(&mut self) {
        self.remembered = true;
        if let Some(rounds) = self.rounds.take_if(|rounds| rounds.state.round == 0) {
            rounds.clear(&self.shared, &self.live);
        }
    }

    async fn first_round(&self, upstream: UpstreamId) -> Result<Rounds, Stop> {
        let name = match self.live.next_number(&self.shared).await {
            Ok(number) => number.to_string(),
            Err(text) => return end(ends::away(text)),
        };
        let state = State {
            owner: self.shared.rooms.fleet.replica().clone(),
            stage: Stage::Requesting,
            step: 0,
            round: 0,
            waits: 0,
            upstream,
            message: self.frame.bytes().clone(),
            state: None,
            asked: Vec::new(),
            since: 0,
            until: 0,
            progress: 0.0,
        };
        Ok(Rounds::new((name, self.method), state, None))
    }

    async fn next_round(
        &mut self,
        rounds: &mut Rounds,
        wanted: Wanted,
        cancelled: &mut Cancelled,
    ) -> Result<Running, Stop> {
        let reached = self.relay.reached();
        self.relay.next_round(reached);
        rounds.state.progress = reached;
        let fresh = self.sorted(rounds, wanted).await;
        if fresh.is_empty() {
            self.wait(rounds, cancelled).await?;
        } else {
            self.ask(rounds, fresh, cancelled).await?;
            self.answers(rounds, cancelled).await?;
        }
        self.request(rounds).await
    }

    /// What the client has not been asked yet. Of pages that the upstream asks for no more it is told
    /// that they are done (ELI-06).
    async fn sorted(&self, rounds: &mut Rounds, wanted: Wanted) -> Vec<Wish> {
        let state = &mut rounds.state;
        let mut before = std::mem::take(&mut state.asked);
        state.state = wanted.state;
        let mut fresh = Vec::new();
        for wish in wanted.questions {
            let url = url_of(wish.method, wish.params.as_ref());
            let visited = url.and_then(|url| {
                let mut all = before.iter();
                all.position(|one| one.is_visited(&wish.key, &url))
            });
            match visited {
                Some(at) => state.asked.push(before.swap_remove(at)),
                None => fresh.push(wish),
            }
        }
        self.completed(&before).await;
        fresh
    }

    /// Tells the client which pages are done with.
    async fn completed(&self, asked: &[Asked]) {
        for one in asked {
            if let Some((url, elicitation)) = &one.url
                && one.is_visited(&one.key, url)
            {
                self.say(complete(elicitation)).await;
            }
        }
    }

    /// The note of a call between rounds; an empty one where nobody else can go on with it.
    fn standing(&mut self, rounds: &Rounds) -> Bytes {
        let note = rounds.note().and_then(|note| {
            let upstream = &rounds.state.upstream;
            Some(self.heading(upstream)?.between_rounds(&note))
        });
        note.unwrap_or_default()
    }

    /// Enters a stage; nothing is written down of a call that ends with this process.
    async fn enter(&self, rounds: &mut Rounds, stage: Stage) -> Result<(), Stop> {
        if !self.sink.outlives() {
            return Ok(());
        }
        match rounds.enter(&self.shared, &self.live, stage).await {
            Written::Done => Ok(()),
            Written::Elsewhere => Err(Stop::Elsewhere),
            Written::Away => end(ends::away(AWAY)),
        }
    }

    /// The next request to the upstream. Whoever could do the same knows first that it is made.
    async fn request(&mut self, rounds: &mut Rounds) -> Result<Running, Stop> {
        self.enter(rounds, Stage::Requesting).await?;
        if !self.method.is_repeatable() {
            self.sink.alone().await;
        }
        for asked in &rounds.state.asked {
            claim::remove(&self.shared, &self.live, asked.id.clone());
        }
        Ok(self.called(rounds))
    }

    fn called(&self, rounds: &Rounds) -> Running {
        let (user, plan) = (&self.caller.user, &self.plan);
        let message = Draft::new(self.frame.clone());
        let call = Call {
            record: self.record.clone(),
            progress: self.caller.token.is_some(),
            rounds: Called {
                asks: self.sink.takes_questions(),
                answers: Some(Arc::new(rounds.state.answers())),
            },
            ..self.live.calling(plan, user, (self.method, message))
        };
        let end = call.deadline.end;
        let ending = self.shared.endings.watch(user, plan);
        Running::new((self.shared.below)(call), Some(end)).until(ending)
    }
}
