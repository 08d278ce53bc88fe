//! Streams that are opened, held, and read as little as arrives: what idle listeners cost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Serialize;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::answer::{self, Failure};
use crate::events::EventReader;
use crate::plan::{Held, Plan};
use crate::user::User;

/// Streams that are being opened at once; more would measure the listen queue.
const OPENING: usize = 64;

/// What became of the held streams.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HeldCounts {
    /// Streams that opened.
    pub opened: u64,
    /// Streams that did not.
    pub failed: u64,
    /// Streams that ended before they were let go.
    pub lost: u64,
    /// Events with data that arrived.
    pub events: u64,
    /// Why streams did not open.
    pub failures: BTreeMap<String, u64>,
}

/// The streams of one run. Dropping them ends them.
#[derive(Debug)]
pub(crate) struct Streams {
    tasks: JoinSet<()>,
    counts: Arc<Counts>,
    release: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Counts {
    opened: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
    events: AtomicU64,
    failures: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Get,
    Post,
}

// === impl Streams ===

impl Streams {
    /// Opens every stream of the plan and returns when each is open or has failed.
    pub(crate) async fn open(plan: &Arc<Plan>) -> Self {
        let Held { get, post } = plan.held;
        let (release, released) = watch::channel(false);
        let counts = Arc::new(Counts::default());
        let opening = Arc::new(Semaphore::new(OPENING));
        let mut tasks = JoinSet::new();
        let kinds =
            std::iter::repeat_n(Kind::Get, get).chain(std::iter::repeat_n(Kind::Post, post));
        for kind in kinds {
            let (plan, opening) = (Arc::clone(plan), Arc::clone(&opening));
            let (counts, released) = (Arc::clone(&counts), released.clone());
            tasks.spawn(async move {
                let opened = {
                    let _turn = opening.acquire().await;
                    open(plan, kind).await
                };
                match opened {
                    Ok((user, body)) => hold(user, body, &counts, released).await,
                    Err(why) => counts.fail(&why),
                }
            });
        }
        let wanted = u64::try_from(get + post).unwrap_or(u64::MAX);
        while counts.decided() < wanted {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Self {
            tasks,
            counts,
            release,
        }
    }

    /// Lets all streams go and says what became of them.
    pub(crate) async fn close(self) -> HeldCounts {
        let counts = self.counts.read();
        self.release.send_replace(true);
        self.tasks.join_all().await;
        counts
    }
}

impl Counts {
    fn fail(&self, why: &Failure) {
        *self.failures().entry(why.to_string()).or_default() += 1;
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn failures(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.failures
            .lock()
            .expect("nothing that holds this lock panics")
    }

    fn decided(&self) -> u64 {
        self.opened.load(Ordering::Relaxed) + self.failed.load(Ordering::Relaxed)
    }

    fn read(&self) -> HeldCounts {
        HeldCounts {
            opened: self.opened.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            events: self.events.load(Ordering::Relaxed),
            failures: self.failures().clone(),
        }
    }
}

async fn open(plan: Arc<Plan>, kind: Kind) -> Result<(User, Incoming), Failure> {
    let timeout = plan.timeout;
    let opened = tokio::time::timeout(timeout, async {
        let mut user = match kind {
            Kind::Get => User::new(plan),
            Kind::Post => User::holding(plan),
        };
        user.arrive().await?;
        let response = match kind {
            Kind::Get => user.listen(None).await?,
            Kind::Post => user.start_call().await?.1,
        };
        if response.status().is_success() && answer::is_stream(&response) {
            return Ok((user, response.into_body()));
        }
        Err(Failure::Status(response.status()))
    });
    opened.await.map_err(|_| Failure::Timeout)?
}

/// Reads until the stream ends or is let go; its session is then ended on a new connection.
async fn hold(
    mut user: User,
    mut body: Incoming,
    counts: &Counts,
    mut released: watch::Receiver<bool>,
) {
    counts.opened.fetch_add(1, Ordering::Relaxed);
    let mut reader = EventReader::default();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _gone = released.wait_for(|is_released| *is_released) => break,
        };
        let Some(Ok(frame)) = frame else {
            counts.lost.fetch_add(1, Ordering::Relaxed);
            break;
        };
        let Some(data) = frame.data_ref() else {
            continue;
        };
        reader.push(data, |event| {
            counts
                .events
                .fetch_add(u64::from(!event.data.is_empty()), Ordering::Relaxed);
        });
    }
    drop(body);
    user.hang_up();
    user.leave().await;
}
