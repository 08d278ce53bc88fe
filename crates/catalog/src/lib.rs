//! What upstreams offer, and under which names a virtual server shows it.
//!
//! The catalog enumerates the lists of upstreams through the
//! [`Connector`](vestibule_exchange::Connector), keeps them as the bytes that came, merges those of
//! a federated server under exposed names and URIs, and resolves these back by table. Whoever may
//! see something is decided here, once, for list, call, read, complete and subscribe.
//!
//! It never calls a tool and never reads a resource, and what it shows is never re-serialised: an
//! item is its original bytes with names and URIs spliced.
//!
//! | module | holds |
//! |---|---|
//! | [`name`], [`uri`] | exposed names and URIs: pure, the same everywhere |
//! | [`definition`] | one item: checks, exposure |
//! | [`cursor`] | sealed cursors |
//! | [`allow`] | what a server lets through |
//! | `fetch`, [`cache`] | all pages of a list; lists kept, refreshed once, served stale |
//! | [`merge`] | the merged list and its table |
//! | [`catalog`] | the whole, as the router asks it |

pub mod allow;
pub mod cache;
pub mod catalog;
pub mod cursor;
pub mod definition;
mod fetch;
mod kind;
pub mod merge;
pub mod name;
mod profiles;
mod splice;
#[cfg(test)]
mod testing;
pub mod uri;
mod variants;

pub use cache::Freshness;
pub use catalog::{Catalog, Viewer};
pub use cursor::{Cursor, Cursors, Position};
pub use definition::{Definition, Mirroring};
pub use fetch::warn_flaw;
pub use kind::Kind;
pub use merge::Item;
