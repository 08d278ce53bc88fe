//! What one process began at an upstream and another one goes on with.
//!
//! A process that ends takes its connections with it, but not what upstreams remember: sessions,
//! and streams whose events have ids. What is needed to find them again is written down while
//! everything is well, as bytes that only the connector understands.

use std::fmt;

use bytes::Bytes;
use vestibule_terms::UpstreamId;

/// What is to be gone on with. A call that carries one is never sent anew.
#[derive(Clone, PartialEq, Eq)]
pub enum Continuation {
    /// The rest of a call: its events from where the mark stands, and its answer. Where the
    /// upstream does not remember it, it ends with `outcome_unknown`.
    Call {
        /// The upstream that answers it.
        upstream: UpstreamId,
        /// The newest [`Event::Mark`](crate::Event::Mark).
        mark: Bytes,
    },
    /// The end of a call that nobody wants any more: its upstream is told, and nothing is read.
    Cancel {
        /// The upstream that runs it.
        upstream: UpstreamId,
        /// One of its marks.
        mark: Bytes,
    },
    /// What an upstream says outside of every call of a session: it is listened to from now on.
    Listen {
        /// The upstream.
        upstream: UpstreamId,
    },
}

impl Continuation {
    /// The upstream it is about.
    pub fn upstream(&self) -> &UpstreamId {
        match self {
            Continuation::Call { upstream, .. }
            | Continuation::Cancel { upstream, .. }
            | Continuation::Listen { upstream } => upstream,
        }
    }
}

impl fmt::Debug for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Continuation::Call { .. } => "Call",
            Continuation::Cancel { .. } => "Cancel",
            Continuation::Listen { .. } => "Listen",
        };
        f.debug_struct(name)
            .field("upstream", self.upstream())
            .finish_non_exhaustive()
    }
}
