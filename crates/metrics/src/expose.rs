//! The classic text format of Prometheus, which every scraper reads.

use prometheus::{Registry, TextEncoder};

/// `Content-Type` of what [`text`] returns.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything in `registry`. A family that cannot be encoded (none can, by construction) leaves
/// the answer empty rather than half true.
pub(crate) fn text(registry: &Registry) -> String {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => text,
        Err(error) => {
            tracing::error!(error = %error, "metrics could not be encoded");
            String::new()
        }
    }
}
