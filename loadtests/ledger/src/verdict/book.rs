//! The upstream's ledger, by call, question and watcher.

use std::collections::HashMap;

use crate::history::{Entry, Micros};

/// What the upstream did for one call.
#[derive(Debug, Default)]
pub(super) struct Ran {
    pub(super) times: usize,
    /// Its events in order: number and time.
    pub(super) emitted: Vec<(u64, Micros)>,
    pub(super) ended: Option<Micros>,
    pub(super) cancelled: Option<Micros>,
    pub(super) asked: Vec<String>,
}

/// A notification that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notice<'a> {
    pub(super) number: u64,
    pub(super) at: Micros,
    /// The upstream's stream: between two of them there is no order.
    pub(super) stream: Option<&'a str>,
}

/// The ledger, sorted.
#[derive(Debug, Default)]
pub(super) struct Book<'a> {
    pub(super) calls: HashMap<&'a str, Ran>,
    /// Answers by question: time and content.
    pub(super) answers: HashMap<&'a str, Vec<(Micros, &'a str)>>,
    /// Notifications by watcher.
    pub(super) news: HashMap<&'a str, Vec<Notice<'a>>>,
}

impl<'a> Book<'a> {
    pub(super) fn of(ledger: &'a [Entry]) -> Self {
        let mut book = Self::default();
        for entry in ledger {
            book.enter(entry);
        }
        book
    }

    fn enter(&mut self, entry: &'a Entry) {
        match entry {
            Entry::Called { key, .. } => self.call(key).times += 1,
            Entry::Emitted { at, key, number } => self.call(key).emitted.push((*number, *at)),
            Entry::Ended { at, key } => self.call(key).ended = Some(*at),
            Entry::Cancelled { at, key } => self.call(key).cancelled = Some(*at),
            Entry::Asked { key, question, .. } => self.call(key).asked.push(question.clone()),
            Entry::Answered {
                at,
                question,
                content,
            } => self
                .answers
                .entry(question)
                .or_default()
                .push((*at, content)),
            Entry::Noticed {
                at,
                key,
                number,
                stream,
            } => self.news.entry(key).or_default().push(Notice {
                number: *number,
                at: *at,
                stream: stream.as_deref(),
            }),
        }
    }

    fn call(&mut self, key: &'a str) -> &mut Ran {
        self.calls.entry(key).or_default()
    }
}
