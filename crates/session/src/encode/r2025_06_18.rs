//! 2025-06-18: structured results that are objects, resource links, titles.

use bytes::Bytes;
use vestibule_exchange::ServerView;
use vestibule_terms::Revision;

use super::level::{Level, Structured};

/// What this revision has.
pub(crate) const LEVEL: Level = Level {
    revision: Revision::R2025_06_18,
    blocks: &["text", "image", "audio", "resource", "resource_link"],
    structured: Structured::Object,
};

/// The `capabilities` of `initialize`.
pub(crate) fn capabilities(view: &ServerView) -> Bytes {
    super::raw_object(&super::with_completions(view))
}
