//! Seeded bugs: what a test harness must catch before its zero is believed.
//!
//! Only a build with the feature `mutations` has them, and such a build has at most the one that
//! `VESTIBULE_MUTATION` names at its start. Nothing that is shipped is built with it.

/// Whether the bug of that name is to be made.
#[cfg(feature = "mutations")]
pub fn on(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("VESTIBULE_MUTATION").ok());
    chosen.as_deref() == Some(name)
}

/// Whether the bug of that name is to be made: never.
#[cfg(not(feature = "mutations"))]
pub const fn on(_name: &str) -> bool {
    false
}
