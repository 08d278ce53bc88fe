//! What a run does, checked: nothing in it can be wrong any more.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::mcp::Messages;
use crate::report::Thresholds;
use crate::target::Target;

/// One run.
#[derive(Debug)]
pub struct Plan {
    /// Where the load goes.
    pub target: Target,
    /// What is sent.
    pub messages: Arc<Messages>,
    /// What is sent to have a POST stream that stays open.
    pub holding: Arc<Messages>,
    /// The longest one call may take.
    pub timeout: Duration,
    /// The longest the whole run may take.
    pub seconds: Duration,
    /// Connections, each with its own session.
    pub connections: usize,
    /// Streams that are held open meanwhile.
    pub held: Held,
    /// Which load.
    pub model: Model,
    /// What makes it fail.
    pub thresholds: Thresholds,
    /// Threads of the generator.
    pub threads: usize,
}

/// Streams that are held open while something else is measured, or alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// GET streams of legacy sessions, one each.
    pub get: usize,
    /// POST streams: answers to calls that take as long as the run.
    pub post: usize,
}

/// The load itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Every connection asks again as soon as it was answered: throughput.
    Closed {
        /// Calls of all connections together.
        requests: u64,
    },
    /// Calls fall due at a fixed rate, whatever happens: latency.
    Open {
        /// Calls a second.
        rate: NonZeroU32,
        /// How many.
        requests: u64,
        /// How many of the first are sent and not recorded.
        warmup: u64,
    },
    /// Nothing but the held streams.
    Hold,
    /// Answers are cut in the middle and continued with `Last-Event-ID`.
    Resume {
        /// How many answers, of all connections together.
        rounds: u64,
        /// Events read before the cut.
        cut: u32,
        /// Events of an answer.
        events: u32,
    },
}
