//! Open questions as the session's record keeps them: any process may take the answer, and one
//! delivers it, once (EL-18, STA-16).
//!
//! A claim holds the answer itself: an answer that was claimed by somebody who lives is his to deliver,
//! and whoever comes with one after the claimer died in between delivers what he had claimed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use vestibule_exchange::{QuestionRef, Sharing};
use vestibule_frame::Id;
use vestibule_store::{Decoder, Encoder, Kind, Liveness, ReplicaId, StoreError};
use vestibule_terms::UpstreamId;

use super::live::Live;
use crate::room::Shared;

const FORMAT: u8 = 1;
const OPEN: u8 = 0;
const CLAIMED: u8 = 1;
const DELIVERED: u8 = 2;
const BETWEEN_ROUNDS: u8 = 3;
const ANSWERED: u8 = 4;

/// How long, in attempts, the store is waited for: half a minute, or ten seconds.
const ATTEMPTS: u32 = 120;
const ATTEMPTS_OF_A_CALL: u32 = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// What became of an attempt to claim an answer.
pub(super) enum Claim {
    /// It is this process's to deliver.
    Mine(Box<QuestionRef>, Receipt),
    /// Its call waits for it between two rounds, and has it: it is written down until the next one.
    /// Through whom it was asked.
    Kept(ReplicaId),
    /// It has been answered.
    Over,
    /// The store knows of no such question: there is none, or the store has lost it (EL-13).
    Unknown,
    /// Somebody has claimed it and may be about to deliver it, or be dead.
    Pending,
    /// The store cannot be asked.
    Away,
}

/// The claim, to be given up when the answer has been delivered.
pub(super) struct Receipt {
    /// The answer that was claimed.
    pub(super) answer: Bytes,
    name: String,
    record: Bytes,
    /// The question as it was before.
    open: Box<Question>,
}

#[derive(Clone)]
struct Question {
    upstream: UpstreamId,
    id: Id,
    asked_as: Id,
    asker: ReplicaId,
    /// By whom its answer is claimed, and the answer; nothing of one that the session has no room for.
    claimed: Option<(ReplicaId, Bytes)>,
    /// Whether it has reached its upstream. Whoever has asked looks, and takes the record away.
    delivered: bool,
    /// Whether its answer goes into the next round of the call instead of to an upstream that waits.
    between_rounds: bool,
}

/// Writes an open question down. False when only this process will know of it; an error when the store
/// is away, and it may have been written or not.
pub(super) async fn put(
    shared: &Shared,
    live: &Live,
    id: &Id,
    (from, between_rounds): (&QuestionRef, bool),
) -> Result<bool, StoreError> {
    if from.sharing != Sharing::Session(live.name.clone()) {
        return Ok(false);
    }
    let question = Question {
        upstream: from.upstream.clone(),
        id: from.id.clone(),
        asked_as: from.asked_as.clone(),
        asker: shared.rooms.fleet.replica().clone(),
        claimed: None,
        delivered: false,
        between_rounds,
    };
    let record = question.write(shared, live);
    let sessions = &shared.rooms.sessions;
    let name = id.to_string();
    let keep = || sessions.keep(&live.key, Kind::Question, &name, record.clone());
    let mut kept = keep().await;
    if matches!(kept, Err(StoreError::NoRoom(_))) {
        drop_delivered(shared, live).await?;
        kept = keep().await;
    }
    match kept {
        // no other question has had the number: what is there already is an attempt of ours
        Ok(kept) => Ok(kept.is_some_and(|kept| kept.record == record)),
        Err(error @ StoreError::Unavailable(_)) => Err(error),
        Err(error) => {
            tracing::debug!(%error, "a question is not written down");
            Ok(false)
        }
    }
}

/// Makes room: of questions that were answered after whoever had asked died.
async fn drop_delivered(shared: &Shared, live: &Live) -> Result<(), StoreError> {
    let sessions = &shared.rooms.sessions;
    for (name, record) in sessions.all_kept(&live.key, Kind::Question).await? {
        if Question::read(shared, live, &record).is_some_and(|question| question.delivered) {
            swap(shared, live, &name, &record, None).await;
        }
    }
    Ok(())
}

/// Claims the answer to a question.
pub(super) async fn take(shared: &Shared, live: &Live, id: &Id, answer: &Bytes) -> Claim {
    taken(shared, live, id, answer)
        .await
        .unwrap_or_else(|error| {
            tracing::debug!(%error, "an answer could not be claimed");
            Claim::Away
        })
}

async fn taken(shared: &Shared, live: &Live, id: &Id, answer: &Bytes) -> Result<Claim, StoreError> {
    let (sessions, fleet) = (&shared.rooms.sessions, &shared.rooms.fleet);
    let name = id.to_string();
    let record = sessions.kept(&live.key, Kind::Question, &name).await?;
    let Some((record, question)) = record.and_then(|record| {
        let question = Question::read(shared, live, &record)?;
        Some((record, question))
    }) else {
        return Ok(Claim::Unknown);
    };
    if question.delivered {
        return Ok(Claim::Over);
    }
    if question.between_rounds {
        return answered(shared, live, (&name, &record), question, answer).await;
    }
    let answer = match &question.claimed {
        None => answer,
        Some((claimer, claimed)) if fleet.liveness(claimer).await? == Liveness::Dead => {
            // too large to be kept: it was not taken from its client, which has brought it again
            if claimed.is_empty() { answer } else { claimed }
        }
        Some(_) => return Ok(Claim::Pending),
    };
    let open = Question {
        claimed: None,
        ..question.clone()
    };
    let answer = answer.clone();
    let Some(claim) = claimed(shared, live, (&name, &record), question, &answer).await? else {
        return Ok(Claim::Pending); // by somebody else in this moment
    };
    let from = QuestionRef {
        tenant: live.name.tenant.clone(),
        upstream: open.upstream.clone(),
        sharing: Sharing::Session(live.name.clone()),
        id: open.id.clone(),
        asked_as: open.asked_as.clone(),
    };
    let receipt = Receipt {
        answer,
        name,
        record: claim,
        open: Box::new(open),
    };
    Ok(Claim::Mine(Box::new(from), receipt))
}

/// The record with the claim of this process, with the answer where the session has room for it;
/// nothing when it is not as it was any more.
async fn claimed(
    shared: &Shared,
    live: &Live,
    (name, record): (&str, &Bytes),
    question: Question,
    answer: &Bytes,
) -> Result<Option<Bytes>, StoreError> {
    let (sessions, me) = (&shared.rooms.sessions, shared.rooms.fleet.replica());
    for kept in [answer.clone(), Bytes::new()] {
        let claimed = Some((me.clone(), kept));
        let claim = Question {
            claimed,
            ..question.clone()
        };
        let claim = claim.write(shared, live);
        let new = Some(claim.clone());
        let swapped = sessions.swap_kept(&live.key, Kind::Question, name, record, new);
        match swapped.await {
            Ok(true) => return Ok(Some(claim)),
            Ok(false) => return Ok(None),
            Err(StoreError::NoRoom(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::NoRoom(Kind::Question.as_str()))
}

/// Keeps the answer for the round that comes next.
async fn answered(
    shared: &Shared,
    live: &Live,
    (name, record): (&str, &Bytes),
    question: Question,
    answer: &Bytes,
) -> Result<Claim, StoreError> {
    if question.claimed.is_some() {
        return Ok(Claim::Over);
    }
    let asker = question.asker.clone();
    let claimed = Some((shared.rooms.fleet.replica().clone(), answer.clone()));
    let answered = Question {
        claimed,
        ..question
    };
    let new = Some(answered.write(shared, live));
    let sessions = &shared.rooms.sessions;
    match sessions
        .swap_kept(&live.key, Kind::Question, name, record, new)
        .await
    {
        Ok(true) => Ok(Claim::Kept(asker)),
        Ok(false) => Ok(Claim::Pending), // something has happened to it in this moment
        Err(StoreError::NoRoom(_)) => Ok(Claim::Unknown), // whoever has asked can take it
        Err(error) => Err(error),
    }
}

/// The answer to a question that was asked between two rounds, if there is one. From now on this
/// process is the one that has asked.
pub(super) async fn taken_over(
    shared: &Shared,
    live: &Live,
    id: &Id,
) -> Result<Option<Bytes>, StoreError> {
    let (sessions, name) = (&shared.rooms.sessions, id.to_string());
    loop {
        let record = sessions.kept(&live.key, Kind::Question, &name).await?;
        let Some((record, question)) = record.and_then(|record| {
            let question = Question::read(shared, live, &record)?;
            Some((record, question))
        }) else {
            return Ok(None);
        };
        if let Some((_, answer)) = question.claimed {
            return Ok(Some(answer));
        }
        if question.asker == *shared.rooms.fleet.replica() {
            return Ok(None);
        }
        let asker = shared.rooms.fleet.replica().clone();
        let mine = Question { asker, ..question }.write(shared, live);
        let swapped = sessions.swap_kept(&live.key, Kind::Question, &name, &record, Some(mine));
        if swapped.await? {
            return Ok(None);
        }
    }
}

/// The answer has reached its upstream. Where another process has asked, that is left for it to see.
pub(super) async fn delivered(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    receipt: Receipt,
    asked_here: bool,
) {
    let Receipt {
        name, record, open, ..
    } = receipt;
    let delivered = Question {
        delivered: true,
        ..*open
    };
    let left = (!asked_here).then(|| delivered.write(shared, live));
    replaced(shared, live, (name, record), left).await;
}

/// The answer has not reached its upstream: it may be claimed again.
pub(super) async fn release(shared: &Arc<Shared>, live: &Arc<Live>, receipt: Receipt) {
    let Receipt {
        name, record, open, ..
    } = receipt;
    let open = open.write(shared, live);
    replaced(shared, live, (name, record), Some(open)).await;
}

/// Replaces a record; in the background when the store is away.
async fn replaced(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    (name, old): (String, Bytes),
    new: Option<Bytes>,
) {
    if swap(shared, live, &name, &old, new.clone()).await {
        return;
    }
    let (shared, live) = (Arc::clone(shared), Arc::clone(live));
    tokio::spawn(async move {
        for _ in 0..ATTEMPTS {
            sleep(PAUSE).await;
            if swap(&shared, &live, &name, &old, new.clone()).await {
                return;
            }
        }
    });
}

/// False when the store is away.
async fn swap(shared: &Shared, live: &Live, name: &str, old: &[u8], new: Option<Bytes>) -> bool {
    let sessions = &shared.rooms.sessions;
    let swapped = sessions.swap_kept(&live.key, Kind::Question, name, old, new);
    swapped.await.is_ok()
}

/// The question is over, whoever had claimed it: once the store is back.
pub(super) fn remove(shared: &Arc<Shared>, live: &Arc<Live>, id: Id) {
    let (shared, live) = (Arc::clone(shared), Arc::clone(live));
    tokio::spawn(async move {
        let (sessions, name) = (&shared.rooms.sessions, id.to_string());
        for _ in 0..ATTEMPTS {
            let gone = match sessions.kept(&live.key, Kind::Question, &name).await {
                Ok(Some(record)) => swap(&shared, &live, &name, &record, None).await,
                Ok(None) => true,
                Err(_store_is_away) => false,
            };
            if gone {
                return;
            }
            sleep(PAUSE).await;
        }
    });
}

/// The question is over without an answer; false when its answer has been claimed after all. While the
/// store is away nobody knows: it is waited for, but not for long, since the call's own end waits too.
pub(super) async fn forget(shared: &Shared, live: &Live, id: &Id) -> bool {
    let (sessions, name) = (&shared.rooms.sessions, id.to_string());
    for _ in 0..ATTEMPTS_OF_A_CALL {
        match sessions.kept(&live.key, Kind::Question, &name).await {
            Ok(Some(record)) => {
                let Some(question) = Question::read(shared, live, &record) else {
                    return false;
                };
                if question.claimed.is_none() {
                    swap(shared, live, &name, &record, None).await;
                }
                return question.claimed.is_none() && !question.delivered;
            }
            Ok(None) => return true, // the store has lost it
            Err(_store_is_away) => sleep(PAUSE).await,
        }
    }
    true
}

// === impl Receipt ===

impl Receipt {
    /// Through whom the upstream has asked.
    pub(super) fn asker(&self) -> &ReplicaId {
        &self.open.asker
    }
}

// === impl Question ===

impl Question {
    /// As it is kept with the session of that name; the answer sealed, where the tenant wants it (T53).
    fn write(&self, shared: &Shared, live: &Live) -> Bytes {
        let state = match &self.claimed {
            _ if self.delivered => DELIVERED,
            Some(_) if self.between_rounds => ANSWERED,
            Some(_) => CLAIMED,
            None if self.between_rounds => BETWEEN_ROUNDS,
            None => OPEN,
        };
        let record = Encoder::new(FORMAT)
            .bytes(self.upstream.as_str().as_bytes())
            .bytes(self.id.as_bytes())
            .bytes(self.asked_as.as_bytes())
            .bytes(self.asker.as_str().as_bytes())
            .byte(state);
        let record = match &self.claimed {
            Some((claimer, answer)) => {
                let at_rest = shared.rooms.sealer.at_rest(&live.name.tenant);
                let answer = at_rest.seal(live.name.session.expose(), answer);
                record.bytes(claimer.as_str().as_bytes()).bytes(&answer)
            }
            None => record,
        };
        Bytes::from(record.finish())
    }

    fn read(shared: &Shared, live: &Live, record: &Bytes) -> Option<Self> {
        let mut fields = Decoder::new(FORMAT, record.clone())?;
        let upstream = UpstreamId::new(&fields.text()?).ok()?;
        let id = Id::from_token(fields.bytes()?)?;
        let asked_as = Id::from_token(fields.bytes()?)?;
        let asker = ReplicaId::new(&fields.text()?)?;
        let state = fields.byte()?;
        let claimed = match state {
            OPEN | DELIVERED | BETWEEN_ROUNDS => None,
            CLAIMED | ANSWERED => {
                let claimer = ReplicaId::new(&fields.text()?)?;
                let at_rest = shared.rooms.sealer.at_rest(&live.name.tenant);
                let answer = at_rest.open(live.name.session.expose(), fields.bytes()?)?;
                Some((claimer, answer))
            }
            _ => return None,
        };
        fields.end()?;
        Some(Self {
            upstream,
            id,
            asked_as,
            asker,
            claimed,
            delivered: state == DELIVERED,
            between_rounds: matches!(state, BETWEEN_ROUNDS | ANSWERED),
        })
    }
}
