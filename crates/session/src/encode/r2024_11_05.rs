//! 2024-11-05: text, images and embedded resources only; completion without a capability (CAP-10).

use bytes::Bytes;
use vestibule_exchange::ServerView;
use vestibule_terms::Revision;

use super::level::{Level, Structured};

/// What this revision has.
pub(crate) const LEVEL: Level = Level {
    revision: Revision::R2024_11_05,
    blocks: &["text", "image", "resource"],
    structured: Structured::Unknown,
};

/// The `capabilities` of `initialize`.
pub(crate) fn capabilities(view: &ServerView) -> Bytes {
    super::raw_object(&super::base_capabilities(view))
}
