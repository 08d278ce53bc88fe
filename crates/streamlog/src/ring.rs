//! The kept history of one stream: pure, contiguous, chained.
//!
//! Numbers go on whatever is trimmed; what was trimmed can be seen from the first kept number. The
//! chain of the newest event is remembered even when no event is left, so that a client that has
//! everything can prove it.

use std::collections::VecDeque;

use bytes::Bytes;
use vestibule_store::MacKey;
use vestibule_terms::mutation;

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
    /// The submission it is on disk with: no reader sees it before that is settled (EL-8).
    pub(crate) written: u64,
    /// All costs of this ring up to and including this event.
    through: u64,
}

/// The submission of what has not been submitted yet.
pub(crate) const UNWRITTEN: u64 = u64::MAX;

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
    /// What new events are written with: nothing (0) in memory, [`UNWRITTEN`] where there is a disk.
    unwritten: u64,
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
            unwritten: 0,
        }
    }

    /// Its events are to be written down before anybody sees them.
    pub(crate) fn on_disk(mut self) -> Self {
        self.is_written_down();
        self
    }

    /// New events are to be written down before anybody sees them.
    pub(crate) fn is_written_down(&mut self) {
        self.unwritten = UNWRITTEN;
    }

    /// Goes on after that event; none before it is kept.
    pub(crate) fn jump(&mut self, top: u64, chain: Chain) {
        self.clear();
        (self.top, self.top_chain) = (top, chain);
    }

    /// A history of which no event is kept.
    pub(crate) fn cleared(mut self, top: u64, chain: Chain) -> Self {
        (self.top, self.top_chain) = (top, chain);
        self
    }

    /// Takes back an event from the disk, if it is what comes next in this history. What came
    /// before the first one may have been trimmed.
    pub(crate) fn take_back(&mut self, seq: u64, chain: Chain, payload: Bytes, turn: u64) -> bool {
        let begins = self.entries.is_empty() && seq > self.top + 1;
        let follows =
            seq == self.top + 1 && link(&self.key, self.top_chain, seq, &payload) == chain;
        if begins {
            self.top = seq - 1;
        }
        if begins || follows {
            self.enter(chain, payload, turn, 0);
        }
        begins || follows
    }

    /// New events have been submitted to the disk.
    pub(crate) fn submitted(&mut self, written: u64) {
        let new = self.entries.iter_mut().rev();
        for entry in new.take_while(|entry| entry.written == UNWRITTEN) {
            entry.written = written;
        }
    }

    /// Events up to that number are safe where they were written to.
    pub(crate) fn safe(&mut self, seq: u64) {
        let known = self.entries.partition_point(|entry| entry.written == 0);
        let new = self.entries.iter_mut().skip(known);
        for entry in new.take_while(|entry| entry.seq <= seq) {
            entry.written = 0;
        }
    }

    /// Takes back the events after number `seq`, which nobody has seen.
    pub(crate) fn retract(&mut self, seq: u64, chain: Chain) {
        while self.top > seq {
            let Some(entry) = self.entries.pop_back() else {
                break;
            };
            self.bytes -= Self::cost(entry.payload.len());
            self.pushed -= Self::cost(entry.payload.len()) as u64;
            self.top = entry.seq - 1;
        }
        (self.top, self.top_chain) = (seq, chain);
    }

    /// The chain up to that event, if it is known.
    pub(crate) fn chain_at(&self, seq: u64) -> Option<Chain> {
        if seq == self.top {
            return Some(self.top_chain);
        }
        let before = seq.checked_sub(1)?;
        self.after(before).map(|entry| entry.chain)
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

    /// Whether there were events and none is kept.
    pub(crate) fn is_cleared(&self) -> bool {
        self.top > 0 && self.entries.is_empty()
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
        let chain = link(&self.key, self.top_chain, self.top + 1, &payload);
        self.enter(chain, payload, turn, self.unwritten);
        self.top
    }

    fn enter(&mut self, chain: Chain, payload: Bytes, turn: u64, written: u64) {
        self.top += 1;
        self.top_chain = chain;
        let cost = Self::cost(payload.len());
        self.bytes += cost;
        self.pushed += cost as u64;
        self.entries.push_back(Kept {
            seq: self.top,
            chain,
            payload,
            turn,
            written,
            through: self.pushed,
        });
    }

    /// The event right after number `seq`, if it is kept.
    pub(crate) fn after(&self, seq: u64) -> Option<&Kept> {
        let index = (seq + 1).checked_sub(self.first())?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// How many kept events that can be read come after number `seq`, and what those beyond the
    /// first of them cost. What is still on its way to the disk cannot be read.
    pub(crate) fn behind(&self, seq: u64, settled: u64) -> (usize, usize) {
        let (top, through) = self.newest_settled(settled);
        let events = top.saturating_sub(seq.max(self.first() - 1));
        let next = self.after(seq).or_else(|| self.entries.front());
        let beyond = next.map_or(0, |next| through.saturating_sub(next.through));
        (count(events), if events == 0 { 0 } else { count(beyond) })
    }

    /// What is on its way to the disk: how many events, what they cost, and with which submission
    /// the last of them is there.
    pub(crate) fn unsettled(&self, settled: u64) -> (usize, usize, u64) {
        let (top, through) = self.newest_settled(settled);
        let last = self.entries.back().map_or(0, |entry| entry.written);
        (count(self.top - top), count(self.pushed - through), last)
    }

    /// What is on its way costs beyond the first event of it.
    pub(crate) fn held_back(&self, settled: u64) -> usize {
        let (top, _) = self.newest_settled(settled);
        self.after(top)
            .map_or(0, |first| count(self.pushed - first.through))
    }

    /// The number of the newest event that can be read, and all costs up to it.
    fn newest_settled(&self, settled: u64) -> (u64, u64) {
        let is_settled = |entry: &Kept| entry.written <= settled;
        if self.entries.back().is_none_or(is_settled) {
            return (self.top, self.pushed);
        }
        let readable = self.entries.partition_point(is_settled);
        match readable
            .checked_sub(1)
            .and_then(|last| self.entries.get(last))
        {
            Some(entry) => (entry.seq, entry.through),
            None => {
                let kept = self.bytes as u64;
                (self.first() - 1, self.pushed - kept)
            }
        }
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
            return if chain == self.top_chain || mutation::on("skip-chain") {
                Standing::Valid
            } else {
                Standing::Diverged
            };
        }
        match self.after(seq) {
            None => Standing::Trimmed,
            Some(next)
                if link(&self.key, chain, next.seq, &next.payload) == next.chain
                    || mutation::on("skip-chain") =>
            {
                Standing::Valid
            }
            Some(_) => Standing::Diverged,
        }
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
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
