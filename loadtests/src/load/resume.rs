//! Answers that are cut in the middle and continued with `Last-Event-ID`: is every later event
//! there, and once?
//!
//! The progress events of one answer are numbered from 1, so what is missing or repeated is seen
//! without knowing anything about event ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Patience, Tally, assemble, dismiss};
use crate::answer::{self, Failure};
use crate::events::{Event, EventReader};
use crate::measure::{Received, Times};
use crate::plan::{Model, Plan};
use crate::user::User;

/// What became of the cut answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ResumeCounts {
    /// Answers that were cut and came to their end all the same.
    pub rounds: u64,
    /// Events of those answers that never came.
    pub missing: u64,
    /// Events of those answers that came twice.
    pub repeated: u64,
}

/// Which numbers of an answer arrived, and how it ended.
#[derive(Debug)]
struct Seen {
    id: u64,
    times: Vec<u32>,
    last_event: Option<String>,
    is_final: bool,
    received: Received,
}

#[derive(Deserialize)]
struct Progress {
    params: ProgressParams,
}

#[derive(Deserialize)]
struct ProgressParams {
    progress: usize,
}

struct Run {
    rounds: u64,
    cut: u64,
    events: usize,
    taken: AtomicU64,
    deadline: Instant,
    tally: Arc<Tally>,
    counts: std::sync::Mutex<ResumeCounts>,
}

pub(crate) async fn run(plan: &Arc<Plan>, tally: &Arc<Tally>) -> ResumeCounts {
    let Model::Resume {
        rounds,
        cut,
        events,
    } = plan.model
    else {
        return ResumeCounts::default();
    };
    let users = assemble(plan, tally).await;
    let run = Arc::new(Run {
        rounds,
        cut: cut.into(),
        events: usize::try_from(events).unwrap_or(usize::MAX),
        taken: AtomicU64::new(0),
        deadline: Instant::now() + plan.seconds,
        tally: Arc::clone(tally),
        counts: std::sync::Mutex::default(),
    });
    let mut working = JoinSet::new();
    for user in users {
        working.spawn(work(user, Arc::clone(&run), plan.timeout));
    }
    dismiss(working).await;
    *run.counts
        .lock()
        .expect("nothing that holds this lock panics")
}

async fn work(mut user: User, run: Arc<Run>, timeout: std::time::Duration) -> User {
    let mut patience = Patience::default();
    loop {
        let started = Instant::now();
        if started >= run.deadline || run.taken.fetch_add(1, Ordering::Relaxed) >= run.rounds {
            return user;
        }
        run.tally.sent();
        let outcome = match tokio::time::timeout(timeout, round(&mut user, &run)).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(Failure::Timeout),
        };
        let times = Times {
            intended: started,
            free: started,
            started,
            ended: Instant::now(),
        };
        run.tally.record(&times, &outcome);
        user.hang_up();
        if !patience.goes_on(&outcome) {
            return user;
        }
    }
}

async fn round(user: &mut User, run: &Run) -> Result<Received, Failure> {
    user.arrive().await?;
    let (id, response) = user.start_call().await?;
    let mut seen = Seen::new(id, run.events);
    seen.read(response, |seen| seen.received.events >= run.cut)
        .await?;
    user.hang_up();
    let last_event = seen.last_event.clone().ok_or(Failure::NoAnswer)?;
    if !seen.is_final {
        user.arrive().await?;
        let rest = user.listen(Some(&last_event)).await?;
        seen.read(rest, |seen| seen.is_final).await?;
    }
    if !seen.is_final {
        return Err(Failure::NoAnswer);
    }
    let mut counts = run
        .counts
        .lock()
        .expect("nothing that holds this lock panics");
    counts.rounds += 1;
    counts.missing += seen.missing();
    counts.repeated += seen.repeated();
    Ok(seen.received)
}

// === impl Seen ===

impl Seen {
    fn new(id: u64, events: usize) -> Self {
        let received = Received::default();
        Self {
            id,
            times: vec![0; events],
            last_event: None,
            is_final: false,
            received,
        }
    }

    /// Reads a stream until `enough`, or until it ends.
    async fn read(
        &mut self,
        response: Response<Incoming>,
        enough: impl Fn(&Self) -> bool,
    ) -> Result<(), Failure> {
        if !response.status().is_success() || !answer::is_stream(&response) {
            return Err(Failure::Status(response.status()));
        }
        let mut body = response.into_body();
        let mut reader = EventReader::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(Failure::Broken)?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            let mut events = Vec::new();
            reader.push(data, |event| events.push(event));
            for event in events {
                self.take(event);
                // what came in the same chunk behind the cut counts as never read
                if enough(self) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, event: Event) {
        if event.id.is_some() {
            self.last_event = event.id;
        }
        if event.data.is_empty() {
            return;
        }
        self.received.events += 1;
        self.received.bytes += u64::try_from(event.data.len()).unwrap_or(u64::MAX);
        if let Ok(progress) = serde_json::from_slice::<Progress>(&event.data) {
            let number = progress.params.progress;
            if let Some(times) = number
                .checked_sub(1)
                .and_then(|index| self.times.get_mut(index))
            {
                *times += 1;
            }
        } else if answer::judge(&event.data, self.id).is_ok() {
            self.is_final = true;
        }
    }

    fn missing(&self) -> u64 {
        self.times.iter().map(|times| u64::from(*times == 0)).sum()
    }

    fn repeated(&self) -> u64 {
        self.times
            .iter()
            .map(|times| u64::from(times.saturating_sub(1)))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(number: u32) -> Event {
        let data = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":7,"progress":{number}}}}}"#
        );
        Event {
            id: Some(format!("e{number}")),
            data: data.into_bytes(),
        }
    }

    #[test]
    fn missing_and_repeated_events_are_both_counted() {
        let mut seen = Seen::new(7, 5);
        for number in [1, 2, 2, 5, 5, 5, 99, 0] {
            seen.take(progress(number));
        }
        assert_eq!((seen.missing(), seen.repeated()), (2, 3));
        assert!(!seen.is_final);
        let data = br#"{"jsonrpc":"2.0","id":7,"result":{}}"#.to_vec();
        seen.take(Event { id: None, data });
        assert!(seen.is_final);
        assert_eq!(seen.last_event.as_deref(), Some("e0"));
    }
}
