//! Who goes when room is needed, what goes with age, and the accounts of both.

use std::sync::Arc;

use tokio::time::Instant;

use super::SessionLog;
use crate::event_id::StreamId;
use crate::retain::{Move, Place, Rank, Target};

impl SessionLog {
    /// Ends what is over (EL-19).
    pub(crate) fn expire(&mut self, now: Instant) {
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.expire_stream(id, now);
        }
        self.lost
            .extend(self.backlog.expire(now, self.limits.standalone_idle));
        self.settle_backlog();
    }

    fn expire_stream(&mut self, id: StreamId, now: Instant) {
        let limits = self.limits;
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let since = now.saturating_duration_since(stream.ended.unwrap_or(stream.active));
        let (age, meta) = if id.is_standalone() {
            (limits.standalone_idle, limits.standalone_idle)
        } else {
            (limits.idle, limits.meta)
        };
        let over = stream.ended.is_some() || stream.abandoned || id.is_standalone();
        if over && since >= meta && stream.slot.is_none() {
            self.remove(id);
            return;
        }
        if since >= age && (stream.ended.is_some() || !stream.has_unread()) {
            stream.ring.clear();
            stream.wake.notify_waiters();
            self.settle(id);
        }
    }

    pub(super) fn fit_session(&mut self) {
        while self.bytes > self.limits.session_bytes {
            let streams = self.streams.iter();
            let places = streams
                .filter_map(|(id, stream)| Some((stream.place?, Target::Stream(*id))))
                .chain(self.backlog_place.map(|place| (place, Target::Backlog)));
            let next = places
                .filter(|((rank, _), _)| *rank != Rank::Undelivered)
                .min_by_key(|(place, _)| *place);
            let Some((place, target)) = next else { return };
            self.make_room(target, place, self.bytes - self.limits.session_bytes);
        }
    }

    /// Drops about `excess` bytes of the target, if it still is in that place.
    pub(crate) fn make_room(&mut self, target: Target, place: Place, excess: usize) {
        match target {
            Target::Stream(id) => {
                let Some(stream) = self.streams.get_mut(&id) else {
                    return;
                };
                if stream.place != Some(place) {
                    return;
                }
                let goal = stream.ring.bytes().saturating_sub(excess);
                stream.ring.trim_one();
                while stream.ring.len() > 1 && stream.ring.bytes() > goal {
                    stream.ring.trim_one();
                }
                stream.wake.notify_waiters();
                self.settle(id);
            }
            Target::Backlog if self.backlog_place == Some(place) => {
                let goal = self.backlog.bytes().saturating_sub(excess);
                let kept = usize::from(place.0 != Rank::Undelivered);
                while self.backlog.len() > kept && self.backlog.bytes() > goal {
                    self.lost.extend(self.backlog.drop_one());
                }
                self.settle_backlog();
            }
            Target::Backlog => {}
        }
    }

    /// Ends everything; what nobody will deliver any more.
    pub(crate) fn forget(&mut self) -> Vec<Arc<str>> {
        self.forgotten = true;
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.remove(id);
        }
        self.listeners.clear();
        let mut lost = self.take_lost();
        lost.extend(self.backlog.drain());
        self.settle_backlog();
        lost
    }

    pub(super) fn remove(&mut self, id: StreamId) {
        self.delisted(id);
        if let Some(mut stream) = self.streams.remove(&id) {
            self.note_removal(&stream.saved);
            self.removed_here(id, &stream);
            stream.wake.notify_waiters();
            self.bytes -= stream.charged;
            if let Some(from) = stream.place.take() {
                self.moves.push(Move {
                    target: Target::Stream(id),
                    from: Some(from),
                    to: None,
                });
            }
        }
        self.listeners.retain(|listener| *listener != id);
    }

    /// Accounts for a change of that stream's ring.
    pub(super) fn settle(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let bytes = stream.ring.bytes();
        self.bytes = self.bytes - stream.charged + bytes;
        stream.charged = bytes;
        let to = stream.place();
        let from = std::mem::replace(&mut stream.place, to);
        if from != to {
            self.moves.push(Move {
                target: Target::Stream(id),
                from,
                to,
            });
        }
        self.note_stream(id);
    }

    pub(super) fn settle_backlog(&mut self) {
        let bytes = self.backlog.bytes();
        self.bytes = self.bytes - self.backlog_charged + bytes;
        self.backlog_charged = bytes;
        // The last that waits is kept like the last of a stream: one event of any size has a place.
        let rank = match self.backlog.len() {
            1 => Rank::Undelivered,
            _ => Rank::Spare,
        };
        let to = self.backlog.first_turn().map(|turn| (rank, turn));
        let from = std::mem::replace(&mut self.backlog_place, to);
        if from != to {
            self.moves.push(Move {
                target: Target::Backlog,
                from,
                to,
            });
        }
    }
}

#[cfg(test)]
impl SessionLog {
    pub(crate) fn check_invariants(&self) {
        let mut bytes = self.backlog.bytes();
        self.backlog.check_invariants();
        for (id, stream) in &self.streams {
            stream.ring.check_invariants();
            bytes += stream.ring.bytes();
            assert_eq!(
                stream.place,
                stream.place(),
                "the order knows every stream as it is"
            );
            assert_eq!(stream.charged, stream.ring.bytes());
            assert!(stream.ring.len() <= self.limits.stream_events.max(1));
            let within = stream.ring.bytes() <= self.limits.stream_bytes;
            assert!(within || stream.ring.len() == 1);
            let listed = self.listeners.contains(id);
            assert_eq!(listed, id.is_standalone() && stream.reader().is_some());
            if let Some(slot) = &stream.slot {
                assert!(slot.cursor <= stream.ring.top());
                assert!(
                    !stream.leaving.contains(&slot.number),
                    "one reader a stream"
                );
            }
        }
        assert_eq!(bytes, self.bytes);
        assert!(self.streams.len() <= self.limits.session_streams);
        assert!(self.listeners.len() <= self.limits.standalone_open);
        let newest_last = self
            .listeners
            .iter()
            .is_sorted_by_key(|id| self.streams[id].slot.as_ref().map(|slot| slot.number));
        assert!(newest_last);
        let spare = self.streams.values().any(|stream| {
            stream
                .place
                .is_some_and(|(rank, _)| rank != Rank::Undelivered)
        });
        assert!(
            self.bytes <= self.limits.session_bytes || !spare,
            "room was made where it could be"
        );
        assert!(self.moves.is_empty(), "the tenant's order was told");
    }

    pub(crate) fn set_lossy(&mut self, lossy: bool) -> bool {
        let before = self.backlog.take_lost();
        if lossy {
            self.backlog.mark_lost();
        }
        before
    }

    pub(crate) fn places(&self) -> usize {
        let streams = self
            .streams
            .values()
            .filter(|stream| stream.place.is_some())
            .count();
        streams + usize::from(self.backlog_place.is_some())
    }
}
