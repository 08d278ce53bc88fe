//! The models of load, and what they share: callers who are all there before the clock starts.

pub mod closed;
pub mod held;
pub mod open;
pub mod resume;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::answer::Failure;
use crate::measure::{Measure, Received, Summary, Times};
use crate::plan::{Held, Model, Plan};
use crate::report::Report;
use crate::user::User;

/// A caller who fails this often in a row goes home: the target is gone, and hammering at a closed
/// door measures nothing.
const PATIENCE: u32 = 50;

/// What all callers of a run write to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    measure: std::sync::Mutex<Measure>,
    sent: AtomicU64,
}

// === impl Tally ===

impl Tally {
    /// One call was sent; it is recorded or not.
    pub(crate) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Records how a call ended.
    pub(crate) fn record(&self, times: &Times, outcome: &Result<Received, Failure>) {
        self.with(|measure| match outcome {
            Ok(received) => measure.answered(times, *received),
            Err(failure) => measure.failed(failure.to_string(), times.started, times.ended),
        });
    }

    fn summary(&self) -> Summary {
        self.with(|measure| measure.summary())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Measure) -> T) -> T {
        let mut measure = self
            .measure
            .lock()
            .expect("nothing that holds this lock panics");
        change(&mut measure)
    }
}

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(crate) struct Patience(u32);

impl Patience {
    /// Takes one outcome; false when it is time to give up.
    pub(crate) fn goes_on(&mut self, outcome: &Result<Received, Failure>) -> bool {
        self.0 = if outcome.is_ok() { 0 } else { self.0 + 1 };
        self.0 < PATIENCE
    }
}

/// Runs a plan to its end. Dropping this future ends all of its connections.
pub async fn run(plan: Plan) -> Report {
    let plan = Arc::new(plan);
    let tally = Arc::new(Tally::default());
    let held = held::Streams::open(&plan).await;
    let mut resumed = None;
    match plan.model {
        Model::Closed { requests } => closed::run(&plan, &tally, requests).await,
        Model::Open { .. } => open::run(&plan, &tally).await,
        Model::Hold => tokio::time::sleep(plan.seconds).await,
        Model::Resume { .. } => resumed = Some(resume::run(&plan, &tally).await),
    }
    let held = held.close().await;
    let mut report = Report {
        model: name(plan.model),
        era: plan.messages.era(),
        connections: plan.connections,
        sent: tally.sent.load(Ordering::Relaxed),
        calls: tally.summary(),
        held: (plan.held != Held::default()).then_some(held),
        resume: resumed,
        broken: Vec::new(),
    };
    report.broken = plan.thresholds.broken(&report);
    report
}

fn name(model: Model) -> &'static str {
    match model {
        Model::Closed { .. } => "closed",
        Model::Open { .. } => "open",
        Model::Hold => "hold",
        Model::Resume { .. } => "resume",
    }
}

/// Lets every caller connect and open its session. Who cannot is counted, and stays to try again
/// with its first call.
async fn assemble(plan: &Arc<Plan>, tally: &Tally) -> Vec<User> {
    let mut arriving = JoinSet::new();
    for _ in 0..plan.connections {
        let mut user = User::new(Arc::clone(plan));
        arriving.spawn(async move {
            let started = Instant::now();
            let arrived = user.arrive().await;
            (user, started, arrived)
        });
    }
    let mut users = Vec::with_capacity(plan.connections);
    while let Some(Ok((user, started, arrived))) = arriving.join_next().await {
        if let Err(failure) = arrived {
            let kind = format!("arrival: {failure}");
            tally.with(|measure| measure.failed(kind, started, Instant::now()));
        }
        users.push(user);
    }
    users
}

/// Waits for the callers of a run and sends them home.
async fn dismiss(mut working: JoinSet<User>) {
    let mut leaving = JoinSet::new();
    while let Some(done) = working.join_next().await {
        if let Ok(user) = done {
            leaving.spawn(user.leave());
        }
    }
    leaving.join_all().await;
}
