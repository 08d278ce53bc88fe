//! What a client gets that comes back with a last event id (EL-13): the rules, pure.

use bytes::Bytes;

use crate::event_id::Position;
use crate::log::StreamRef;
use crate::ring::{Ring, Standing};

/// The outcome of a resumption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// 200: replay what comes after number `after`, then live.
    Replay {
        /// The stream to attach a reader to.
        stream: StreamRef,
        /// Where the client stands.
        after: u64,
    },
    /// 200: replay what comes after number `after`, the end included, then close.
    Ending {
        /// The stream to attach a reader to.
        stream: StreamRef,
        /// Where the client stands.
        after: u64,
    },
    /// 405: the stream has ended and the client had its end.
    Finished,
    /// 405: a POST stream of this session of which nothing is known.
    Unknown,
    /// 200: one error (`stream_history_lost`) for each of these requests, then close.
    LostPost {
        /// The raw id tokens of the client's requests.
        requests: Vec<Bytes>,
    },
    /// 200: what is kept, then conservative notifications (publish them), then live.
    StandaloneGap {
        /// The stream to attach a reader to: the client's, or a new one in its place.
        stream: StreamRef,
        /// From where on events are kept.
        after: u64,
    },
    /// 400, one fixed body: not an id of this session.
    Foreign,
    /// 404: the log knows no such session.
    NoSession,
}

impl Resume {
    /// The label of the outcome in counters.
    pub const fn label(&self) -> &'static str {
        match self {
            Resume::Replay { .. } => "replay",
            Resume::Ending { .. } => "ending",
            Resume::Finished => "finished",
            Resume::Unknown => "unknown",
            Resume::LostPost { .. } => "lost_post",
            Resume::StandaloneGap { .. } => "standalone_gap",
            Resume::Foreign => "foreign",
            Resume::NoSession => "no_session",
        }
    }

    /// The HTTP status of the answer to the GET.
    pub const fn status(&self) -> u16 {
        match self {
            Resume::Replay { .. }
            | Resume::Ending { .. }
            | Resume::LostPost { .. }
            | Resume::StandaloneGap { .. } => 200,
            Resume::Finished | Resume::Unknown => 405,
            Resume::Foreign => 400,
            Resume::NoSession => 404,
        }
    }
}

/// What the log remembers of the stream an id names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remembered<'a> {
    pub(crate) epoch: u32,
    pub(crate) ring: &'a Ring,
    pub(crate) ended: bool,
    pub(crate) has_requests: bool,
}

/// The rule that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Replay,
    Ending,
    Finished,
    Unknown,
    LostPost,
    /// Events after this number are kept.
    StandaloneGap {
        after: u64,
    },
    /// The stream itself is gone.
    StandaloneGone,
}

impl Decision {
    /// Whether the client is told that it lacks something.
    pub(crate) fn is_loss(self) -> bool {
        match self {
            Decision::Replay | Decision::Ending | Decision::Finished => false,
            Decision::Unknown
            | Decision::LostPost
            | Decision::StandaloneGap { .. }
            | Decision::StandaloneGone => true,
        }
    }
}

/// Which outcome a position of this session leads to.
pub(crate) fn decide(position: &Position, remembered: Option<Remembered<'_>>) -> Decision {
    let standalone = position.stream.is_standalone();
    let Some(stream) = remembered else {
        return if standalone {
            Decision::StandaloneGone
        } else {
            Decision::Unknown
        };
    };
    let standing = if stream.epoch == position.epoch {
        stream.ring.standing(position.seq, position.chain)
    } else {
        Standing::Diverged
    };
    let valid = standing == Standing::Valid;
    let has_all = valid && position.seq == stream.ring.top();
    match (standalone, valid, stream.ended) {
        (_, true, true) if has_all => Decision::Finished,
        (_, true, true) => Decision::Ending,
        (_, true, false) => Decision::Replay,
        (true, false, _) => {
            // It may have all of a history that the store has lost from somewhere on: what both have
            // in common is never sent twice, what is behind its number it cannot have.
            let lost_tail = standing == Standing::Diverged && stream.epoch == position.epoch;
            let had = if lost_tail {
                position.seq.min(stream.ring.top())
            } else {
                0
            };
            let after = had.max(stream.ring.first() - 1);
            Decision::StandaloneGap { after }
        }
        (false, false, _) if stream.has_requests => Decision::LostPost,
        (false, false, _) => Decision::Unknown,
    }
}

#[cfg(test)]
mod tests;
