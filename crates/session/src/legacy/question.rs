//! Questions of upstreams to a session's client: capability gate, ids of this hop, one answer, and
//! an answer for the upstream whatever happens (6.4).

use std::sync::Arc;

use bytes::Bytes;
use vestibule_exchange::{Question, QuestionRef};
use vestibule_frame::{Draft, Frame, Id, encode as write, meta};
use vestibule_store::{StoreError, modify, random};
use vestibule_streamlog::{Class, Event};
use vestibule_terms::reject::code;
use vestibule_terms::{Direction, Method};

use super::claim;
use super::live::{Live, Open};
use super::patience::patiently;
use crate::encode;
use crate::machine::Ticket;
use crate::modern::answer_with_error;
use crate::room::Shared;

const AWAY: &str = "the client cannot be asked: the gateway's store is away";

fn unless_away<T>(answer: Result<T, StoreError>) -> Option<T> {
    answer
        .inspect_err(|error| tracing::debug!(%error, "a question waits for the store"))
        .ok()
}

/// A question ready to be sent.
pub(super) struct Asked {
    pub(super) id: Id,
    pub(super) payload: Bytes,
}

impl Live {
    /// Prepares a question about a call, or about none. Refused ones are answered here: what the
    /// client did not declare it is not asked (CAP-06, ELI-01, ROO-03).
    pub(super) async fn ask(
        &self,
        shared: &Shared,
        question: Question,
        about: Option<Ticket>,
    ) -> Option<Asked> {
        let mut draft = question.message.clone();
        let refused = self.may_be_asked(&question).and_then(|()| {
            encode::question(
                &mut draft,
                question.method,
                self.revision(),
                &self.capabilities,
            )
            .map_err(|_inexpressible| code::INVALID_PARAMS)
        });
        if let Err(code) = refused {
            let text = "the client cannot be asked this";
            answer_with_error(&shared.back, question.from, code, text);
            return None;
        }
        let number = match self.next_number(shared).await {
            Ok(number) => number,
            Err(text) => {
                answer_with_error(&shared.back, question.from, code::INTERNAL, text);
                return None;
            }
        };
        let id = Id::integer(i64::try_from(number).unwrap_or(i64::MAX));
        let token = restamp(&mut draft, &id);
        let kept = match self
            .written_down(shared, &id, (&question.from, false))
            .await
        {
            Ok(kept) => kept,
            Err(text) => {
                answer_with_error(&shared.back, question.from, code::INTERNAL, text);
                return None;
            }
        };
        let open = Open {
            from: question.from,
            token,
            kept,
            round: None,
        };
        let asked = self.machine().ask(id.clone(), about, open);
        if let Err(refused) = asked {
            self.unkept(shared, &id, &refused).await;
            let text = "the call is over";
            answer_with_error(&shared.back, refused.from, code::INTERNAL, text);
            return None;
        }
        Some(Asked {
            id,
            payload: Bytes::from(draft.chunks().concat()),
        })
    }

    /// A number that no question of this session has had. A store that is away is waited for: the
    /// upstream waits for its client anyway (EL-22).
    pub(super) async fn next_number(&self, shared: &Shared) -> Result<u64, &'static str> {
        let number = patiently(|| async {
            // a store that has lost its tail gives the number of before again: what comes next differs
            let [a, b, c] = random::<3>();
            let step = 1 + u64::from(u32::from_be_bytes([0, a, b, c]) >> 4);
            let number = modify(&*shared.rooms.sessions, &self.key, |state| {
                state.next_question += step;
                state.next_question
            });
            unless_away(number.await)
        });
        let number = number.await.ok_or(AWAY)?;
        number.ok_or("the client's session has ended")
    }

    /// Whether every process may take the answer. A question that the client sees first would be lost on
    /// those who do not know of it.
    pub(super) async fn written_down(
        &self,
        shared: &Shared,
        id: &Id,
        (from, between_rounds): (&QuestionRef, bool),
    ) -> Result<bool, &'static str> {
        let kept = patiently(|| async {
            unless_away(claim::put(shared, self, id, (from, between_rounds)).await)
        });
        kept.await.ok_or(AWAY)
    }

    /// Whoever asked does not wait for an answer any more; false when the client has answered, to
    /// whichever process.
    pub(super) async fn unkept(&self, shared: &Shared, id: &Id, open: &Open) -> bool {
        !open.kept || claim::forget(shared, self, id).await
    }

    fn may_be_asked(&self, question: &Question) -> Result<(), i64> {
        let can = &self.capabilities;
        let known = question
            .method
            .allowed(Direction::ServerRequest, self.revision());
        let asks = |method| question.method == method;
        let declared = (asks(Method::RootsList) && can.roots)
            || (asks(Method::SamplingCreateMessage) && can.sampling)
            || (asks(Method::ElicitationCreate) && (can.elicit_form || can.elicit_url));
        if !known || !declared {
            return Err(code::METHOD_NOT_FOUND);
        }
        if asks(Method::ElicitationCreate) {
            let url = mode(question.message.frame()).as_deref() == Some("url");
            let able = if url { can.elicit_url } else { can.elicit_form };
            return if able {
                Ok(())
            } else {
                Err(code::INVALID_PARAMS)
            };
        }
        Ok(())
    }

    /// The upstream withdraws a question: its `notifications/cancelled` with the client's id
    /// (5.4); none when the question is no longer open.
    pub(super) async fn withdraw(
        &self,
        shared: &Shared,
        draft: Draft,
        is_it: impl Fn(&QuestionRef) -> bool,
    ) -> Option<Bytes> {
        let frame = draft.frame();
        let params = frame.params()?;
        let theirs = Id::from_token(frame.shared(frame.member(params, "requestId")?))?;
        let withdrawn = self
            .machine()
            .withdraw(|open| open.from.id == theirs && is_it(&open.from));
        let (id, open) = withdrawn?;
        if !self.unkept(shared, &id, &open).await {
            return None;
        }
        let mut draft = draft;
        draft.set_member(params, "requestId", id.token());
        Some(Bytes::from(draft.chunks().concat()))
    }

    /// Puts a question that belongs to no stream before the client on its standalone stream.
    pub(super) async fn publish_question(&self, shared: &Shared, asked: Asked) {
        let class = Class::Question(Arc::from(asked.id.to_string()));
        self.publish(
            shared,
            Event {
                class,
                payload: asked.payload,
            },
        )
        .await;
    }
}

/// Questions that will never reach their client: their upstreams get an error.
pub(crate) fn lost(shared: &Shared, live: &Live, keys: &[Arc<str>]) {
    for key in keys {
        let id = Id::from_token(Bytes::copy_from_slice(key.as_bytes()));
        let open = id.and_then(|id| live.machine().answer(&id));
        if let Some((_, open)) = open {
            if let Some(round) = open.round {
                let text = "the question could not be delivered";
                let answer = write::error(None, code::INTERNAL, text, None);
                let id = Id::from_token(Bytes::copy_from_slice(key.as_bytes()));
                let _nobody_waits = id.is_none_or(|id| round.try_send((id, answer)).is_err());
                continue;
            }
            let text = "the question could not be delivered to the client";
            answer_with_error(&shared.back, open.from, code::INTERNAL, text);
        }
    }
}

/// `notifications/cancelled` for a question whose call is over.
pub(super) fn no_longer(id: &Id) -> Bytes {
    let params = write::object(&[("requestId", id.as_bytes())]);
    write::notification(Method::Cancelled.as_str(), Some(&params))
}

/// Gives a question this hop's id, and this hop's progress token where it has one.
fn restamp(draft: &mut Draft, id: &Id) -> Option<Id> {
    let frame = draft.frame().clone();
    let token = frame
        .progress_token()
        .and_then(|span| Id::from_token(frame.shared(span)));
    draft.set_id(id);
    if token.is_some() {
        draft.set_meta(meta::PROGRESS_TOKEN, id.token());
    }
    token
}

fn mode(frame: &Frame) -> Option<String> {
    let mode = frame.member(frame.params()?, "mode")?;
    frame.string(mode).map(|mode| mode.into_owned())
}
