//! From what is on disk to what was in memory.
//!
//! Events are taken back one by one as far as each follows from the one before (EL-5); the rest of
//! a stream counts as never written, and its end with it. What belongs to no session any more, or
//! to a key that is not configured any more, goes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_store::{Change, Contents, Purpose, Sealer, SessionKey, Space};

use super::record::{event_of, events_over, stream_of, stream_over, waiting_of, waiting_over};
use crate::event_id::Chain;
use crate::held::Held;
use crate::log::Class;
use crate::memory::MemoryLog;
use crate::ring::Ring;
use crate::session_log::{Header, Restored};
use crate::times::Both;

struct OnDisk {
    seq: u64,
    chain: Chain,
    payload: Bytes,
}

/// Takes back what the sessions had.
pub(super) fn restore(
    memory: &MemoryLog,
    contents: &mut Contents,
    sessions: impl IntoIterator<Item = SessionKey>,
    sealer: &Sealer,
) {
    let Some(scribe) = memory.shared().scribe() else {
        return;
    };
    let held: HashMap<SessionKey, Arc<Held>> = sessions
        .into_iter()
        .map(|session| (session.clone(), memory.begun(&session)))
        .collect();
    let now = scribe.times.now();
    let mut over = streams(&held, contents, sealer, &now);
    over.extend(waiting(&held, contents, &now));
    for held in held.values() {
        held.grow(None, |log, _| log.taken_back());
    }
    scribe.clean(over);
}

/// Takes back the streams; what is to be removed from the disk.
fn streams(
    held: &HashMap<SessionKey, Arc<Held>>,
    contents: &mut Contents,
    sealer: &Sealer,
    now: &Both,
) -> Vec<Change> {
    let mut events: HashMap<u64, Vec<OnDisk>> = HashMap::new();
    for (key, record) in contents.take(Space::Events) {
        if let Some((number, seq, chain, payload)) = event_of(&key, record) {
            let event = OnDisk {
                seq,
                chain,
                payload,
            };
            events.entry(number).or_default().push(event);
        }
    }
    let mut over = Vec::new();
    for (key, record) in contents.take(Space::Streams) {
        let stream = stream_of(&key, record, now);
        let found = stream.and_then(|(number, session, header)| {
            let tenant = session.tenant();
            let chain_key = sealer.mac_key_of(&header.key_id, Purpose::EVENT_CHAIN, tenant)?;
            Some((number, held.get(&session)?, header, chain_key))
        });
        let Some((number, held, header, chain_key)) = found else {
            over.push(stream_over(key));
            continue;
        };
        let origin = [&header.id.as_bytes()[..], &header.epoch.to_be_bytes()].concat();
        let ring = Ring::new(chain_key, &origin).on_disk();
        let events = events.remove(&number).unwrap_or_default();
        if let Some(bad) = take_back(held, number, header, ring, events) {
            over.push(events_over(number, bad, u64::MAX));
        }
    }
    let rest = events.keys();
    over.extend(rest.map(|number| events_over(*number, 0, u64::MAX)));
    over
}

/// Takes back one stream; the number of the first event that does not belong to it.
fn take_back(
    held: &Arc<Held>,
    number: u64,
    mut header: Header,
    ring: Ring,
    events: Vec<OnDisk>,
) -> Option<u64> {
    let mut bad = None;
    let mut ring = match events.first() {
        Some(_) => ring,
        None => ring.cleared(header.top, header.chain),
    };
    held.with(|log, at| {
        for event in events {
            if !ring.take_back(event.seq, event.chain, event.payload, at.turn) {
                bad = Some(event.seq);
                break;
            }
        }
        if ring.top() < header.top {
            header.ended = None; // the end is among what is missing
        }
        log.take_back(
            Restored {
                number,
                header,
                ring,
            },
            at,
        );
    });
    bad
}

/// Takes back what waits for a standalone stream; what is to be removed from the disk. Whoever
/// asked a question is gone with his process.
fn waiting(
    held: &HashMap<SessionKey, Arc<Held>>,
    contents: &mut Contents,
    now: &Both,
) -> Vec<Change> {
    let mut over = Vec::new();
    for (key, record) in contents.take(Space::Waiting) {
        let found = waiting_of(&key, record, now).and_then(|(number, session, event, since)| {
            let asks = matches!(event.class, Class::Question(_));
            let held = held.get(&session).filter(|_| !asks)?;
            held.with(|log, at| log.take_back_waiting(number, event, since, at));
            Some(())
        });
        if found.is_none() {
            over.push(waiting_over(key));
        }
    }
    over
}
