//! Hears what other replicas say, and does what can be done at once.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::core::{Core, leave};
use super::hint::{Hint, Kind};
use crate::event_id::StreamId;
use crate::held::Held;
use crate::tail::Stop;

/// Listens as long as the log is there.
pub(super) async fn listen(core: Weak<Core>, mut hints: Receiver<Bytes>) {
    loop {
        let heard = hints.recv().await;
        let Some(core) = core.upgrade() else { return };
        match heard {
            Ok(text) => {
                if let Some(hint) = Hint::parse(&text) {
                    core.hear(hint);
                }
            }
            Err(RecvError::Lagged(_)) => {} // hints may be lost
            Err(RecvError::Closed) => return,
        }
    }
}

impl Core {
    fn hear(self: &Arc<Self>, hint: Hint) {
        #[cfg(test)]
        if self.fate.is_deaf() {
            return;
        }
        let Some(held) = self.known(&hint.tag) else {
            self.hear_of_unknown(hint);
            return;
        };
        match (hint.kind, hint.stream) {
            (Kind::Gone, _) => self.gone(&held),
            (Kind::LostQuestion, _) => held.with(|log, _| log.lose([hint.rest])),
            (_, Some(id)) => self.hear_of(&held, id, hint),
            (_, None) => {}
        }
    }

    fn hear_of(self: &Arc<Self>, held: &Arc<Held>, id: StreamId, hint: Hint) {
        let Hint {
            kind, number, rest, ..
        } = hint;
        match kind {
            Kind::Appended => held.with(|log, _| log.ring_bell(id)),
            Kind::Fenced => held.with(|log, _| log.fenced_by(id, number, rest)),
            Kind::Superseded => held.with(|log, _| log.superseded(id, number, rest)),
            Kind::Closed => held.with(|log, _| log.word(id)),
            Kind::Repair => held.with(|log, _| log.probe(id)),
            Kind::Pause => held.with(|log, _| log.stop(id, Stop::Planned)),
            Kind::Evicted => held.with(|log, _| {
                if log.registration(id) == Some(number) {
                    log.stop(id, Stop::Evicted);
                }
            }),
            Kind::Waiting => {
                if held.with(|log, _| log.registration(id)) == Some(number) {
                    self.knock(held);
                } else {
                    // nobody is there any more, and the one before shall get it
                    let (core, held) = (Arc::clone(self), Arc::clone(held));
                    self.spawn(async move { leave(&core, &held, id, number).await });
                }
            }
            Kind::LostQuestion | Kind::Gone => {}
        }
    }

    /// Whoever waits for readers here to be closed need not wait: there are none.
    fn hear_of_unknown(self: &Arc<Self>, hint: Hint) {
        let Some(slot) = vestibule_store::redis::Slot::from_tag(&hint.tag) else {
            return;
        };
        if matches!(hint.kind, Kind::Fenced | Kind::Superseded) {
            let core = Arc::clone(self);
            let to = Arc::clone(&hint.rest);
            let answer = Hint {
                kind: Kind::Closed,
                rest: Arc::clone(&self.me),
                number: 0,
                ..hint
            };
            self.spawn(async move { core.send(&to, &answer, &slot).await });
        }
    }
}
