//! From this replica's streams to the store: one append under way a stream (EL-9), again until it
//! is answered.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::time::sleep;
use vestibule_store::redis::Reply;
use vestibule_terms::mutation;

use super::core::{Core, Pause, unavailable};
use super::{keys, record, script};
use crate::LogError;
use crate::event_id::StreamId;
use crate::held::Held;
use crate::session_log::{Answer, Batch};

/// Appends what the store lacks of a stream, until it lacks nothing or the stream is not ours.
pub(super) async fn ship(core: Weak<Core>, held: Arc<Held>, id: StreamId, shipper: u64) {
    let mut pause = Pause::default();
    loop {
        let Some(core) = core.upgrade() else { return };
        let Some(batch) = held.with(|log, at| log.next_batch(id, shipper, at)) else {
            return;
        };
        if mutation::on("deliver-before-append") {
            held.with(|log, _| log.pretend_stored(id, batch.top));
        }
        match append(&core, &held, id, &batch).await {
            Ok(answer) => {
                // what it has lost of one stream it may have lost of others
                if pause.reset() || matches!(answer, Answer::Rollback { .. }) {
                    core.probe_everything();
                }
                held.with(|log, at| log.answered(id, &batch, &answer, at));
                if answer == Answer::Gone {
                    core.drop_session(&held);
                    return;
                }
            }
            Err(_unavailable) => {
                held.with(|log, at| log.unanswered(id, at));
                drop(core);
                sleep(pause.next()).await;
            }
        }
    }
}

async fn append(core: &Core, held: &Held, id: StreamId, batch: &Batch) -> Result<Answer, LogError> {
    if batch.begin.is_some() && !id.is_standalone() {
        // the index first: what is in it for nothing is harmless, what is missing has no end
        let entry = record::entry(&held.session, id);
        core.fleet.owns(entry).await.map_err(unavailable)?;
    }
    let slot = held.slot();
    let [stream, events] = keys::stream(slot, id);
    let [waiting, index] = keys::waiting(slot);
    let all = [stream, events, keys::log(slot), waiting, index];
    let args = arguments(core, held, id, batch);
    let reply = core.once(&script::APPEND, slot, &all, args).await?;
    let answer = answer_of(&reply).ok_or_else(|| {
        LogError::Unavailable("the store answered an append with something else".into())
    })?;
    if answer == Answer::Fenced && mutation::on("drop-fence") {
        return Ok(Answer::Stored);
    }
    Ok(answer)
}

fn arguments(core: &Core, held: &Held, id: StreamId, batch: &Batch) -> Vec<Bytes> {
    let limits = &core.memory.shared().limits;
    let (at_rest, tag) = core.at_rest(held);
    let (meta, history) = if id.is_standalone() {
        (limits.standalone_idle, limits.standalone_idle)
    } else if batch.ended.is_some() {
        (limits.meta, limits.idle)
    } else {
        // the owner trims what is old, and says again and again that it lives
        (limits.meta, limits.meta)
    };
    let ended = batch.ended.map_or_else(Bytes::new, |ended| {
        keys::number(core.times.now().millis_of(ended))
    });
    let (epoch, key_id, requests) = match &batch.begin {
        Some(begin) => (
            Bytes::copy_from_slice(&begin.epoch.to_be_bytes()),
            keys::text(&begin.key_id),
            record::pack(&begin.requests),
        ),
        None => (Bytes::new(), Bytes::new(), Bytes::new()),
    };
    let mut args = vec![
        keys::text(&core.me),
        keys::place_of(held.slot(), id),
        keys::number(batch.fence),
        keys::number(batch.want),
        Bytes::copy_from_slice(&batch.want_chain),
        keys::number(batch.top),
        Bytes::copy_from_slice(&batch.chain),
        keys::number(batch.from),
        keys::number(batch.first),
        keys::millis(meta),
        keys::millis(history),
        ended,
        keys::flag(batch.note.is_some()),
        at_rest.seal(tag, batch.note.as_ref().unwrap_or(&Bytes::new())),
        keys::flag(batch.begin.is_some()),
        epoch,
        key_id,
        requests,
        keys::text(&keys::name_of(id)),
        keys::number(batch.taken.len() as u64),
        keys::number(batch.again.len() as u64),
        keys::number(batch.events.len() as u64),
    ];
    args.extend(batch.taken.iter().chain(&batch.again).cloned());
    for (chain, payload) in &batch.events {
        args.push(Bytes::copy_from_slice(chain));
        args.push(at_rest.seal(tag, payload));
    }
    args
}

fn answer_of(reply: &Reply) -> Option<Answer> {
    let parts = reply.list();
    Some(match parts.first()?.text()? {
        "OK" => Answer::Stored,
        "ROLLBACK" => Answer::Rollback {
            have: match parts {
                [_, top, chain] => Some((top.count()?, chain.bytes()?[..].try_into().ok()?)),
                _ => None,
            },
        },
        "DIVERGED" => Answer::Diverged,
        "FENCED" => Answer::Fenced,
        "GONE" => Answer::Gone,
        "STALE" => Answer::Stale,
        _ => return None,
    })
}
