//! From whoever has something to say to a session's standalone stream: it waits in the store, or
//! here while the store cannot be reached.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;
use vestibule_store::random;
use vestibule_terms::mutation;

use super::core::{Core, PATIENCE, Pause};
use super::standalone::texts;
use super::{keys, script};
use crate::LogError;
use crate::held::Held;
use crate::log::{Class, Event, gone};

/// The most that is published at once after the store was away.
const PUSHED: usize = 64;

impl Core {
    /// See [`StreamLog::publish`](crate::StreamLog::publish).
    pub(super) async fn publish(
        &self,
        held: &Arc<Held>,
        events: Vec<Event>,
    ) -> Result<Vec<Arc<str>>, LogError> {
        let asks = events
            .iter()
            .any(|event| matches!(event.class, Class::Question(_)));
        if mutation::on("publish-before-append") {
            let early = events.clone();
            held.with(|log, at| log.publish_alone(early, at))?;
        }
        if held.with(|log, _| log.is_unpublished()) {
            return held.grow(None, |log, at| log.publish_alone(events, at));
        }
        let pushed = self.push(held, &events, PATIENCE).await;
        if asks {
            self.asking.insert(held.session.clone());
        }
        match pushed {
            Err(LogError::Unavailable(_)) => {
                held.grow(None, |log, at| log.publish_alone(events, at))
            }
            other => other,
        }
    }

    /// Lets events wait in the store; the questions that had to make room for them.
    async fn push(
        &self,
        held: &Arc<Held>,
        events: &[Event],
        patience: Duration,
    ) -> Result<Vec<Arc<str>>, LogError> {
        let slot = held.slot();
        let limits = &self.memory.shared().limits;
        let mut args = vec![
            keys::text(&self.me),
            keys::text(slot.tag()),
            keys::number(self.times.now().unix_millis),
            keys::millis(limits.standalone_idle),
            keys::number(limits.stream_events as u64),
            keys::number(limits.stream_bytes as u64),
            keys::number(events.len() as u64),
        ];
        for event in events {
            let (kind, subject) = match &event.class {
                Class::Message => ("0", ""),
                Class::Log => ("1", ""),
                Class::Invalidation(subject) => ("2", &**subject),
                Class::Question(key) => ("3", &**key),
            };
            args.extend([keys::text(kind), keys::text(subject), event.payload.clone()]);
        }
        let [waiting, index] = keys::waiting(slot);
        // by this name it is known whether it has run already
        let once = slot.key(&format!("p:{}", hex(random::<12>())));
        let all = [keys::log(slot), waiting, index, once];
        let reply = self
            .insist(&script::PUSH, slot, &all, args, patience)
            .await?;
        let [said, holder, lost] = reply.list() else {
            self.gone(held);
            return gone();
        };
        debug_assert_eq!(said.text(), Some("OK"));
        if holder.text() == Some(&self.me) {
            self.knock(held);
        }
        Ok(texts(lost))
    }
}

fn hex<const N: usize>(bytes: [u8; N]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Gives the store what was published while it was away.
pub(super) async fn flush(core: Weak<Core>, held: Arc<Held>) {
    let mut pause = Pause::default();
    loop {
        sleep(pause.next()).await;
        let Some(core) = core.upgrade() else { return };
        // a look costs nothing: what is taken out here cannot be delivered meanwhile
        if core.look(&held, None, false).await.is_err() {
            continue;
        }
        loop {
            let mut events = held.with(|log, _| log.take_unpublished());
            if events.is_empty() {
                return;
            }
            let rest = events.split_off(events.len().min(PUSHED));
            let pushed = core.push(&held, &events, PATIENCE).await;
            let (failed, back) = match pushed {
                Ok(lost) => {
                    held.with(|log, _| log.lose(lost));
                    (false, rest)
                }
                Err(LogError::Unavailable(_)) => (true, [events, rest].concat()),
                Err(_gone) => return,
            };
            held.with(|log, at| log.put_back(back, at));
            if failed {
                break;
            }
        }
    }
}
