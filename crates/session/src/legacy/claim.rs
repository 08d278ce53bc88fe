//! Open questions as the session's record keeps them: any process may take the answer, and one
//! delivers it, once (EL-18, STA-16).
//!
//! A claim holds the answer itself. Whoever brings the same bytes again after the claimer died in
//! between delivers them; an answer that was claimed by somebody who lives is his to deliver.

use bytes::Bytes;
use vestibule_exchange::{QuestionRef, Sharing};
use vestibule_frame::Id;
use vestibule_store::{Decoder, Encoder, Kind, Liveness, ReplicaId, StoreError};
use vestibule_terms::UpstreamId;

use super::live::Live;
use crate::room::Shared;

const FORMAT: u8 = 1;
const OPEN: u8 = 0;
const CLAIMED: u8 = 1;

/// What became of an attempt to claim an answer.
pub(super) enum Claim {
    /// It is this process's to deliver.
    Mine(Box<QuestionRef>, Receipt),
    /// No such question is open, or somebody else has claimed its answer.
    Nothing,
    /// The store cannot be asked.
    Away,
}

/// The claim, to be given up when the answer has been delivered.
pub(super) struct Receipt {
    name: String,
    record: Bytes,
}

struct Question {
    upstream: UpstreamId,
    id: Id,
    asked_as: Id,
    /// By whom its answer is claimed, and the answer.
    claimed: Option<(ReplicaId, Bytes)>,
}

/// Writes an open question down. False when only this process will know of it.
pub(super) async fn put(shared: &Shared, live: &Live, id: &Id, from: &QuestionRef) -> bool {
    if from.sharing != Sharing::Session(live.name.clone()) {
        return false;
    }
    let question = Question {
        upstream: from.upstream.clone(),
        id: from.id.clone(),
        asked_as: from.asked_as.clone(),
        claimed: None,
    };
    let record = question.write();
    let sessions = &shared.rooms.sessions;
    let name = id.to_string();
    let kept = sessions.keep(&live.key, Kind::Question, &name, record);
    match kept.await {
        Ok(kept) => kept.is_some_and(|kept| kept.mine),
        Err(error) => {
            tracing::debug!(%error, "a question is not written down");
            false
        }
    }
}

/// Claims the answer to a question.
pub(super) async fn take(shared: &Shared, live: &Live, id: &Id, answer: &Bytes) -> Claim {
    match taken(shared, live, id, answer).await {
        Ok(Some((question, receipt))) => {
            let from = QuestionRef {
                tenant: live.name.tenant.clone(),
                upstream: question.upstream,
                sharing: Sharing::Session(live.name.clone()),
                id: question.id,
                asked_as: question.asked_as,
            };
            Claim::Mine(Box::new(from), receipt)
        }
        Ok(None) => Claim::Nothing,
        Err(error) => {
            tracing::debug!(%error, "an answer could not be claimed");
            Claim::Away
        }
    }
}

async fn taken(
    shared: &Shared,
    live: &Live,
    id: &Id,
    answer: &Bytes,
) -> Result<Option<(Question, Receipt)>, StoreError> {
    let (sessions, fleet) = (&shared.rooms.sessions, &shared.rooms.fleet);
    let name = id.to_string();
    let Some(record) = sessions.kept(&live.key, Kind::Question, &name).await? else {
        return Ok(None);
    };
    let Some(mut question) = Question::read(&record) else {
        return Ok(None);
    };
    if let Some((claimer, claimed)) = &question.claimed {
        let same = claimed == answer;
        if !same || fleet.liveness(claimer).await? != Liveness::Dead {
            return Ok(None);
        }
    }
    question.claimed = Some((fleet.replica().clone(), answer.clone()));
    let claim = question.write();
    let swapped = sessions.swap_kept(
        &live.key,
        Kind::Question,
        &name,
        &record,
        Some(claim.clone()),
    );
    let mine = swapped.await?;
    let receipt = Receipt {
        name,
        record: claim,
    };
    Ok(mine.then_some((question, receipt)))
}

/// The answer has reached its upstream.
pub(super) async fn delivered(shared: &Shared, live: &Live, receipt: Receipt) {
    let Receipt { name, record } = receipt;
    let sessions = &shared.rooms.sessions;
    let gone = sessions.swap_kept(&live.key, Kind::Question, &name, &record, None);
    if let Err(error) = gone.await {
        tracing::debug!(%error, "an answered question could not be forgotten");
    }
}

/// The question is over without an answer; false when its answer has been claimed after all.
pub(super) async fn forget(shared: &Shared, live: &Live, id: &Id) -> bool {
    let sessions = &shared.rooms.sessions;
    let name = id.to_string();
    let record = match sessions.kept(&live.key, Kind::Question, &name).await {
        Ok(Some(record)) => record,
        Ok(None) => return false, // answered elsewhere
        Err(_store_is_away) => return true,
    };
    let open = Question::read(&record).is_some_and(|question| question.claimed.is_none());
    if open {
        delivered(shared, live, Receipt { name, record }).await;
    }
    open
}

// === impl Question ===

impl Question {
    fn write(&self) -> Bytes {
        let state = if self.claimed.is_some() {
            CLAIMED
        } else {
            OPEN
        };
        let record = Encoder::new(FORMAT)
            .bytes(self.upstream.as_str().as_bytes())
            .bytes(self.id.as_bytes())
            .bytes(self.asked_as.as_bytes())
            .byte(state);
        let record = match &self.claimed {
            Some((claimer, answer)) => record.bytes(claimer.as_str().as_bytes()).bytes(answer),
            None => record,
        };
        Bytes::from(record.finish())
    }

    fn read(record: &Bytes) -> Option<Self> {
        let mut fields = Decoder::new(FORMAT, record.clone())?;
        let upstream = UpstreamId::new(&fields.text()?).ok()?;
        let id = Id::from_token(fields.bytes()?)?;
        let asked_as = Id::from_token(fields.bytes()?)?;
        let claimed = match fields.byte()? {
            OPEN => None,
            CLAIMED => Some((ReplicaId::new(&fields.text()?)?, fields.bytes()?)),
            _ => return None,
        };
        fields.end()?;
        Some(Self {
            upstream,
            id,
            asked_as,
            claimed,
        })
    }
}
