//! The hasher of tables that every request looks into.
//!
//! Seeded at random for each process and several times as fast as the standard one on short keys,
//! but not made against somebody who looks for collisions on purpose: only for tables whose keys
//! are the operator's or our own (tenants, servers, upstreams, label values, ids that we mint).

/// Builds hashers for such tables.
pub type FastHash = foldhash::fast::RandomState;
