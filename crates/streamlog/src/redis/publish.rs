//! From whoever has something to say to a session's standalone stream: it waits in the store, or
//! here while the store cannot be reached.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use vestibule_store::random_digits;
use vestibule_terms::mutation;

use super::core::{Core, PATIENCE, Pause, jittered};
use super::standalone::texts;
use super::{keys, script};
use crate::LogError;
use crate::held::Held;
use crate::log::{Class, Event, gone};

/// The most that is published at once after the store was away.
const PUSHED: usize = 64;

/// How soon it is looked again whether there is room.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What became of events that were to wait in the store.
struct Pushed {
    /// They do not: there is no room behind what waits for the reader of that replica.
    full: Option<Arc<str>>,
    /// The questions that had to make room.
    lost: Vec<Arc<str>>,
}

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
        let pushed = self.push(held, &events, false).await;
        if asks {
            self.asking.insert(held.session.clone());
        }
        match pushed {
            Ok(pushed) => Ok(pushed.lost),
            Err(LogError::Unavailable(_)) => {
                held.grow(None, |log, at| log.publish_alone(events, at))
            }
            Err(gone) => Err(gone),
        }
    }

    /// See [`StreamLog::deliver`](crate::StreamLog::deliver). Whether there is room and the taking of
    /// it are one step. The reader may be another replica's, of whose progress nobody says anything:
    /// it is looked at again soon.
    pub(super) async fn deliver(
        &self,
        held: &Arc<Held>,
        payload: Bytes,
    ) -> Result<Option<Vec<Arc<str>>>, LogError> {
        let patience = sleep(self.memory.shared().limits.hold);
        tokio::pin!(patience);
        let class = Class::Message;
        let message = [Event { class, payload }];
        loop {
            let wake = held.with(|log, _| log.wake_of_newest());
            let wake = wake.unwrap_or_default();
            let woken = wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if let Some(lost) = self.deliver_now(held, &message).await? {
                return Ok(Some(lost));
            }
            tokio::select! {
                () = woken => {}
                () = sleep(jittered(LOOK_AGAIN)) => {}
                () = &mut patience => return Ok(None),
            }
        }
    }

    /// Nothing where it has no room; without the store, where it has none here.
    async fn deliver_now(
        &self,
        held: &Arc<Held>,
        message: &[Event; 1],
    ) -> Result<Option<Vec<Arc<str>>>, LogError> {
        if !held.with(|log, _| log.is_unpublished()) {
            match self.push(held, message, true).await {
                Ok(Pushed { full: None, lost }) => return Ok(Some(lost)),
                Ok(Pushed {
                    full: Some(holder),
                    lost,
                }) => {
                    held.with(|log, _| log.lose(lost));
                    if *holder != *self.me {
                        let _another_time = self.skip_dead(held, &holder).await.is_err();
                    }
                    return Ok(None);
                }
                Err(LogError::Unavailable(_)) => {}
                Err(gone) => return Err(gone),
            }
        }
        let [Event { payload, .. }] = message;
        held.grow(None, |log, at| {
            let room = log.wake_of_newest().is_none() || log.has_room_behind(payload.len());
            room.then(|| log.publish_alone(message.to_vec(), at))
                .transpose()
        })
    }

    /// Lets events wait in the store. With `spare` nothing that waits for a reader makes room.
    async fn push(
        &self,
        held: &Arc<Held>,
        events: &[Event],
        spare: bool,
    ) -> Result<Pushed, LogError> {
        let slot = held.slot();
        let limits = &self.memory.shared().limits;
        let (at_rest, tag) = self.at_rest(held);
        let mut args = vec![
            keys::text(&self.me),
            keys::text(tag),
            keys::number(self.times.now().unix_millis),
            keys::millis(limits.standalone_idle),
            keys::number(limits.stream_events as u64),
            keys::number(limits.stream_bytes as u64),
            keys::number(events.len() as u64),
            keys::flag(spare),
        ];
        for event in events {
            let (kind, subject) = match &event.class {
                Class::Message => ("0", ""),
                Class::Log => ("1", ""),
                Class::Invalidation(subject) => ("2", &**subject),
                Class::Question(key) => ("3", &**key),
            };
            let payload = at_rest.seal(tag, &event.payload);
            args.extend([keys::text(kind), keys::text(subject), payload]);
        }
        let [waiting, index] = keys::waiting(slot);
        // by this name it is known whether it has run already
        let once = slot.key(&format!("p:{}", random_digits::<12>()));
        let all = [keys::log(slot), waiting, index, once];
        let reply = self
            .insist(&script::PUSH, slot, &all, args, PATIENCE)
            .await?;
        let [said, holder, lost] = reply.list() else {
            self.gone(held);
            return gone();
        };
        if holder.text() == Some(&self.me) {
            self.knock(held);
        }
        let full = said.text() == Some("FULL");
        Ok(Pushed {
            full: full.then(|| Arc::from(holder.text().unwrap_or_default())),
            lost: texts(lost),
        })
    }
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
            let pushed = core.push(&held, &events, false).await;
            let (failed, back) = match pushed {
                Ok(pushed) => {
                    held.with(|log, _| log.lose(pushed.lost));
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
