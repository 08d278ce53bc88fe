//! The router over scripted upstreams, with a paused clock.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks for the one variant it expects"
)]

mod calls;
mod headers;
mod listens;
mod lists;
mod uris;
