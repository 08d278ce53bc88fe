//! `watch`: numbered notifications on the GET stream of whoever watches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::ledger::DiskFailed;
use super::message;
use super::serve::House;
use super::session::{Session, locked};
use crate::history::{Entry, now};
use crate::random::Random;

/// Nothing is sent for a watcher who has not been heard of for so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who watches, and where.
#[derive(Debug)]
pub(super) struct Watcher {
    key: String,
    canary: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    session: Arc<Session>,
    heard_of: Instant,
    stopped: bool,
    sent: u64,
}

/// Begins or goes on to watch in this session; the number of the last notification.
pub(super) fn watch(
    house: &Arc<House>,
    session: &Arc<Session>,
    key: &str,
    canary: &str,
    stop: bool,
) -> u64 {
    let mut watchers = locked(&house.watchers);
    if let Some(watcher) = watchers.get(key) {
        let mut state = locked(&watcher.state);
        state.session = Arc::clone(session);
        state.heard_of = Instant::now();
        state.stopped |= stop;
        return state.sent;
    }
    let watcher = Arc::new(Watcher {
        key: key.to_owned(),
        canary: canary.to_owned(),
        state: Mutex::new(State {
            session: Arc::clone(session),
            heard_of: Instant::now(),
            stopped: stop,
            sent: 0,
        }),
    });
    watchers.insert(key.to_owned(), Arc::clone(&watcher));
    let house = Arc::clone(house);
    tokio::spawn(async move {
        // a ledger that cannot be written ends it
        let _failed = watcher.tell(&house).await;
    });
    0
}

impl Watcher {
    async fn tell(&self, house: &House) -> Result<(), DiskFailed> {
        let mut random = Random::new(u64::try_from(self.key.len()).unwrap_or(1));
        loop {
            sleep(Duration::from_millis(random.between(60, 200))).await;
            let Some(number) = self.next() else {
                continue;
            };
            let Some(number) = number else { return Ok(()) };
            let stream = locked(&self.state).session.newest_stream();
            let name = stream.as_ref().and_then(|stream| stream.name());
            let entry = Entry::Noticed {
                at: now(),
                key: self.key.clone(),
                number,
                stream: name.map(str::to_owned),
            };
            house.ledger.enter(&entry).await?;
            if let Some(stream) = stream {
                let uri = format!("ledger://{}/{}/{number}", self.canary, self.key);
                stream.push(&message::updated(&uri));
            }
        }
    }

    /// The next number: none while nobody is heard of, an inner none when it is over.
    fn next(&self) -> Option<Option<u64>> {
        let mut state = locked(&self.state);
        if state.stopped {
            return Some(None);
        }
        if state.heard_of.elapsed() > PATIENCE {
            return None;
        }
        state.sent += 1;
        Some(Some(state.sent))
    }
}
