//! Streams that nobody had when they were last asked for, although an id says that they were there:
//! the store has lost them, and so has their owner. Who comes back for one is told so at once, and
//! not kept waiting each time until everybody was asked.

use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;

use crate::event_id::StreamId;

/// How long it is remembered: clients that get no answer come back within a minute.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Of how many; with more than that all are asked for once more.
const AT_MOST: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct Unfound(DashMap<StreamId, Instant>);

impl Unfound {
    pub(super) fn note(&self, id: StreamId) {
        if self.0.len() >= AT_MOST {
            self.0.clear();
        }
        self.0.insert(id, Instant::now());
    }

    pub(super) fn has(&self, id: StreamId) -> bool {
        let since = self.0.get(&id).map(|since| *since);
        since.is_some_and(|since| since.elapsed() < REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn el_13_what_was_not_found_is_remembered_for_a_while() {
        let unfound = Unfound::default();
        let id = StreamId::mint(false);
        assert!(!unfound.has(id));
        unfound.note(id);
        assert!(unfound.has(id));
        tokio::time::advance(REMEMBERED).await;
        assert!(!unfound.has(id));
        for _ in 0..2 * AT_MOST {
            unfound.note(StreamId::mint(false));
        }
        assert!(unfound.0.len() <= AT_MOST);
    }
}
