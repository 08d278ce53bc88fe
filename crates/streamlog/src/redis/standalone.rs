//! Messages for standalone streams: any replica publishes them, the one with the newest
//! connection of the session delivers them (GET-04, GET-05).
//!
//! What is published waits in the store. Whoever has the newest reader, and only while that reader
//! waits for something, looks what there is, gives it its place on that reader's stream and has it
//! appended there in the one step in which it ceases to wait: a crash on either side of that step
//! loses and repeats nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use vestibule_store::redis::Reply;
use vestibule_store::{AtRest, Liveness, ReplicaId};

use super::core::{Core, Pause, jittered, unavailable};
use super::{keys, script};
use crate::LogError;
use crate::event_id::StreamId;
use crate::held::Held;
use crate::log::gone;
use crate::session_log::{Item, Wanted};

/// The most that is taken at once, as of any append (EL-9).
const TAKEN_EVENTS: u64 = 64;
const TAKEN_BYTES: u64 = 256 * 1024;
/// How often it is looked whether something waits of which no hint came: soon after a reader has
/// come or had something, seldom when it has been quiet for long.
const SOON: Duration = Duration::from_secs(5);
const SELDOM: Duration = Duration::from_secs(40);

impl Core {
    /// Something may wait for a reader here.
    pub(super) fn knock(&self, held: &Arc<Held>) {
        if let Some(knock) = held.with(|log, _| log.knock()) {
            knock.notify_one();
        }
    }

    /// Drops what has waited too long; the questions among it.
    pub(super) async fn expire_waiting(&self, held: &Arc<Held>) -> Result<Vec<Arc<str>>, LogError> {
        let reply = self.look(held, None, false).await?;
        let [_, waiting, lost, _] = reply.list() else {
            self.asking.remove(&held.session);
            return gone();
        };
        if waiting.count() == Some(0) {
            self.asking.remove(&held.session);
        }
        Ok(texts(lost))
    }

    pub(super) async fn look(
        &self,
        held: &Arc<Held>,
        reader: Option<(StreamId, u64)>,
        told: bool,
    ) -> Result<Reply, LogError> {
        let slot = held.slot();
        let [waiting, index] = keys::waiting(slot);
        let (stream, number) = reader.map_or((String::new(), 0), |(id, number)| {
            (keys::name_of(id), number)
        });
        let args = vec![
            keys::text(&self.me),
            keys::text(slot.tag()),
            keys::text(&stream),
            keys::number(number),
            keys::number(self.times.now().unix_millis),
            keys::millis(self.memory.shared().limits.standalone_idle),
            keys::number(TAKEN_EVENTS),
            keys::number(TAKEN_BYTES),
            keys::flag(told),
        ];
        let all = [keys::log(slot), waiting, index];
        self.once(&script::LOOK, slot, &all, args).await
    }

    /// The newest standalone reader is of that replica: if it is dead, it is not.
    pub(super) async fn skip_dead(&self, held: &Arc<Held>, holder: &str) -> Result<bool, LogError> {
        let Some(replica) = ReplicaId::new(holder) else {
            return Ok(false);
        };
        let liveness = self.fleet.liveness(&replica).await.map_err(unavailable)?;
        if liveness != Liveness::Dead {
            return Ok(false);
        }
        let slot = held.slot();
        let args = vec![
            keys::text(slot.tag()),
            keys::text(holder),
            Bytes::new(),
            keys::number(0),
        ];
        self.once(&script::LEAVE, slot, &[keys::log(slot)], args)
            .await?;
        Ok(true)
    }
}

/// What looking came to.
enum Looked {
    /// Something was taken, or has to be looked at again.
    Again,
    /// Nothing waits, or it waits for another reader.
    Nothing,
}

/// Fetches what waits for the session's newest reader here, as long as that waits.
pub(super) async fn port(core: Weak<Core>, held: Arc<Held>) {
    let Some(knock) = held.with(|log, _| log.knock()) else {
        return;
    };
    let mut quiet = SOON;
    let mut pause = Pause::default();
    loop {
        let wanted = held.with(|log, _| log.wanted());
        let Some(core) = core.upgrade() else { return };
        let looked = match wanted {
            Wanted::Nothing => return,
            Wanted::Appending(wake) => {
                drop(core);
                appended(&held, &wake).await;
                continue;
            }
            // of the many who wait for a long time none holds what a look takes
            Wanted::Enlist(id) => Box::pin(enlist(&core, &held, id)).await,
            Wanted::Look(id, number) => Box::pin(fetch(&core, &held, (id, number)))
                .await
                .map_err(|_unavailable| ()),
        };
        drop(core);
        match looked {
            Ok(Looked::Again) => quiet = SOON,
            Ok(Looked::Nothing) => {
                pause.reset();
                if timeout(jittered(quiet), knock.notified()).await.is_err() {
                    quiet = (quiet * 2).min(SELDOM);
                }
            }
            Err(()) => sleep(pause.next()).await,
        }
    }
}

async fn enlist(core: &Core, held: &Arc<Held>, id: StreamId) -> Result<Looked, ()> {
    let number = core.number();
    let enlisted = core.enlist_again(held, id, number).await;
    if enlisted {
        held.with(|log, _| log.enlisted(id, number));
    }
    enlisted.then_some(Looked::Again).ok_or(())
}

/// Waits until something has happened to what is being appended.
async fn appended(held: &Arc<Held>, wake: &Arc<Notify>) {
    let woken = wake.notified();
    tokio::pin!(woken);
    woken.as_mut().enable();
    if matches!(held.with(|log, _| log.wanted()), Wanted::Appending(_)) {
        woken.await;
    }
}

/// Looks once, and takes what waits.
async fn fetch(
    core: &Arc<Core>,
    held: &Arc<Held>,
    reader: (StreamId, u64),
) -> Result<Looked, LogError> {
    let told = held.with(|log, _| log.loss_is_told());
    let reply = core.look(held, Some(reader), told).await?;
    held.with(|log, _| log.loss_is_noted(told));
    let [said, more, lost, items] = reply.list() else {
        core.gone(held);
        return gone();
    };
    held.with(|log, _| log.lose(texts(lost)));
    match said.text() {
        Some("OK") => {}
        Some("UNLISTED") => {
            held.with(|log, _| log.unlisted(reader.0, reader.1));
            return Ok(Looked::Again);
        }
        _ => {
            let dead = core
                .skip_dead(held, more.text().unwrap_or_default())
                .await?;
            return Ok(if dead { Looked::Again } else { Looked::Nothing });
        }
    }
    if more.count() == Some(1) {
        // the reader has to hear of it first, and the store then that it has
        let told = held.with(|log, _| log.tell_loss());
        return Ok(if told { Looked::Again } else { Looked::Nothing });
    }
    let at_rest = core.at_rest(held);
    let items = items.list().iter().filter_map(|reply| item(reply, at_rest));
    let items: Vec<Item> = items.collect();
    if items.is_empty() {
        return Ok(Looked::Nothing);
    }
    held.grow(Some(reader.0), |log, at| log.take_in(reader.0, items, at));
    Ok(Looked::Again)
}

fn item(reply: &Reply, (at_rest, tag): (AtRest<'_>, &str)) -> Option<Item> {
    let [name, payload] = reply.list() else {
        return None;
    };
    Some(Item {
        name: name.bytes()?.clone(),
        payload: at_rest.open(tag, payload.bytes()?.clone())?,
    })
}

pub(super) fn texts(list: &Reply) -> Vec<Arc<str>> {
    let texts = list.list().iter().filter_map(Reply::text);
    texts.map(Arc::from).collect()
}
