//! What ends a call from above, whoever serves it: the process stops for good, or its caller is no
//! longer let in (AUT-23).

use std::sync::Arc;

use tokio::sync::watch;
use vestibule_exchange::RpcError;
use vestibule_terms::reject::code;
use vestibule_terms::{Principal, ServerId, ServerPlan};

use crate::facts::Facts;

/// Whether a caller who was let in once would be let in to that server now.
pub type Admission = Arc<dyn Fn(&Principal, &ServerId) -> bool + Send + Sync>;

/// Tells every call of this process to look whether it is over.
pub(crate) struct Endings {
    admission: Admission,
    /// True once nothing may go on.
    stopped: watch::Sender<bool>,
    /// Changes whenever somebody may have lost his admission.
    changed: watch::Sender<u64>,
}

/// One call's or stream's view of it.
pub(crate) struct Ending {
    admission: Admission,
    stopped: watch::Receiver<bool>,
    changed: watch::Receiver<u64>,
    principal: Arc<Principal>,
    plan: Arc<ServerPlan>,
}

// === impl Endings ===

impl Endings {
    pub(crate) fn new(admission: Admission) -> Self {
        Self {
            admission,
            stopped: watch::Sender::new(false),
            changed: watch::Sender::new(0),
        }
    }

    /// What the call of that caller waits for.
    pub(crate) fn of(&self, facts: &Facts) -> Ending {
        self.watch(&facts.principal, &facts.plan)
    }

    pub(crate) fn watch(&self, principal: &Arc<Principal>, plan: &Arc<ServerPlan>) -> Ending {
        Ending {
            admission: Arc::clone(&self.admission),
            stopped: self.stopped.subscribe(),
            changed: self.changed.subscribe(),
            principal: Arc::clone(principal),
            plan: Arc::clone(plan),
        }
    }

    pub(crate) fn admits(&self, principal: &Principal, server: &ServerId) -> bool {
        (self.admission)(principal, server)
    }

    /// Everything ends now.
    pub(crate) fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Whoever is no longer let in ends now.
    pub(crate) fn recheck(&self) {
        self.changed
            .send_modify(|turn| *turn = turn.wrapping_add(1));
    }
}

// === impl Ending ===

impl Ending {
    /// Resolves when the call is over, with what its client is told. Can be dropped and called
    /// again.
    pub(crate) async fn over(&mut self) -> RpcError {
        loop {
            let stopped = tokio::select! {
                stopped = self.stopped.wait_for(|stopped| *stopped) => stopped.is_ok(),
                changed = self.changed.changed() => {
                    if changed.is_ok() && !(self.admission)(&self.principal, &self.plan.server) {
                        return no_longer_admitted();
                    }
                    if changed.is_ok() {
                        continue;
                    }
                    false
                }
            };
            if stopped {
                return stopping();
            }
            // nobody is left who could end it
            std::future::pending::<()>().await;
        }
    }
}

fn stopping() -> RpcError {
    let message = "the gateway stops; the call may or may not have run";
    let reason = "gateway_stopping";
    RpcError::gateway(code::UPSTREAM_UNAVAILABLE, message, reason, None, false)
}

fn no_longer_admitted() -> RpcError {
    let message = "the credential of this call is no longer accepted";
    RpcError::gateway(code::UPSTREAM_AUTH, message, "revoked", None, false)
}
