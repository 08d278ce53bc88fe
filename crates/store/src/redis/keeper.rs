//! Keeps one connection to the primary: the one task that connects.
//!
//! A new link is looked for when a command found the present one broken, or when the present one
//! does not answer a ping: once a second one is sent, so that an outage is known before work comes.
//! Sentinels are asked as often whether it is still the primary.
//! The link to a cluster is broken only when none of its nodes answers for some seconds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::client::Shared;
use super::connect::Connection;
use super::settings::RedisEvent;
use crate::seal::random;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PING_EVERY: Duration = Duration::from_secs(1);

/// The primary, as it was found.
pub(super) struct Primary {
    pub(super) connection: Connection,
    /// Grows with each time it is found, from 1.
    pub(super) generation: u64,
    /// For another connection to the same server, if it is one.
    pub(super) client: Option<redis::Client>,
}

/// How the primary is reached.
#[derive(Clone)]
pub(super) enum Link {
    /// It is being looked for, for the first time or since a moment: worth waiting.
    Finding,
    /// It answers.
    Up(Arc<Primary>),
    /// It was looked for and not found. The breaker is open: nobody waits.
    Away(String),
}

/// Keeps the link until the client is dropped.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut pause = Pause::default();
    let mut generation = 0;
    let mut told = None;
    loop {
        match shared.connector.connect().await {
            Ok((connection, client)) => {
                generation += 1;
                let primary = Arc::new(Primary {
                    connection,
                    generation,
                    client,
                });
                let since = Instant::now();
                let link = Link::Up(Arc::clone(&primary));
                shared.link.send_replace(link);
                tell(&shared, &mut told, RedisEvent::Up);
                until_broken(&shared, &primary).await;
                shared.link.send_replace(Link::Finding);
                if since.elapsed() >= PAUSE_MAX {
                    pause = Pause::default();
                    continue; // a link that lived is looked for at once
                }
            }
            Err(why) => {
                shared.link.send_replace(Link::Away(why.clone()));
                tell(&shared, &mut told, RedisEvent::Down(why));
            }
        }
        sleep(pause.next()).await;
    }
}

/// Says each change once.
fn tell(shared: &Shared, told: &mut Option<bool>, event: RedisEvent) {
    let up = event == RedisEvent::Up;
    if told.replace(up) != Some(up) {
        (shared.alarm)(event);
    }
}

async fn until_broken(shared: &Shared, primary: &Primary) {
    let mut broken = shared.broken.subscribe();
    let mut connection = primary.connection.clone();
    let mut failures = 0;
    while failures < connection.patience() {
        let found = broken.wait_for(|newest| *newest >= primary.generation);
        // what has failed once is asked again at once
        let every = if failures == 0 { PING_EVERY } else { PAUSE_MIN };
        if timeout(every, found).await.is_ok() {
            return;
        }
        let ping = timeout(shared.settings.connect_timeout, connection.ping());
        failures = match ping.await {
            Ok(Ok(())) => 0,
            Ok(Err(_)) | Err(_) => failures + 1,
        };
        if failures == 0 && shared.connector.is_superseded().await {
            return;
        }
    }
}

/// Growing pauses, each of a random length between a half and the whole, so that the replicas of a
/// fleet do not come all at once.
#[derive(Debug)]
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(PAUSE_MIN)
    }
}

impl Pause {
    pub(super) fn next(&mut self) -> Duration {
        let whole = self.0;
        self.0 = (whole * 2).min(PAUSE_MAX);
        let part = f64::from(u16::from_be_bytes(random())) / f64::from(u16::MAX);
        whole.mul_f64(0.5 + part / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn el_23_pauses_grow_from_50_ms_to_2_s() {
        let mut pause = Pause::default();
        let mut whole = PAUSE_MIN;
        for _ in 0..12 {
            let next = pause.next();
            assert!(next >= whole / 2 && next <= whole, "{next:?} of {whole:?}");
            whole = (whole * 2).min(PAUSE_MAX);
        }
        assert_eq!(whole, PAUSE_MAX);
    }
}
