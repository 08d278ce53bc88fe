//! 2025-11-25: icons, tool use in sampling, polling streams.

use bytes::Bytes;
use vestibule_exchange::ServerView;
use vestibule_terms::Revision;

use super::level::{Level, Structured};

/// What this revision has.
pub(crate) const LEVEL: Level = Level {
    revision: Revision::R2025_11_25,
    blocks: &["text", "image", "audio", "resource", "resource_link"],
    structured: Structured::Object,
};

/// The `capabilities` of `initialize`.
pub(crate) fn capabilities(view: &ServerView) -> Bytes {
    super::raw_object(&super::with_completions(view))
}
