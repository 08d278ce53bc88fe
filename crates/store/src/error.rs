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
    /// The session has as many belongings, or as many bytes of them, as it may have.
    #[error("the session has no room for another {0}")]
    NoRoom(&'static str),
    /// The store answered that it will not do this, now or later: a mistake of ours.
    #[error("the store refuses {0}")]
    Refused(String),
    /// The URL of the store, which is not repeated, since it holds the password.
    #[error("the URL of the store {0}")]
    Url(&'static str),
}
