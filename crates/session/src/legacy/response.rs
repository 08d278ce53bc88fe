//! A client's answer to a question, on its way to whoever asked (HTR-04, EL-18).
//!
//! It is under way in a task of its own: a connection that breaks leaves no answer between its claim and
//! its upstream. The client is told that it was taken when it has reached the upstream, or when nobody
//! waits for it; while neither is known, because the store is away or because whoever has claimed it may
//! be dead, the client waits. What can be said to the upstream only by the process through which it has
//! asked, because the upstream is that one's child, is handed to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep, timeout};
use vestibule_exchange::{QuestionRef, RpcError};
use vestibule_frame::{Draft, Frame, Id, Limits};
use vestibule_terms::reject::code;
use vestibule_terms::{Reject, mutation};

use super::claim::{self, Claim, Receipt};
use super::live::{Live, Open};
use crate::machine::Ticket;
use crate::replicas::{self, Word};
use crate::room::Shared;

/// How long an answer is under way: longer than it takes to find a replica dead.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(250);
/// How long an upstream may take over one that another process has taken.
const TAKEN: Duration = Duration::from_secs(5);
/// Answers that are larger are not told to others.
const TOLD_MAX: usize = 64 << 10;
/// When a client may try again.
const LATER: Duration = Duration::from_secs(2);

/// Takes an answer: the first one goes to whoever asked, later and unknown ones are dropped (EL-18,
/// STA-16). Whoever asked may have asked another process.
pub(super) async fn response(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    frame: Frame,
) -> Result<(), Reject> {
    let Some(id) = frame.id() else { return Ok(()) };
    let asked = live.machine().answer(&id);
    let answer = Answer {
        shared: Arc::clone(shared),
        live: Arc::clone(live),
        id,
        bytes: frame.bytes().clone(),
        asked,
    };
    let brought = tokio::spawn(answer.bring()).await;
    brought.unwrap_or(Err(Reject::Internal))
}

/// Takes an answer that another process was given and knows no question for.
pub(crate) async fn told(shared: &Arc<Shared>, live: &Arc<Live>, id: Id, bytes: Bytes) {
    let Some(asked) = live.machine().answer(&id) else {
        return;
    };
    let answer = Answer {
        shared: Arc::clone(shared),
        live: Arc::clone(live),
        id,
        bytes,
        asked: Some(asked),
    };
    let _said_in_the_log = answer.bring().await.is_err();
}

struct Answer {
    shared: Arc<Shared>,
    live: Arc<Live>,
    id: Id,
    bytes: Bytes,
    /// The question, where it was asked by this process, and the call it is about.
    asked: Option<(Option<Ticket>, Open)>,
}

/// What an attempt came to.
enum Attempt {
    /// Delivered, or nothing waits for it.
    Over,
    /// Another answer was taken before.
    Answered,
    /// It has to be tried again.
    NotYet,
    /// Not by this process.
    Elsewhere,
}

impl Answer {
    async fn bring(self) -> Result<(), Reject> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.attempt().await {
                Attempt::Over | Attempt::Elsewhere => return Ok(()),
                Attempt::Answered => {
                    // the one before may be on its way here; the call's end looks at the record
                    self.put_back();
                    return Ok(());
                }
                Attempt::NotYet if Instant::now() < until => sleep(PAUSE).await,
                Attempt::NotYet => break,
            }
        }
        tracing::warn!("an answer to a question could not be brought to its upstream");
        self.put_back();
        Err(Reject::Unavailable {
            reason: "answer",
            retry_after: LATER,
        })
    }

    /// The question can be answered again, unless its call is over.
    fn put_back(self) {
        if let Some((about, open)) = self.asked {
            let _over = self.live.machine().ask(self.id, about, open);
        }
    }

    async fn attempt(&self) -> Attempt {
        let (shared, live) = (&self.shared, &self.live);
        let open = self.asked.as_ref().map(|(_, open)| open);
        if let Some((open, round)) = open.and_then(|open| Some((open, open.round.as_ref()?))) {
            return self.to_round(open, round).await;
        }
        if let Some(open) = open.filter(|open| !open.kept) {
            return self.deliver(&open.from, self.bytes.clone()).await;
        }
        match claim::take(shared, live, &self.id, &self.bytes).await {
            Claim::Mine(from, receipt) => self.claimed(&from, receipt).await,
            Claim::Kept(asker) => {
                // it is there for whoever goes on with the call; the one who asked need not look
                let (session, id) = (live.key.clone(), self.id.clone());
                let word = Word::Deliver(session, id, self.bytes.clone());
                let _he_looks_now_and_then = replicas::send(shared, &asker, &word).await;
                Attempt::Over
            }
            Claim::Over => Attempt::Answered,
            Claim::Unknown => match open {
                // the store has lost it; whoever asked knows
                Some(open) => self.deliver(&open.from, self.bytes.clone()).await,
                None => self.ask_others().await,
            },
            Claim::Away => match open.filter(|_| shared.rooms.fleet.may_act()) {
                Some(open) => self.without_store(open).await,
                None => Attempt::NotYet,
            },
            Claim::Pending => Attempt::NotYet,
        }
    }

    /// A call of this process waits for the answer between two rounds: it is kept first, so that the
    /// death of this process loses none that was taken.
    async fn to_round(&self, open: &Open, round: &Sender<(Id, Bytes)>) -> Attempt {
        if open.kept {
            match claim::take(&self.shared, &self.live, &self.id, &self.bytes).await {
                Claim::Kept(_) | Claim::Unknown => {}
                Claim::Over => return Attempt::Answered,
                Claim::Mine(..) | Claim::Pending | Claim::Away => return Attempt::NotYet,
            }
        }
        let _nobody_waits = round
            .try_send((self.id.clone(), self.bytes.clone()))
            .is_err();
        Attempt::Over
    }

    /// Whoever has asked may know of a question that the store does not know.
    async fn ask_others(&self) -> Attempt {
        tracing::debug!("an answer to no known question");
        if self.bytes.len() > TOLD_MAX {
            return Attempt::Over;
        }
        let (session, id) = (self.live.key.clone(), self.id.clone());
        let word = Word::Answer(session, id, self.bytes.clone());
        if replicas::tell(&self.shared, word).await {
            Attempt::Over
        } else {
            Attempt::NotYet
        }
    }

    /// The answer is this process's to deliver.
    async fn claimed(&self, from: &QuestionRef, receipt: Receipt) -> Attempt {
        let (shared, live) = (&self.shared, &self.live);
        if mutation::on("answer-twice") {
            let _twice = self.deliver(from, receipt.answer.clone()).await;
        }
        let asked_here = self.asked.is_some();
        let mut attempt = self.deliver(from, receipt.answer.clone()).await;
        let elsewhere = receipt.asker() != shared.rooms.fleet.replica();
        if matches!(attempt, Attempt::Elsewhere) && elsewhere {
            attempt = self.hand_over(&receipt).await;
        }
        match attempt {
            Attempt::Over | Attempt::Answered | Attempt::Elsewhere => {
                claim::delivered(shared, live, receipt, asked_here).await;
            }
            Attempt::NotYet => claim::release(shared, live, receipt).await,
        }
        attempt
    }

    /// Whoever asked has the answer in its inbox, or is dead and waits for none.
    async fn hand_over(&self, receipt: &Receipt) -> Attempt {
        let (session, id) = (self.live.key.clone(), self.id.clone());
        let word = Word::Deliver(session, id, receipt.answer.clone());
        match replicas::send(&self.shared, receipt.asker(), &word).await {
            Ok(_) => Attempt::Over,
            Err(error) => {
                tracing::debug!(%error, "an answer could not be handed to whoever asked");
                Attempt::NotYet
            }
        }
    }

    /// Nobody can be asked whether somebody else has delivered it; whoever asked knows.
    async fn without_store(&self, open: &Open) -> Attempt {
        let attempt = self.deliver(&open.from, self.bytes.clone()).await;
        if matches!(attempt, Attempt::Over) {
            claim::remove(&self.shared, &self.live, self.id.clone());
        }
        attempt
    }

    async fn deliver(&self, from: &QuestionRef, answer: Bytes) -> Attempt {
        // it was a message when it came
        let Ok(frame) = Frame::parse(answer, &Limits::default()) else {
            return Attempt::Over;
        };
        let (live, answer) = (&self.live, Draft::new(frame));
        let back = &self.shared.back;
        let is_kept = self.asked.as_ref().is_none_or(|(_, open)| open.kept);
        let taken = if is_kept {
            let (can, inlet) = (Arc::clone(&live.capabilities), Arc::clone(&live.inlet));
            back.deliver(from.clone(), answer, can, inlet)
        } else {
            back.answer(from.clone(), answer)
        };
        let Err(error) = taken.await else {
            return Attempt::Over;
        };
        tracing::debug!(code = error.code, "an answer did not reach its upstream");
        match error.code {
            code::LOST => Attempt::Elsewhere,
            _ if may_pass(&error) => Attempt::NotYet,
            _ => Attempt::Over,
        }
    }
}

/// An answer that another process has taken from the client for a question of this one.
pub(crate) async fn handed_over(shared: &Arc<Shared>, live: &Arc<Live>, id: &Id, answer: Bytes) {
    let until = Instant::now() + TAKEN;
    let open = loop {
        if let Some((_, open)) = live.machine().answer(id) {
            break open;
        }
        // one that came here meanwhile has it, and gives it back when it knows of this one
        if Instant::now() >= until {
            tracing::debug!("an answer to no open question is dropped");
            return;
        }
        sleep(PAUSE).await;
    };
    if let Some(round) = open.round {
        let _nobody_waits = round.try_send((id.clone(), answer)).is_err();
        return;
    }
    let Ok(frame) = Frame::parse(answer, &Limits::default()) else {
        return; // it was a message when it came
    };
    // other processes have more to say than this
    let taken = timeout(TAKEN, shared.back.answer(open.from, Draft::new(frame)));
    if !matches!(taken.await, Ok(Ok(()))) {
        tracing::debug!("an answer did not reach its upstream");
    }
    claim::remove(shared, live, id.clone());
}

/// Whether the upstream may take later what it has not taken now. The same bytes may come twice; they
/// may not be lost.
fn may_pass(error: &RpcError) -> bool {
    matches!(
        error.code,
        code::UPSTREAM_UNAVAILABLE | code::UPSTREAM_TIMEOUT
    )
}
