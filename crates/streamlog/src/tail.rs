//! Reading a stream: what is kept, then what comes, from the connection's side.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::event_id::EventId;
use crate::held::Held;
use crate::log::{Entry, Lag, StreamRef};
use crate::session_log::{Attached, Step};
use crate::{LogError, Pending};

/// Why a reader has to close its connection before the stream's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// A newer connection reads this stream now (EL-17).
    Superseded,
    /// The session has opened too many standalone streams (GET-04): `retry: 30000`.
    Evicted,
    /// The connection is too slow (EL-21): `retry: 1000`.
    Slow,
    /// The gateway wants the connection closed (drain, polling): the client will resume.
    Planned,
    /// The store cannot be reached, and this stream must not go on without it (EL-22):
    /// `retry: 5000`.
    Away,
    /// The session has ended, or the stream's memory has.
    Forgotten,
}

impl Stop {
    /// What to send in `retry:` before closing, where there is anything to say.
    pub const fn retry(self) -> Option<Duration> {
        match self {
            Stop::Evicted => Some(Duration::from_secs(30)),
            Stop::Away => Some(Duration::from_secs(5)),
            Stop::Slow | Stop::Planned => Some(Duration::from_secs(1)),
            Stop::Superseded | Stop::Forgotten => None,
        }
    }

    /// The label in counters.
    pub const fn label(self) -> &'static str {
        match self {
            Stop::Superseded => "superseded",
            Stop::Evicted => "evicted",
            Stop::Slow => "slow",
            Stop::Planned => "planned",
            Stop::Away => "away",
            Stop::Forgotten => "forgotten",
        }
    }
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The next event.
    Event(Entry),
    /// Events this client has not had are lost. A POST stream: write one error
    /// (`stream_history_lost`) for its request and close. A standalone stream: publish
    /// conservative notifications and go on.
    Gap,
    /// The last events had no ids, and are safe by now: with this id a client that has had them comes
    /// back behind them (EL-22).
    Caught(EventId),
    /// Everything has been read, the end included.
    Finished,
    /// The writer has gone without an end: [`finish`](crate::StreamLog::finish) the stream with an
    /// error (`outcome_unknown`) for each of its requests and go on; whoever does it first is the
    /// one.
    Orphaned {
        /// Their raw id tokens.
        requests: Vec<Bytes>,
        /// What the writer noted last.
        note: Option<Bytes>,
    },
    /// Close the connection.
    Stopped(Stop),
}

/// A reader of one stream. Dropping it says that the connection is closed; the stream stays.
pub trait Tail: Debug + Send + Sync {
    /// The next event, as soon as there is one. Dropping the future loses nothing: an event
    /// counts as read when it is returned.
    fn next(&mut self) -> Pending<'_, Next>;

    /// Resolves when the connection has to be closed, also while it is stuck in a write.
    fn stopped(&self) -> Pending<'_, Stop>;

    /// How far this reader is behind.
    fn lag(&self) -> Lag;

    /// The stream.
    fn stream(&self) -> &StreamRef;
}

/// A reader, whatever the log behind it.
pub type Reader = Box<dyn Tail>;

/// A reader of the in-memory log.
#[derive(Debug)]
pub(crate) struct MemoryTail {
    held: Arc<Held>,
    stream: StreamRef,
    number: u64,
    wake: Arc<Notify>,
    /// When waiting for the reader before this one ends.
    handoff: Instant,
}

impl MemoryTail {
    pub(crate) fn new(
        held: Arc<Held>,
        stream: StreamRef,
        attached: Attached,
        patience: Duration,
    ) -> Self {
        let Attached { number, wake } = attached;
        Self {
            held,
            stream,
            number,
            wake,
            handoff: Instant::now() + patience,
        }
    }

    fn step(&self) -> Step {
        let over = Instant::now() >= self.handoff;
        let step = self
            .held
            .with(|log, at| log.step(self.stream.id, self.number, over, at));
        if self.stream.id.is_standalone() && matches!(step, Step::Event { .. }) {
            self.held.relieve(Some(self.stream.id)); // an event may have found its place just now
        }
        step
    }

    async fn wait_for_next(&self) -> Result<Next, LogError> {
        let _asking = Asking(self);
        loop {
            let woken = self.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            match self.step() {
                Step::Event {
                    position,
                    payload,
                    safe,
                } => return Ok(Next::Event(self.held.entry(&position, payload, safe))),
                Step::Gap => return Ok(Next::Gap),
                Step::Caught(position) => return Ok(Next::Caught(self.held.id(&position))),
                Step::Finished => return Ok(Next::Finished),
                Step::Orphaned => {
                    let (requests, note) = self.held.with(|log, _| log.left_by(self.stream.id));
                    return Ok(Next::Orphaned { requests, note });
                }
                Step::Stopped(stop) => return Ok(Next::Stopped(stop)),
                Step::Wait => woken.await,
                Step::Unsettled(written) => {
                    tokio::select! {
                        () = woken => {}
                        () = self.held.settle(written) => {}
                    }
                }
                Step::Handoff => {
                    tokio::select! {
                        () = woken => {}
                        () = sleep_until(self.handoff) => {}
                    }
                }
            }
        }
    }

    async fn wait_for_stop(&self) -> Result<Stop, LogError> {
        loop {
            let woken = self.wake.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let stopped = self
                .held
                .with(|log, _| log.stopped(self.stream.id, self.number));
            if let Some(stop) = stopped {
                return Ok(stop);
            }
            woken.await;
        }
    }
}

/// A wait for the next event, however it ends.
struct Asking<'a>(&'a MemoryTail);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Self(tail) = self;
        if tail.stream.id.is_standalone() && tail.held.is_shared() {
            tail.held
                .with(|log, _| log.sated(tail.stream.id, tail.number));
        }
    }
}

impl Tail for MemoryTail {
    fn next(&mut self) -> Pending<'_, Next> {
        Box::pin(self.wait_for_next()) // nothing is taken before the first poll
    }

    fn stopped(&self) -> Pending<'_, Stop> {
        Box::pin(self.wait_for_stop())
    }

    fn lag(&self) -> Lag {
        self.held
            .with(|log, at| log.lag(self.stream.id, self.number, at))
    }

    fn stream(&self) -> &StreamRef {
        &self.stream
    }
}

impl Drop for MemoryTail {
    fn drop(&mut self) {
        self.held
            .with(|log, at| log.detach(self.stream.id, self.number, at));
    }
}
