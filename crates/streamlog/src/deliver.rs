//! Publishing under back-pressure: what must not be lost waits until there is room for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::LogError;
use crate::held::Held;
use crate::log::{Class, Event};

/// See [`StreamLog::deliver`](crate::StreamLog::deliver). Whether there is room and the taking of
/// it are one step, so that of several who wait none pushes out another.
pub(crate) async fn deliver(
    held: &Arc<Held>,
    hold: Duration,
    payload: Bytes,
) -> Result<Option<Vec<Arc<str>>>, LogError> {
    let patience = sleep(hold);
    tokio::pin!(patience);
    loop {
        // Whoever has no reader has nothing to wait for.
        let reader = held.with(|log, _| log.wake_of_newest());
        let Some(wake) = reader else {
            return held.grow(None, |log, at| {
                log.publish(vec![message(&payload)], at).map(Some)
            });
        };
        let woken = wake.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        let published = held.grow(None, |log, at| {
            let room = log.has_room_behind(payload.len());
            room.then(|| log.publish(vec![message(&payload)], at))
        });
        if let Some(published) = published {
            return published.map(Some);
        }
        tokio::select! {
            () = woken => {}
            () = &mut patience => return Ok(None),
        }
    }
}

fn message(payload: &Bytes) -> Event {
    Event {
        class: Class::Message,
        payload: payload.clone(),
    }
}
