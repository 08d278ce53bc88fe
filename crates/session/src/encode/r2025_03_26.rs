//! 2025-03-26: audio, tool annotations, the completions capability, batches.

use bytes::Bytes;
use vestibule_exchange::ServerView;
use vestibule_terms::Revision;

use super::level::{Level, Structured};

/// What this revision has.
pub(crate) const LEVEL: Level = Level {
    revision: Revision::R2025_03_26,
    blocks: &["text", "image", "audio", "resource"],
    structured: Structured::Unknown,
};

/// The `capabilities` of `initialize`.
pub(crate) fn capabilities(view: &ServerView) -> Bytes {
    super::raw_object(&super::with_completions(view))
}
