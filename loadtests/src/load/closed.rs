//! The closed loop: as fast as the target answers, with so many callers at once.
//!
//! Good for throughput and for the cost of a call. Not for latency under load: a target that
//! stalls is asked less, so its stalls hardly show.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Patience, Tally, assemble, dismiss};
use crate::measure::Times;
use crate::plan::Plan;
use crate::user::User;

pub(crate) async fn run(plan: &Arc<Plan>, tally: &Arc<Tally>, requests: u64) {
    let users = assemble(plan, tally).await;
    let left = Arc::new(Left {
        requests,
        taken: AtomicU64::new(0),
    });
    let deadline = Instant::now() + plan.seconds;
    let mut working = JoinSet::new();
    for user in users {
        working.spawn(work(user, Arc::clone(tally), Arc::clone(&left), deadline));
    }
    dismiss(working).await;
}

/// The calls that are left for all callers together.
struct Left {
    requests: u64,
    taken: AtomicU64,
}

impl Left {
    fn take(&self) -> bool {
        self.taken.fetch_add(1, Ordering::Relaxed) < self.requests
    }
}

async fn work(mut user: User, tally: Arc<Tally>, left: Arc<Left>, deadline: Instant) -> User {
    let mut patience = Patience::default();
    let mut started = Instant::now();
    while started < deadline && left.take() {
        tally.sent();
        let outcome = user.call().await;
        let ended = Instant::now();
        let times = Times {
            intended: started,
            free: started,
            started,
            ended,
        };
        tally.record(&times, &outcome);
        if !patience.goes_on(&outcome) {
            break;
        }
        started = Instant::now();
    }
    user
}
