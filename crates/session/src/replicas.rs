//! What the processes of a fleet tell each other about sessions: only what the store cannot say to
//! whoever asks it next, because it is about something that goes on in a process right now.
//!
//! A word is acknowledged after its effect, so that one who dies in between leaves it to be taken
//! again; every effect can be had twice.

use std::sync::Arc;

use bytes::Bytes;
use vestibule_exchange::{Closing, LogLevel};
use vestibule_frame::Id;
use vestibule_store::{Decoder, Encoder, ReplicaId, SessionKey, StoreError};

use crate::legacy::{self, Live};
use crate::room::Shared;

const FORMAT: u8 = 1;
const CANCEL: u8 = 0;
const LEVEL: u8 = 1;
const ENDED: u8 = 2;
const ANSWER: u8 = 3;
const DELIVER: u8 = 4;

/// One thing to be told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The client no longer wants the request of that id, which runs elsewhere (CAN-01).
    Cancel(SessionKey, Id),
    /// The client has set another log level.
    Level(SessionKey, LogLevel),
    /// The session has ended.
    Ended(SessionKey),
    /// The client has answered a question of that id, of which the store does not know (EL-13).
    Answer(SessionKey, Id, Bytes),
    /// The client has answered a question of that id, and only whoever is told can bring the answer to
    /// the upstream, which is its child (EL-18).
    Deliver(SessionKey, Id, Bytes),
}

impl Word {
    fn write(&self) -> Bytes {
        let begin = |kind, session: &SessionKey| session.encode(Encoder::new(FORMAT).byte(kind));
        let word = match self {
            Word::Cancel(session, id) => begin(CANCEL, session).bytes(id.as_bytes()),
            Word::Level(session, level) => begin(LEVEL, session).bytes(level.as_str().as_bytes()),
            Word::Ended(session) => begin(ENDED, session),
            Word::Answer(session, id, answer) => {
                begin(ANSWER, session).bytes(id.as_bytes()).bytes(answer)
            }
            Word::Deliver(session, id, answer) => {
                begin(DELIVER, session).bytes(id.as_bytes()).bytes(answer)
            }
        };
        Bytes::from(word.finish())
    }

    /// Reads a word; what a newer version says is none.
    pub(crate) fn read(word: &Bytes) -> Option<Self> {
        let mut fields = Decoder::new(FORMAT, word.clone())?;
        let kind = fields.byte()?;
        let session = SessionKey::decode(&mut fields)?;
        let word = match kind {
            CANCEL => Word::Cancel(session, Id::from_token(fields.bytes()?)?),
            LEVEL => Word::Level(session, LogLevel::parse(&fields.text()?)?),
            ENDED => Word::Ended(session),
            ANSWER => Word::Answer(session, Id::from_token(fields.bytes()?)?, fields.bytes()?),
            DELIVER => Word::Deliver(session, Id::from_token(fields.bytes()?)?, fields.bytes()?),
            _ => return None,
        };
        fields.end()?;
        Some(word)
    }

    /// Whether its effect is waited for: a call has to end, an upstream to take an answer.
    pub(crate) fn takes_time(&self) -> bool {
        matches!(
            self,
            Word::Cancel(..) | Word::Answer(..) | Word::Deliver(..)
        )
    }
}

/// Tells every other process; false when they cannot be told now.
pub(crate) async fn tell(shared: &Shared, word: Word) -> bool {
    let told = shared.rooms.fleet.broadcast(word.write()).await;
    if let Err(error) = &told {
        tracing::debug!(%error, "the other replicas could not be told");
    }
    told.is_ok()
}

/// Tells one process; false when it is dead.
pub(crate) async fn send(shared: &Shared, to: &ReplicaId, word: &Word) -> Result<bool, StoreError> {
    shared.rooms.fleet.send(to, word.write()).await
}

/// Does what another process has said.
pub(crate) async fn obey(shared: &Arc<Shared>, word: Word) {
    match word {
        Word::Cancel(session, id) => {
            legacy::cancel_or_remember(shared, &session, &id).await;
        }
        Word::Level(session, level) => {
            if let Some(live) = live(shared, &session) {
                live.set_level(level);
            }
        }
        Word::Answer(session, id, answer) => {
            if let Some(live) = live(shared, &session) {
                legacy::told(shared, &live, id, answer).await;
            }
        }
        Word::Deliver(session, id, answer) => {
            if let Some(live) = live(shared, &session) {
                legacy::handed_over(shared, &live, &id, answer).await;
            }
        }
        Word::Ended(session) => {
            // said after the upstream sessions that are written down were ended
            legacy::take_down(shared, &session, Closing::Elsewhere).await;
        }
    }
}

fn live(shared: &Shared, session: &SessionKey) -> Option<Arc<Live>> {
    let name = Live::name_of(session);
    shared.lives.get(&name).map(|live| Arc::clone(&live))
}

#[cfg(test)]
mod tests {
    use vestibule_terms::{SessionId, TenantId};

    use super::*;

    #[test]
    fn words_are_read_as_they_were_written_and_cut_ones_are_not() {
        let tenant = TenantId::new("acme").unwrap();
        let session = SessionKey::new(&tenant, "alice", &SessionId::new("s"));
        for word in [
            Word::Cancel(session.clone(), Id::string("7")),
            Word::Level(session.clone(), LogLevel::Error),
            Word::Ended(session.clone()),
            Word::Answer(session.clone(), Id::string("7"), Bytes::from_static(b"{}")),
            Word::Deliver(session.clone(), Id::string("7"), Bytes::from_static(b"{}")),
        ] {
            let written = word.write();
            assert_eq!(Word::read(&written), Some(word));
            for cut in 0..written.len() {
                assert_eq!(Word::read(&written.slice(..cut)), None, "{cut}");
            }
        }
    }
}
