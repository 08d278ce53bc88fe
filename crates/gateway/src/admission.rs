//! Who was let in and no longer is: after a reload that took his credential, his server or his
//! tenant away, and when a key expires. Calls, streams and sessions of his end within a second
//! (AUT-23).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use vestibule_auth::{SharedKeys, still_accepted};
use vestibule_middleware::plans::SharedPlans;
use vestibule_session::{Admission, Supervisor};
use vestibule_terms::Clock;

/// What admission depends on, and the bell that rings when it has changed.
#[derive(Clone)]
pub(crate) struct Admissions {
    plans: SharedPlans,
    keys: SharedKeys,
    clock: Arc<dyn Clock>,
    changed: Arc<Notify>,
}

impl Admissions {
    pub(crate) fn new(plans: &SharedPlans, keys: &SharedKeys, clock: &Arc<dyn Clock>) -> Self {
        Self {
            plans: Arc::clone(plans),
            keys: Arc::clone(keys),
            clock: Arc::clone(clock),
            changed: Arc::default(),
        }
    }

    /// The question, against the newest snapshots.
    pub(crate) fn question(&self) -> Admission {
        let Self {
            plans, keys, clock, ..
        } = self.clone();
        Arc::new(move |principal, server| {
            let tenant = principal.tenant.as_str();
            plans.load().find(tenant, server.as_str()).is_some()
                && still_accepted(&keys.load(), clock.as_ref(), principal, server)
        })
    }

    /// The snapshots were swapped.
    pub(crate) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Asks again after every change and at every expiry, until dropped.
    pub(crate) async fn watch(self, supervisor: Supervisor) {
        loop {
            let now = self.clock.unix_millis();
            let expiry = self.keys.load().next_expiry(now);
            let wait = expiry.map(|at| Duration::from_millis(at.saturating_sub(now)));
            tokio::select! {
                () = self.changed.notified() => {}
                () = elapsed(wait) => {}
            }
            supervisor.recheck().await;
        }
    }
}

/// An expiry may be years away, further than a timer reaches: it is looked at again every day.
async fn elapsed(wait: Option<Duration>) {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    match wait {
        Some(wait) => tokio::time::sleep(wait.min(DAY)).await,
        None => std::future::pending().await,
    }
}
