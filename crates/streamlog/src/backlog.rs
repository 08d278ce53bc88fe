//! What waits for the session's newest standalone stream (GET-05): pure.
//!
//! Notifications that only say "look again" replace the earlier one of their kind; when room is
//! needed log messages go first, then the oldest. What goes that was not a log message is noted,
//! so that the next reader is told and can be made whole with conservative notifications.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::log::{Class, Event};
use crate::ring::Ring;
use crate::session_log::next_number;

#[derive(Debug)]
struct Waiting {
    event: Event,
    since: Instant,
    turn: u64,
    /// Its name on disk.
    number: u64,
}

/// A change that is to be written down.
#[derive(Debug)]
pub(crate) enum Noted {
    /// An event waits, since then.
    Waiting {
        number: u64,
        event: Event,
        since: Instant,
    },
    /// It does no longer.
    Over { number: u64 },
}

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queue: VecDeque<Waiting>,
    bytes: usize,
    lost: bool,
    /// Where there is a disk: names for what waits, and what is to be written down.
    numbers: Option<Arc<AtomicU64>>,
    noted: Vec<Noted>,
}

impl Backlog {
    /// A backlog whose changes are to be written down.
    pub(crate) fn on_disk(numbers: Arc<AtomicU64>) -> Self {
        Self {
            numbers: Some(numbers),
            ..Self::default()
        }
    }

    /// Takes back an event from the disk.
    pub(crate) fn take_back(&mut self, number: u64, event: Event, since: Instant, turn: u64) {
        self.bytes += Ring::cost(event.payload.len());
        self.queue.push_back(Waiting {
            event,
            since,
            turn,
            number,
        });
    }

    /// The next reader is told of a loss: nobody knows what came while no process ran.
    pub(crate) fn mark_lost(&mut self) {
        self.lost = true;
    }

    /// What is to be written down.
    pub(crate) fn take_noted(&mut self) -> Vec<Noted> {
        std::mem::take(&mut self.noted)
    }

    /// Everything that waits, to be written down.
    pub(crate) fn noted_anew(&self) -> Vec<Noted> {
        self.queue.iter().map(Waiting::noted).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn first_turn(&self) -> Option<u64> {
        self.queue.front().map(|waiting| waiting.turn)
    }

    /// Whether something was dropped since this was last asked.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    pub(crate) fn push(&mut self, event: Event, since: Instant, turn: u64) {
        if let Class::Invalidation(subject) = &event.class {
            let same = |waiting: &Waiting| matches!(&waiting.event.class, Class::Invalidation(other) if other == subject);
            if let Some(index) = self.queue.iter().position(same) {
                self.remove(index);
            }
        }
        let payload = Bytes::copy_from_slice(&event.payload);
        let event = Event { payload, ..event };
        self.bytes += Ring::cost(event.payload.len());
        let waiting = Waiting {
            event,
            since,
            turn,
            number: self.numbers.as_deref().map_or(0, next_number),
        };
        if self.numbers.is_some() {
            self.noted.push(waiting.noted());
        }
        self.queue.push_back(waiting);
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.remove(0).map(|event| event.payload)
    }

    /// The first event, if it may go.
    pub(crate) fn pop_if(&mut self, may: bool) -> Option<Bytes> {
        if may { self.pop() } else { None }
    }

    /// Everything that waits, in order.
    pub(crate) fn take_all(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.remove(0)).collect()
    }

    /// Drops what the limits do not hold, never the last event; the keys of dropped questions.
    pub(crate) fn fit(&mut self, events: usize, bytes: usize) -> Vec<Arc<str>> {
        let mut questions = Vec::new();
        while self.queue.len() > 1 && (self.queue.len() > events || self.bytes > bytes) {
            questions.extend(self.drop_one());
        }
        questions
    }

    /// Drops one event, a log message if there is one; the key, if it was a question.
    pub(crate) fn drop_one(&mut self) -> Option<Arc<str>> {
        let log = |waiting: &Waiting| waiting.event.class == Class::Log;
        let index = self.queue.iter().position(log).unwrap_or(0);
        let event = self.remove(index)?;
        self.dropped(event)
    }

    /// Drops what has waited for `age`; the keys of dropped questions.
    pub(crate) fn expire(&mut self, now: Instant, age: Duration) -> Vec<Arc<str>> {
        let mut questions = Vec::new();
        while let Some(oldest) = self.queue.front() {
            if now.saturating_duration_since(oldest.since) < age {
                break;
            }
            let event = self.remove(0);
            questions.extend(event.and_then(|event| self.dropped(event)));
        }
        questions
    }

    /// Empties it; the keys of the questions in it.
    pub(crate) fn drain(&mut self) -> Vec<Arc<str>> {
        let mut questions = Vec::new();
        while let Some(event) = self.remove(0) {
            questions.extend(self.dropped(event));
        }
        questions
    }

    fn dropped(&mut self, event: Event) -> Option<Arc<str>> {
        match event.class {
            Class::Log => None,
            Class::Message | Class::Invalidation(_) => {
                self.lost = true;
                None
            }
            Class::Question(key) => Some(key),
        }
    }

    fn remove(&mut self, index: usize) -> Option<Event> {
        let waiting = self.queue.remove(index)?;
        self.bytes -= Ring::cost(waiting.event.payload.len());
        if self.numbers.is_some() {
            let number = waiting.number;
            self.noted.push(Noted::Over { number });
        }
        Some(waiting.event)
    }
}

impl Waiting {
    fn noted(&self) -> Noted {
        Noted::Waiting {
            number: self.number,
            event: self.event.clone(),
            since: self.since,
        }
    }
}

#[cfg(test)]
impl Backlog {
    pub(crate) fn check_invariants(&self) {
        let costs: usize = self
            .queue
            .iter()
            .map(|waiting| Ring::cost(waiting.event.payload.len()))
            .sum();
        assert_eq!(costs, self.bytes);
        let mut subjects = std::collections::HashSet::new();
        for waiting in &self.queue {
            if let Class::Invalidation(subject) = &waiting.event.class {
                assert!(subjects.insert(subject), "one of a kind waits");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(class: Class) -> Event {
        Event {
            class,
            payload: Bytes::from_static(b"0123456789"),
        }
    }

    fn named(class: Class, payload: &'static str) -> Event {
        Event {
            class,
            payload: Bytes::from_static(payload.as_bytes()),
        }
    }

    fn subject(text: &str) -> Class {
        Class::Invalidation(Arc::from(text))
    }

    fn contents(mut backlog: Backlog) -> Vec<Bytes> {
        std::iter::from_fn(move || backlog.pop()).collect()
    }

    /// GET-05: list_changed is coalesced, the newest takes the place at the end.
    #[tokio::test(start_paused = true)]
    async fn get_05_invalidations_of_one_subject_are_coalesced() {
        let mut backlog = Backlog::default();
        for (turn, (class, payload)) in [
            (subject("tools"), "t1"),
            (subject("prompts"), "p1"),
            (Class::Message, "m"),
            (subject("tools"), "t2"),
        ]
        .into_iter()
        .enumerate()
        {
            backlog.push(named(class, payload), Instant::now(), turn as u64);
            backlog.check_invariants();
        }
        assert!(!backlog.take_lost(), "coalescing loses nothing");
        assert_eq!(contents(backlog), ["p1", "m", "t2"]);
    }

    /// GET-05: logs are dropped first; what else is dropped is noted, questions are named.
    #[tokio::test(start_paused = true)]
    async fn get_05_logs_go_first_and_other_losses_are_told() {
        let mut backlog = Backlog::default();
        let question = Class::Question(Arc::from("q1"));
        for class in [
            question,
            Class::Message,
            Class::Log,
            subject("a"),
            Class::Log,
        ] {
            backlog.push(event(class), Instant::now(), 0);
        }
        assert!(backlog.fit(3, usize::MAX).is_empty());
        assert!(!backlog.take_lost(), "a dropped log is no loss");
        assert_eq!(backlog.fit(2, usize::MAX), [Arc::from("q1")]);
        assert!(
            !backlog.take_lost(),
            "the question is answered by whoever asked for the drop"
        );
        assert!(backlog.fit(0, 0).is_empty());
        assert!(backlog.take_lost());
        assert!(!backlog.take_lost());
        assert_eq!(backlog.len(), 1, "one event of any size is kept");
        backlog.check_invariants();
    }

    #[tokio::test(start_paused = true)]
    async fn get_05_waiting_ends_with_its_age() {
        let mut backlog = Backlog::default();
        let age = Duration::from_secs(900);
        backlog.push(event(Class::Question(Arc::from("q1"))), Instant::now(), 1);
        tokio::time::advance(Duration::from_secs(600)).await;
        backlog.push(event(Class::Message), Instant::now(), 2);
        tokio::time::advance(Duration::from_secs(300)).await;
        assert_eq!(backlog.expire(Instant::now(), age), [Arc::from("q1")]);
        assert!(!backlog.take_lost());
        tokio::time::advance(age).await;
        assert!(backlog.expire(Instant::now(), age).is_empty());
        assert!(backlog.take_lost());
        assert_eq!((backlog.len(), backlog.bytes()), (0, 0));
    }
}
