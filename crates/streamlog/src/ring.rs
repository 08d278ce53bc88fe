//! The kept history of one stream: pure, contiguous, chained.
//!
//! Numbers go on whatever is trimmed; what was trimmed can be seen from the first kept number. The
//! chain of the newest event is remembered even when no event is left, so that a client that has
//! everything can prove it.

use std::collections::VecDeque;

use bytes::Bytes;
use vestibule_store::MacKey;

use crate::event_id::Chain;

/// What an event costs beyond its payload.
const ENTRY_BYTES: usize = 96;

/// Payloads up to this size are copied, so that a small event does not keep alive the large
/// buffer it was cut from; larger ones keep their buffer.
const COPY_MAX: usize = 64 * 1024;

/// One kept event.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) seq: u64,
    pub(crate) chain: Chain,
    pub(crate) payload: Bytes,
    /// Its place in the order of all appends of the process.
    pub(crate) turn: u64,
    /// All costs of this ring up to and including this event.
    through: u64,
}

/// How a client's position relates to the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Everything after it is here.
    Valid,
    /// It was, but something after it has been trimmed.
    Trimmed,
    /// It is of another history, or ahead of this one.
    Diverged,
}

#[derive(Debug)]
pub(crate) struct Ring {
    entries: VecDeque<Kept>,
    key: MacKey,
    top: u64,
    top_chain: Chain,
    bytes: usize,
    pushed: u64,
}

impl Ring {
    /// An empty history that begins at `origin`, which no other stream has.
    pub(crate) fn new(key: MacKey, origin: &[u8]) -> Self {
        let top_chain = shorten(&key.mac(&[b"origin", origin]));
        Self {
            entries: VecDeque::new(),
            key,
            top: 0,
            top_chain,
            bytes: 0,
            pushed: 0,
        }
    }

    /// The number of the newest event; 0 before the first.
    pub(crate) fn top(&self) -> u64 {
        self.top
    }

    pub(crate) fn top_chain(&self) -> Chain {
        self.top_chain
    }

    /// The number of the first kept event, or of the next one to come.
    pub(crate) fn first(&self) -> u64 {
        self.entries.front().map_or(self.top + 1, |entry| entry.seq)
    }

    pub(crate) fn first_turn(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.turn)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the kept events cost.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What an event of that size will cost.
    pub(crate) fn cost(payload: usize) -> usize {
        payload + ENTRY_BYTES
    }

    /// Appends one event and returns its number.
    pub(crate) fn push(&mut self, payload: Bytes, turn: u64) -> u64 {
        let payload = if payload.len() <= COPY_MAX {
            Bytes::copy_from_slice(&payload)
        } else {
            payload
        };
        self.top += 1;
        self.top_chain = link(&self.key, self.top_chain, self.top, &payload);
        let cost = Self::cost(payload.len());
        self.bytes += cost;
        self.pushed += cost as u64;
        self.entries.push_back(Kept {
            seq: self.top,
            chain: self.top_chain,
            payload,
            turn,
            through: self.pushed,
        });
        self.top
    }

    /// The event right after number `seq`, if it is kept.
    pub(crate) fn after(&self, seq: u64) -> Option<&Kept> {
        let index = (seq + 1).checked_sub(self.first())?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// How many kept events come after number `seq`, and what those beyond the first of them cost.
    pub(crate) fn behind(&self, seq: u64) -> (usize, usize) {
        let events = self.top.saturating_sub(seq.max(self.first() - 1));
        let next = self.after(seq).or_else(|| self.entries.front());
        let beyond = next.map_or(0, |next| self.pushed - next.through);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        (count(events), if events == 0 { 0 } else { count(beyond) })
    }

    /// Drops the oldest event.
    pub(crate) fn trim_one(&mut self) -> bool {
        let Some(entry) = self.entries.pop_front() else {
            return false;
        };
        self.bytes -= Self::cost(entry.payload.len());
        true
    }

    /// Drops all events.
    pub(crate) fn clear(&mut self) {
        self.entries = VecDeque::new();
        self.bytes = 0;
    }

    /// Drops the oldest events until the limits hold; never the newest one (EL-19).
    pub(crate) fn fit(&mut self, events: usize, bytes: usize) {
        while self.entries.len() > 1 && (self.entries.len() > events || self.bytes > bytes) {
            self.trim_one();
        }
    }

    /// Where a client stands that has everything up to `seq` under that chain (EL-5).
    pub(crate) fn standing(&self, seq: u64, chain: Chain) -> Standing {
        if seq > self.top {
            return Standing::Diverged;
        }
        if seq == self.top {
            return if chain == self.top_chain {
                Standing::Valid
            } else {
                Standing::Diverged
            };
        }
        match self.after(seq) {
            None => Standing::Trimmed,
            Some(next) if link(&self.key, chain, next.seq, &next.payload) == next.chain => {
                Standing::Valid
            }
            Some(_) => Standing::Diverged,
        }
    }
}

fn link(key: &MacKey, before: Chain, seq: u64, payload: &[u8]) -> Chain {
    shorten(&key.mac(&[&before, &seq.to_be_bytes(), payload]))
}

fn shorten(mac: &[u8; 32]) -> Chain {
    *mac.first_chunk().expect("a MAC is longer than a chain")
}

#[cfg(test)]
impl Ring {
    pub(crate) fn check_invariants(&self) {
        let costs: usize = self
            .entries
            .iter()
            .map(|entry| Self::cost(entry.payload.len()))
            .sum();
        assert_eq!(costs, self.bytes);
        let expected = self.first()..=self.top;
        assert!(
            self.entries.iter().map(|entry| entry.seq).eq(expected),
            "contiguous to the top"
        );
        assert!(self.entries.iter().is_sorted_by_key(|entry| entry.turn));
        if let Some(last) = self.entries.back() {
            assert_eq!((last.chain, last.through), (self.top_chain, self.pushed));
        }
    }
}

#[cfg(test)]
mod tests;
