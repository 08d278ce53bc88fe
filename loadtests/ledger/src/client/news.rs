//! Several GET streams of one session, and the calls that keep its upstream talking.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::http::Opened;
use super::session::Session;
use super::sse::Event;
use super::world::World;
use crate::history::{Micros, News, NewsHeard, NewsRecord, Resumed, now};

/// GET streams that are open at the same time.
const STREAMS: usize = 2;
/// Between two calls that say that somebody watches.
const EVERY: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_millis(500);
/// How long is waited for what was sent last.
const LAST_WORDS: Duration = Duration::from_secs(20);
/// How long the last call may take to be answered, replicas dying meanwhile.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// Watches in a session until the world is over.
pub(crate) async fn watcher(world: Arc<World>, session: Session) {
    let watching = Arc::new(Watching {
        key: format!("w{}", session.number),
        world,
        session,
        record: Mutex::default(),
    });
    let mut streams = JoinSet::new();
    let mut reading = Vec::new();
    for _ in 0..STREAMS {
        let watching = Arc::clone(&watching);
        reading.push(streams.spawn(async move { watching.listen().await }));
    }
    watching.keep_watching().await;
    watching.await_the_last().await;
    streams.shutdown().await;
    watching.hand_in();
}

#[derive(Debug)]
struct Watching {
    key: String,
    world: Arc<World>,
    session: Session,
    record: Mutex<(NewsRecord, usize)>,
}

impl Watching {
    async fn keep_watching(&self) {
        while !self.world.is_over() {
            self.watch(false).await;
            // over or not is asked for above
            let _earlier = timeout(EVERY, self.world.until_over()).await;
        }
    }

    /// Has the upstream stop, and waits for what it sent last.
    async fn await_the_last(&self) {
        let until = Instant::now() + STOPS_WITHIN;
        let mut last = None;
        while last.is_none() && Instant::now() < until {
            last = self.watch(true).await;
            sleep(PAUSE).await;
        }
        let (stopped, until) = (now(), Instant::now() + LAST_WORDS);
        while Instant::now() < until && !self.is_complete(last, stopped) {
            sleep(PAUSE).await;
        }
    }

    /// Whether everything up to the last has come, or has been made good: a replica that dies late is
    /// found dead after the last.
    fn is_complete(&self, last: Option<u64>, stopped: Micros) -> bool {
        let record = self.record();
        let (mut missing, mut next) = (BTreeSet::new(), 1);
        for heard in &record.0.heard {
            match heard.what {
                News::Number(number) => {
                    missing.extend(next..number);
                    missing.remove(&number);
                    next = next.max(number + 1);
                }
                News::Repair if heard.at >= stopped => return true,
                News::Repair => missing.clear(),
                News::Foreign(_) => {}
            }
        }
        missing.is_empty() && last.is_none_or(|last| next > last)
    }

    fn hand_in(&self) {
        let (mut record, _) = std::mem::take(&mut *self.record());
        record.key.clone_from(&self.key);
        record.session = self.session.number;
        record.until = now();
        self.world.write(|records| records.news.push(record));
    }

    /// A call of its own each time: the number of the last notification, if it was answered.
    async fn watch(&self, stop: bool) -> Option<u64> {
        let request = self.world.next_call();
        let key = format!("c{request}");
        let arguments = json!({ "key": key, "watcher": self.key, "stop": stop });
        let params = json!({ "name": "watch", "arguments": arguments });
        let message = json!({
            "jsonrpc": "2.0", "id": request, "method": "tools/call", "params": params,
        });
        let mut owner = None;
        let posted = self.session.post(&self.world, &message, &mut owner).await;
        let mut opened = posted.ok()?;
        if opened.status == 404 {
            self.session.lost(&self.world, "watch: 404");
        }
        let body = opened.whole().await.ok()?;
        let answer: Value = serde_json::from_slice(&body).ok()?;
        let text = answer["result"]["content"][0]["text"].as_str()?;
        text.rsplit(' ').next()?.parse().ok()
    }

    /// One GET stream after the other: the next only when the one before cannot be resumed.
    async fn listen(&self) {
        loop {
            let stream = {
                let mut record = self.record();
                record.1 += 1;
                record.1
            };
            let mut reading = Reading {
                watching: self,
                stream,
                last: None,
                retry: PAUSE,
            };
            reading.run().await;
            sleep(PAUSE).await;
        }
    }

    fn record(&self) -> MutexGuard<'_, (NewsRecord, usize)> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Reading<'a> {
    watching: &'a Watching,
    stream: usize,
    last: Option<String>,
    retry: Duration,
}

impl Reading<'_> {
    /// Reads until the stream cannot be gone on with.
    async fn run(&mut self) {
        let Watching { world, session, .. } = self.watching;
        let mut broke = now();
        loop {
            let again = self.last.is_some();
            let opened = session.get(world, self.last.as_deref()).await;
            match opened {
                Ok(mut opened) if opened.status == 200 => {
                    if again {
                        self.resumed(broke);
                    }
                    self.read(&mut opened).await;
                    broke = now();
                }
                Ok(opened) if opened.status < 429 => {
                    self.refused(again, opened.status);
                    return;
                }
                Ok(_) | Err(_) => {}
            }
            if self.last.is_none() {
                return;
            }
            sleep(self.retry.min(RETRY_MAX)).await;
        }
    }

    fn resumed(&self, broke: Micros) {
        self.watching.record().0.resumed.push(Resumed {
            broke,
            answered: now(),
            status: 200,
            reader: None,
        });
    }

    fn refused(&self, again: bool, status: u16) {
        let Watching { world, session, .. } = self.watching;
        if status == 404 {
            session.lost(world, "GET: 404");
        } else if again {
            self.watching.record().0.refused.push(status);
        }
    }

    async fn read(&mut self, opened: &mut Opened) {
        while let Ok(Some(event)) = opened.next().await {
            self.dispatch(event);
        }
    }

    fn dispatch(&mut self, event: Event) {
        let Watching {
            world,
            session,
            key,
            ..
        } = self.watching;
        if let Some(retry) = event.retry {
            self.retry = Duration::from_millis(retry);
        }
        if let Some(id) = &event.id {
            self.last = Some(id.clone());
            session.keep_id(world, id);
        }
        if event.data.is_empty() {
            return;
        }
        let canary = &session.tenant(world).canary;
        self.watching.record().0.heard.push(NewsHeard {
            at: now(),
            stream: self.stream,
            id: event.id,
            what: understand(&event.data, canary, key),
        });
    }
}

/// What a message on a GET stream is.
fn understand(text: &str, canary: &str, key: &str) -> News {
    let message: Value = serde_json::from_str(text).unwrap_or_default();
    let number = match message["method"].as_str() {
        Some(method) if method.ends_with("/list_changed") => return News::Repair,
        Some("notifications/resources/updated") => {
            let uri = message["params"]["uri"].as_str().unwrap_or_default();
            let rest = uri.strip_prefix(&format!("ledger://{canary}/{key}/"));
            rest.and_then(|rest| rest.parse().ok())
        }
        _ => None,
    };
    let shown = || News::Foreign(text.chars().take(200).collect());
    number.map_or_else(shown, News::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_the_watchers_own_or_foreign() {
        let updated = |uri: &str| {
            json!({ "method": "notifications/resources/updated", "params": { "uri": uri } })
                .to_string()
        };
        let read = |text: &str| understand(text, "rose", "w1");
        assert_eq!(read(&updated("ledger://rose/w1/12")), News::Number(12));
        for uri in ["ledger://rose/w2/12", "ledger://iris/w1/12", "other"] {
            assert!(matches!(read(&updated(uri)), News::Foreign(_)), "{uri}");
        }
        let changed = json!({ "method": "notifications/tools/list_changed" }).to_string();
        assert_eq!(read(&changed), News::Repair);
    }
}
