//! Why the store did not do what it was asked.

/// A failed operation. An absent record is not one of these: it is `None`, whoever asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached. Retryable; new work is refused meanwhile.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The principal has as many sessions as it may have, and all of them have open streams.
    #[error("the principal has {0} sessions, all in use")]
    PrincipalFull(usize),
    /// The tenant has as many sessions as it may have, and all of them have open streams.
    #[error("the tenant has {0} sessions, all in use")]
    TenantFull(usize),
    /// A session of that id exists already.
    #[error("a session of this id exists")]
    Exists,
}
