//! The configuration: what the operator wrote, checked until it cannot be wrong.
//!
//! The file is parsed once into a located tree ([`yaml`]); hand-written readers driven by the key
//! tables of [`object`] turn it into [`checked`] values. Every mistake is reported at once, with its
//! line, its key path and what would have been valid. A key that is not known is an error, and so
//! is one that this version does not serve: nothing is ignored silently.
//!
//! Not here: what the rooms make of it. Each declares its own snapshot, and the assembly builds
//! those from [`Checked`].

pub mod checked;
pub mod file;
pub mod mistake;
pub mod object;
mod permission;
mod read;
pub mod scalar;
pub mod yaml;

pub use checked::{Checked, TenantChecked, UpstreamChecked};
pub use file::{load, parse};
pub use mistake::Mistake;
