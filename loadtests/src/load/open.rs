//! The open model: calls fall due at a fixed rate, and the target's slowness delays none of them.
//!
//! A call that falls due while every connection is busy waits for one, and that wait is part of its
//! latency, because a caller would have waited too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Patience, Tally, assemble, dismiss};
use crate::measure::Times;
use crate::plan::{Model, Plan};
use crate::schedule::{self, Schedule};
use crate::user::User;

/// Between the last arrival of a caller and the first call.
const BREATH: Duration = Duration::from_millis(50);

/// What the callers of an open run share.
struct Run {
    schedule: Schedule,
    warmup: u64,
    arrivals: Arc<Semaphore>,
    next: AtomicU64,
    tally: Arc<Tally>,
}

pub(crate) async fn run(plan: &Arc<Plan>, tally: &Arc<Tally>) {
    let Model::Open {
        rate,
        requests,
        warmup,
    } = plan.model
    else {
        return;
    };
    let users = assemble(plan, tally).await;
    let workers = users.len();
    let run = Arc::new(Run {
        schedule: Schedule::new(Instant::now() + BREATH, rate, requests),
        warmup,
        arrivals: Arc::new(Semaphore::new(0)),
        next: AtomicU64::new(0),
        tally: Arc::clone(tally),
    });
    let mut working = JoinSet::new();
    for user in users {
        working.spawn(work(user, Arc::clone(&run)));
    }
    let (schedule, arrivals) = (run.schedule, Arc::clone(&run.arrivals));
    let pacer = std::thread::spawn(move || schedule::pace(&schedule, &arrivals, workers));
    dismiss(working).await;
    // the workers stop on what the pacer releases last, or all gave up and nobody waits for it
    drop(pacer);
}

async fn work(mut user: User, run: Arc<Run>) -> User {
    let mut patience = Patience::default();
    let mut free = Instant::now();
    while let Ok(permit) = run.arrivals.acquire().await {
        permit.forget();
        let index = run.next.fetch_add(1, Ordering::Relaxed);
        if index >= run.schedule.count() {
            break;
        }
        let intended = run.schedule.intended(index);
        let started = Instant::now();
        run.tally.sent();
        let outcome = user.call().await;
        let ended = Instant::now();
        if index >= run.warmup {
            run.tally.record(
                &Times {
                    intended,
                    free,
                    started,
                    ended,
                },
                &outcome,
            );
        }
        if !patience.goes_on(&outcome) {
            break;
        }
        free = ended;
    }
    user
}
