//! Streams of other replicas that are read here: what comes to them is fetched from the store by
//! number, when a hint says that there is something, and now and then without (EL-10, EL-11).

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::core::{Core, jittered};
use super::hint::Kind;
use super::import::{LOOK, REPAIR};
use super::record::Found;
use crate::LogError;
use crate::event_id::StreamId;
use crate::held::Held;
use crate::tail::Stop;

/// How often a stream is looked at of which no hint comes (EL-10).
const POLL: Duration = Duration::from_secs(5);

impl Core {
    /// Fetches what has come to a stream of another replica. False when the store has not what it
    /// had.
    async fn pull(&self, held: &Arc<Held>, id: StreamId, top: u64) -> Result<bool, LogError> {
        match self.load(held, id, top).await? {
            Found::Record(record) => {
                let owner = Arc::clone(&record.owner);
                let follows = held.grow(Some(id), |log, at| log.follow(*record, at));
                if !follows {
                    self.tell(&owner, Kind::Repair, held, id).await;
                }
                Ok(follows)
            }
            Found::Gone => {
                self.gone(held);
                Ok(true)
            }
            Found::Nothing | Found::Taken => {
                self.ask_everybody(held, id).await;
                Ok(false)
            }
        }
    }
}

/// Follows a stream that another replica writes, as long as it is read here (EL-11).
pub(super) async fn follow(core: Weak<Core>, held: Arc<Held>, id: StreamId) {
    let mut wrong: Option<Instant> = None;
    loop {
        let Some((bell, top)) = held.with(|log, _| log.following(id)) else {
            return;
        };
        let Some(strong) = core.upgrade() else { return };
        // an error is no news: the store is away, and is asked again
        let follows = strong.pull(&held, id, top).await.unwrap_or(true);
        let more = held.with(|log, _| log.top(id)) > Some(top);
        drop(strong);
        let since = (!follows).then(|| wrong.unwrap_or_else(Instant::now));
        wrong = since;
        if since.is_some_and(|since| since.elapsed() >= REPAIR) {
            held.with(|log, at| log.lost_elsewhere(id, at));
            continue;
        }
        held.with(|log, at| {
            if more && log.lag_of_reader(id, at).is_too_slow() {
                log.stop(id, Stop::Slow); // its writer, who would see to it, is elsewhere
            }
        });
        let wait = if follows { POLL } else { LOOK };
        let _no_hint = timeout(jittered(wait), bell.notified()).await.is_err();
    }
}
