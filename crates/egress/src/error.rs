//! What can go wrong on the way out, and whether the request can have been sent.

use std::error::Error as StdError;
use std::io;

use hyper_util::client::legacy;

use crate::filter::{Denied, Rule};

/// A request that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// A rule refuses the target; nothing was sent.
    #[error("egress_denied by rule `{rule}`")]
    Denied {
        /// The rule.
        rule: Rule,
    },
    /// No connection: the name does not resolve or nobody accepts. Nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// No TLS session: certificate or handshake. Nothing was sent.
    #[error("TLS failed: {0}")]
    Tls(#[source] io::Error),
    /// No connection within the connect timeout; nothing was sent.
    #[error("no connection within the connect timeout")]
    Timeout,
    /// The connection broke before a head arrived.
    #[error("the connection broke: {cause}")]
    Broken {
        /// Whether the other side can have received the request.
        sent: bool,
        /// What broke.
        #[source]
        cause: Box<dyn StdError + Send + Sync>,
    },
    /// The request cannot be sent as it is: no absolute URI, an unknown version.
    #[error("malformed request: {0}")]
    Malformed(String),
}

impl EgressError {
    /// Whether the other side can have received the request. Only when this is false may a call
    /// with side effects be sent again (SSE-13).
    pub fn may_have_been_sent(&self) -> bool {
        match self {
            EgressError::Broken { sent, .. } => *sent,
            EgressError::Denied { .. }
            | EgressError::Connect(_)
            | EgressError::Tls(_)
            | EgressError::Timeout
            | EgressError::Malformed(_) => false,
        }
    }

    pub(crate) fn from_client(error: legacy::Error) -> Self {
        if error.is_connect() {
            return Self::from_connect(&error);
        }
        let sent = !provably_unsent(&error);
        EgressError::Broken {
            sent,
            cause: Box::new(error),
        }
    }

    /// A connection that could not be made.
    pub(crate) fn of(failure: &ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Denied(denied) => EgressError::Denied { rule: denied.rule },
            ConnectFailure::Connect(error) => EgressError::Connect(copy(error)),
            ConnectFailure::Tls(error) => EgressError::Tls(copy(error)),
            ConnectFailure::Timeout => EgressError::Timeout,
        }
    }

    /// What ended a request that whoever sent it drove himself.
    pub(crate) fn from_plain(error: hyper::Error) -> Self {
        EgressError::Broken {
            // the HTTP library calls a request that it has not begun to write "canceled"
            sent: !error.is_canceled(),
            cause: Box::new(error),
        }
    }

    fn from_connect(error: &legacy::Error) -> Self {
        match cause_of::<ConnectFailure>(error) {
            Some(failure) => Self::of(failure),
            // the HTTP handshake of a connection that closed at once
            None => EgressError::Connect(io::Error::other(innermost(error))),
        }
    }
}

impl From<Denied> for EgressError {
    fn from(denied: Denied) -> Self {
        EgressError::Denied { rule: denied.rule }
    }
}

/// Why the connector has no connection to offer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectFailure {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("{0}")]
    Connect(io::Error),
    #[error("{0}")]
    Tls(io::Error),
    #[error("timed out")]
    Timeout,
}

/// The first cause of type `E`.
pub(crate) fn cause_of<'a, E: StdError + 'static>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        // an I/O error shows the source of what it wraps, not what it wraps
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if let Some(wrapped) = wrapped
            && let Some(found) = cause_of::<E>(wrapped)
        {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn copy(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// The HTTP library gives an untouched request back as "canceled"; a peer that refused a stream
/// says that it did not process it.
fn provably_unsent(error: &legacy::Error) -> bool {
    let canceled = cause_of::<hyper::Error>(error).is_some_and(hyper::Error::is_canceled);
    let refused = cause_of::<h2::Error>(error).is_some_and(|error| {
        error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM)
    });
    canceled || refused
}
