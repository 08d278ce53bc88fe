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
    /// Changes once nothing may go on, and whenever somebody may have lost his admission: one thing to
    /// watch, since every call does.
    stopped: watch::Sender<Phase>,
}

/// How far the process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// It stops; `outlived`: another process goes on with what is written down.
    Stopping {
        outlived: bool,
    },
}

/// Why a call does not go on here, with what its client is told.
#[derive(Debug)]
pub(crate) enum Over {
    /// It has ended.
    Ended(RpcError),
    /// The process stops, and another goes on with the call if it can be found how it stands; if not,
    /// it has ended.
    Left(RpcError),
}

/// One call's or stream's view of it.
pub(crate) struct Ending {
    admission: Admission,
    stopped: watch::Receiver<Phase>,
    principal: Arc<Principal>,
    plan: Arc<ServerPlan>,
}

// === impl Endings ===

impl Endings {
    pub(crate) fn new(admission: Admission) -> Self {
        Self {
            admission,
            stopped: watch::Sender::new(Phase::Serving),
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
            principal: Arc::clone(principal),
            plan: Arc::clone(plan),
        }
    }

    pub(crate) fn admits(&self, principal: &Principal, server: &ServerId) -> bool {
        (self.admission)(principal, server)
    }

    /// Everything ends now, but for what another process goes on with.
    pub(crate) fn stop(&self, outlived: bool) {
        self.stopped.send_replace(Phase::Stopping { outlived });
    }

    /// Whether everything has ended.
    pub(crate) fn stopping(&self) -> bool {
        *self.stopped.borrow() != Phase::Serving
    }

    /// Whoever is no longer let in ends now.
    pub(crate) fn recheck(&self) {
        self.stopped.send_modify(|_same| {});
    }
}

// === impl Ending ===

impl Ending {
    /// Resolves when the call is over, with what its client is told. Can be dropped and called
    /// again.
    pub(crate) async fn over(&mut self) -> Over {
        loop {
            match *self.stopped.borrow() {
                Phase::Serving => {}
                Phase::Stopping { outlived: true } => return Over::Left(stopping()),
                Phase::Stopping { outlived: false } => return Over::Ended(stopping()),
            }
            if self.stopped.changed().await.is_err() {
                // nobody is left who could end it
                std::future::pending::<()>().await;
            }
            let serving = *self.stopped.borrow() == Phase::Serving;
            if serving && !(self.admission)(&self.principal, &self.plan.server) {
                return Over::Ended(no_longer_admitted());
            }
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
