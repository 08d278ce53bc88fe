//! Who is calling: credentials of one request against the snapshot of what each tenant accepts.
//!
//! [`keys`] holds the snapshot, [`api_key`] the form of an API key and the rule that accepts one,
//! [`verify()`] the one function the pipeline calls. Nothing here does I/O and nothing here knows
//! how the snapshot came about; it is rebuilt at each change of the configuration and swapped.

pub mod api_key;
pub mod keys;
pub mod verify;

pub use api_key::{ApiKey, KeyHash};
pub use keys::{Access, Keys, SharedKeys};
pub use verify::{Presented, still_accepted, verify};
