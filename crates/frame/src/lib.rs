//! JSON-RPC messages as MCP carries them: read once, in place, and strictly.
//!
//! A body is one [`bytes::Bytes`]. [`Frame::parse`] validates all of it (UTF-8, JSON grammar, depth,
//! number and key length, duplicate and look-alike keys wherever policy reads) and keeps spans into
//! it; [`Draft`] replaces the few spans a hop owns and forwards everything else as slices, byte for
//! byte. Nothing here opens a socket, reads a clock or knows a session: what a message *means* is
//! decided by the rooms behind.
//!
//! | module | holds |
//! |---|---|
//! | `scan`, `simd` | the grammar: one pass, no recursion on input, no allocation |
//! | `shape`, `keys`, `judge` | the envelope: where its parts are, which keys it may have, what it is |
//! | `message`, `batch` | [`Frame`], [`Id`], [`Payload`]: what the scanner found |
//! | `splice` | [`Draft`]: edits over kept bytes |
//! | [`json`] | walkers for validated JSON text outside a frame |
//! | [`head`], [`agree`] | the control headers of a request and their agreement with its body |
//! | [`meta`] | the reserved `_meta` keys |
//! | [`encode`], [`sse`] | writing messages and event streams, reading event streams |
//! | [`body`] | the lazy, capped request body |
//! | [`dom`] | whole documents as a tree, off the hot path (tool schemas) |

pub mod agree;
mod batch;
pub mod body;
pub mod dom;
pub mod encode;
mod error;
pub mod head;
pub mod json;
mod judge;
mod keys;
mod limits;
mod message;
pub mod meta;
mod scan;
mod shape;
mod simd;
mod splice;
pub mod sse;
mod text;

pub use batch::{BATCH_MAX, Batch, Payload};
pub use error::{FrameError, Reason};
pub use json::{Elements, Member, Members};
pub use limits::{DEPTH_CEILING, Limits};
pub use message::{ErrorParts, Frame, Id, Kind};
pub use splice::Draft;

/// A half-open range of bytes in a message. Messages are smaller than 4 GiB, so `u32` is enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Span {
    /// First byte of the value.
    pub start: u32,
    /// First byte after it.
    pub end: u32,
}

impl Span {
    /// A span from offsets that the scanner has already checked to fit.
    pub(crate) fn new(start: usize, end: usize) -> Span {
        debug_assert!(
            start <= end && u32::try_from(end).is_ok(),
            "a span of {start}..{end}"
        );
        Span {
            start: saturate(start),
            end: saturate(end),
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.range().len()
    }

    /// True for a span of no bytes; no JSON value has one.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// The span as a range for slicing.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    /// True when `inner` lies within this span.
    pub fn contains(&self, inner: Span) -> bool {
        self.start <= inner.start && inner.end <= self.end
    }
}

fn saturate(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}
