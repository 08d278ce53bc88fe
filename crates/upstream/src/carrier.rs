//! How a single message that is no call of its own gets to a legacy upstream: a POST of its own or
//! a line.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_exchange::BoxFuture;

use crate::background::Background;
use crate::compose;
use crate::fault::Fault;
use crate::ids::CallId;

/// Brings answers, refusals and notifications to one upstream session.
pub(crate) trait Carrier: Send + Sync + 'static {
    /// Brings one message; an error means that it was not taken.
    fn carry(&self, message: Vec<Bytes>) -> BoxFuture<Result<(), Fault>>;
}

/// Tells the upstream that a request is no longer wanted, unless its end was seen (CAN-01, CAN-07).
pub(crate) struct CancelGuard {
    id: CallId,
    carrier: Arc<dyn Carrier>,
    background: Background,
    armed: bool,
}

impl CancelGuard {
    /// For the request of `id` that is about to be sent.
    pub(crate) fn new(id: &CallId, carrier: Arc<dyn Carrier>, background: &Background) -> Self {
        Self {
            id: id.clone(),
            carrier,
            background: background.clone(),
            armed: true,
        }
    }

    /// The request has ended, or never reached the upstream.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let carrying = self.carrier.carry(vec![compose::cancelled(&self.id)]);
        self.background.run(async move {
            if let Err(error) = carrying.await {
                tracing::debug!(%error, "a cancellation was not taken");
            }
        });
    }
}

impl fmt::Debug for CancelGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelGuard")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
