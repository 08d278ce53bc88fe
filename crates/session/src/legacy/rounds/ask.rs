//! Questions between two rounds, on their way to the client: all of them or none, and together with
//! the note of how their call stands.

use bytes::Bytes;
use vestibule_exchange::{Final, QuestionRef, RpcError, Sharing, Wish};
use vestibule_frame::{Draft, Id};

use super::kept::QUESTIONS_MAX;
use super::state::{Asked, Stage};
use super::{AWAY, Cancelled, Driver, HUMAN, Rounds, Stop, end, ends, form};
use crate::legacy::live::Open;
use crate::legacy::patience::patiently;
use crate::legacy::question::Asked as Question;
use crate::machine::Phase;

/// Most rounds of one call (MRT-09).
const ROUNDS_MAX: u8 = 16;

impl Driver {
    /// Puts the questions to the client: all, or none of them.
    pub(super) async fn ask(
        &mut self,
        rounds: &mut Rounds,
        fresh: Vec<Wish>,
        cancelled: &mut Cancelled,
    ) -> Result<(), Stop> {
        let (method, upstream) = (self.method, rounds.state.upstream.clone());
        if rounds.state.round >= ROUNDS_MAX {
            return end(ends::too_many(method, &upstream));
        }
        if fresh.len() > QUESTIONS_MAX {
            return end(Final::Error(RpcError::protocol(
                &upstream,
                "too_many_questions",
            )));
        }
        let (revision, can) = (self.live.revision(), &self.live.capabilities);
        let formed: Result<Vec<(Draft, Asked)>, _> = fresh
            .into_iter()
            .map(|wish| form::question(wish, revision, can))
            .collect();
        let Ok(formed) = formed else {
            return end(ends::inexpressible(method));
        };
        rounds.state.round += 1;
        rounds.state.waits = 0;
        let mut questions = Vec::new();
        for (draft, asked) in formed {
            questions.push(self.open(rounds, draft, asked, cancelled).await?);
        }
        let now = self.shared.rooms.clock.unix_millis();
        let human = u64::try_from(HUMAN.as_millis()).unwrap_or(u64::MAX);
        (rounds.state.since, rounds.state.until) = (now, now.saturating_add(human));
        self.enter(rounds, Stage::Asking).await?;
        self.put(rounds, questions).await
    }

    /// Opens a question: from now on it can be answered, to any process.
    async fn open(
        &self,
        rounds: &mut Rounds,
        mut draft: Draft,
        asked: Asked,
        cancelled: &mut Cancelled,
    ) -> Result<Question, Stop> {
        let (shared, live) = (&self.shared, &self.live);
        let number = match live.next_number(shared).await {
            Ok(number) => number,
            Err(text) => return end(ends::away(text)),
        };
        let id = Id::integer(i64::try_from(number).unwrap_or(i64::MAX));
        draft.set_id(&id);
        let from = self.asker(rounds, &id);
        let kept = match live.written_down(shared, &id, (&from, true)).await {
            Ok(kept) => kept,
            Err(text) => return end(ends::away(text)),
        };
        self.register(rounds, &id, kept, cancelled).await?;
        let id_of_it = id.clone();
        rounds.state.asked.push(Asked { id, ..asked });
        Ok(Question {
            id: id_of_it,
            payload: draft.to_bytes(),
        })
    }

    fn asker(&self, rounds: &Rounds, id: &Id) -> QuestionRef {
        QuestionRef {
            tenant: self.live.name.tenant.clone(),
            upstream: rounds.state.upstream.clone(),
            sharing: Sharing::Session(self.live.name.clone()),
            id: id.clone(),
            asked_as: id.clone(),
        }
    }

    /// The answer to that question finds this call, unless the call is over.
    pub(super) async fn register(
        &self,
        rounds: &Rounds,
        id: &Id,
        kept: bool,
        cancelled: &mut Cancelled,
    ) -> Result<(), Stop> {
        let open = Open {
            from: self.asker(rounds, id),
            token: None,
            kept,
            round: Some(rounds.sender.clone()),
        };
        let registered = self.live.machine().ask(id.clone(), Some(self.ticket), open);
        let Err(refused) = registered else {
            return Ok(());
        };
        self.live.unkept(&self.shared, id, &refused).await;
        Err(Stop::Cancelled(cancelled.await.ok()))
    }

    /// Sends the questions, together with the note of how the call stands with them.
    async fn put(&mut self, rounds: &Rounds, questions: Vec<Question>) -> Result<(), Stop> {
        let note = self.standing(rounds);
        if self.live.machine().phase() == Phase::Opened {
            // LIF-05: before the client is ready they wait with all else that is not an answer
            self.sink.note(note, false).await;
            for question in questions {
                self.live.publish_question(&self.shared, question).await;
            }
            return Ok(());
        }
        let payloads: Vec<Bytes> = questions.into_iter().map(|one| one.payload).collect();
        let asked = patiently(|| async {
            let asked = self.sink.ask(Some(note.clone()), payloads.clone());
            asked.await.then_some(())
        });
        match asked.await {
            Some(()) => Ok(()),
            None => end(ends::away(AWAY)),
        }
    }
}
