//! The next append to the store: what it lacks of one stream.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Moment, Role, SessionLog, Stored, Stream};
use crate::event_id::{Chain, StreamId};
use crate::ring::Ring;

/// The most of one append; an event that is larger goes alone (EL-9).
const BATCH_EVENTS: usize = 64;
const BATCH_BYTES: usize = 256 * 1024;

/// What the store is told of a stream that it does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beginning {
    pub(crate) epoch: u32,
    pub(crate) key_id: Arc<str>,
    pub(crate) requests: Vec<Bytes>,
}

/// One append, compared with what the store is known to have (EL-6).
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) fence: u64,
    /// What the store has: the newest event and its chain.
    pub(crate) want: u64,
    pub(crate) want_chain: Chain,
    /// What it has afterwards.
    pub(crate) top: u64,
    pub(crate) chain: Chain,
    /// The number of the first event of the batch. What lies between has been trimmed here before
    /// it was there.
    pub(crate) from: u64,
    pub(crate) events: Vec<(Chain, Bytes)>,
    /// The first event that is kept.
    pub(crate) first: u64,
    pub(crate) begin: Option<Beginning>,
    pub(crate) ended: Option<Instant>,
    pub(crate) note: Option<Bytes>,
    pub(crate) note_version: u64,
    /// What waits until it is in the batch.
    pub(crate) taken: Vec<Bytes>,
    /// What waits again if the store has lost that it was taken.
    pub(crate) again: Vec<Bytes>,
}

impl SessionLog {
    /// What is to be appended next by the one who appends under that number; none when the store
    /// has everything, or somebody else sees to it.
    pub(crate) fn next_batch(&mut self, id: StreamId, shipper: u64, at: Moment) -> Option<Batch> {
        let stream = self.streams.get_mut(&id)?;
        let remote = stream.remote.as_ref()?;
        if remote.shipping != Some(shipper) {
            return None;
        }
        let differs = stream.differs(id.is_standalone());
        let remote = stream.remote.as_mut()?;
        if !differs {
            remote.shipping = None;
            return None;
        }
        if remote.failing.is_none() {
            remote.heard = at.now;
        }
        stream.batch()
    }

    /// The append was not answered.
    pub(crate) fn unanswered(&mut self, id: StreamId, at: Moment) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if let Some(remote) = &mut stream.remote {
            remote.failing.get_or_insert(at.now);
        }
        stream.wake.notify_waiters(); // who waits may have waited long enough
    }
}

impl Stream {
    fn batch(&self) -> Option<Batch> {
        let remote = self.remote.as_ref()?;
        debug_assert_eq!(remote.role, Role::Own);
        let Stored { top, chain, .. } = remote.stored;
        let from = self.ring.first().max(top + 1);
        let events = gather(&self.ring, from);
        let new_top = match events.len() {
            0 => self.ring.top().max(top),
            count => from + count as u64 - 1,
        };
        let new_chain = match events.last() {
            Some((chain, _)) => *chain,
            None if new_top == top => chain,
            None => self.ring.top_chain(),
        };
        let complete = new_top == self.ring.top();
        let (note, note_version) = self.note.at(new_top);
        let names = |of: &mut dyn Iterator<Item = &(u64, Bytes)>| {
            let within = of.filter(|(seq, _)| *seq > top && *seq <= new_top);
            within.map(|(_, name)| name.clone()).collect()
        };
        let taken = names(&mut remote.taken.iter());
        let again = names(&mut remote.before.iter());
        Some(Batch {
            fence: remote.fence,
            want: top,
            want_chain: chain,
            top: new_top,
            chain: new_chain,
            from,
            first: self.ring.first().min(new_top + 1),
            begin: (!remote.stored.header).then(|| Beginning {
                epoch: self.epoch,
                key_id: Arc::clone(&remote.key_id),
                requests: self.requests.clone(),
            }),
            ended: self.ended.filter(|_| complete),
            note: note
                .filter(|_| Some(note_version) != remote.stored.note || !remote.stored.header),
            note_version,
            taken,
            again,
            events,
        })
    }
}

/// The events from that number on, as many as go into one append.
fn gather(ring: &Ring, from: u64) -> Vec<(Chain, Bytes)> {
    let mut events = Vec::new();
    let mut bytes = 0;
    let mut seq = from;
    while let Some(kept) = ring.after(seq - 1) {
        bytes += kept.payload.len();
        if events.len() == BATCH_EVENTS || !events.is_empty() && bytes > BATCH_BYTES {
            break;
        }
        events.push((kept.chain, kept.payload.clone()));
        seq += 1;
    }
    events
}
