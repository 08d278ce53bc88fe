//! Where the server is and how long it may take.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vestibule_terms::Secret;

use crate::ReplicaId;

/// Where and how.
#[derive(Clone)]
pub struct Settings {
    /// One of the forms that this module describes; it holds the password.
    pub url: Secret<String>,
    /// Certificates of authorities, PEM, in place of the machine's.
    pub ca: Option<Bytes>,
    /// The longest a command takes, with all that has to be done for it; one that sends or answers a
    /// lot takes longer.
    pub command_timeout: Duration,
    /// The longest each step of connecting takes.
    pub connect_timeout: Duration,
    /// How many commands may be under way; more fail at once.
    pub in_flight: usize,
    /// Who we are.
    pub replica: ReplicaId,
    /// Where the client runs; on the caller's runtime by default. On another one a paused clock of
    /// the caller's, which tests have, is not seen, and stands still while a command is under way.
    pub runtime: Option<tokio::runtime::Handle>,
}

impl Settings {
    /// The usual ones (EL-23).
    pub fn new(url: impl Into<String>, replica: ReplicaId) -> Self {
        Self {
            url: Secret::new(url.into()),
            ca: None,
            command_timeout: Duration::from_millis(250),
            connect_timeout: Duration::from_millis(500),
            in_flight: 10_000,
            replica,
            runtime: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("replica", &self.replica)
            .field("command_timeout", &self.command_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

/// What the operator is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisEvent {
    /// A primary answers.
    Up,
    /// None does; commands fail at once.
    Down(String),
}

/// Is told. Called by the client's own task: it must not wait.
pub type RedisAlarm = Arc<dyn Fn(RedisEvent) + Send + Sync>;
