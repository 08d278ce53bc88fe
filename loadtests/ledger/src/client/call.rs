//! One call after the other, each written down from its request to its answer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::answer::{answer, cancel};
use super::http::Opened;
use super::message::understand;
use super::session::Session;
use super::sse::Event;
use super::world::World;
use crate::history::{CallRecord, Close, Heard, Kind, Micros, Resumed, Seat, What, now};
use crate::random::Random;

/// A call that brings nothing for so long is given up, loudly.
const GIVES_UP_AFTER: Duration = Duration::from_secs(60);
/// Before a resume, where the server names no time; and the longest, whatever it names.
const RETRY_DEFAULT: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_millis(500);
/// How long a stream is read on behind its end.
const AFTER_THE_END: Duration = Duration::from_secs(1);
/// After a request that was not accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Share of the calls, in percent, that run long and are cancelled after some events.
const CANCELLED: u64 = 12;
const LONG: u64 = 200;
/// Share of the answered calls, in percent, whose stream is asked for once more.
const ASKED_AGAIN: u64 = 20;

/// Calls in a session of one kind until the world is over; a session that is lost is followed by
/// another one.
pub(crate) async fn worker(world: Arc<World>, mut session: Session, kind: Kind, number: u64) {
    let mut random = Random::of(world.seed, 0xCA11 + number);
    while !world.is_over() {
        let call = Call::new(&world, &session, kind, &mut random);
        let record = call.run().await;
        let refused = matches!(record.close, Close::Refused(_) | Close::BrokenBeforeId);
        let lost = record.close == Close::Refused(404) || record.close == Close::ResumeRefused(404);
        world.write(|records| records.calls.push(record));
        if lost {
            session.lost(&world, "404");
            let Some(another) = Session::open(&world, session.tenant, kind.as_str()).await else {
                return;
            };
            session = another;
        }
        if refused {
            sleep(PAUSE).await;
        }
    }
}

struct Call<'a> {
    world: &'a Arc<World>,
    session: &'a Session,
    request: u64,
    message: Value,
    asked_again: bool,
    /// After which event it is cancelled.
    cancel_at: Option<u64>,
    record: CallRecord,
    last: Option<String>,
    retry: Duration,
    /// When something new came.
    heard_at: Instant,
}

/// How the reading of one connection ended.
#[derive(PartialEq, Eq)]
enum Reading {
    Answered,
    Broken,
}

impl<'a> Call<'a> {
    fn new(world: &'a Arc<World>, session: &'a Session, kind: Kind, random: &mut Random) -> Self {
        let request = world.next_call();
        let key = format!("c{request}");
        let gap_ms = random.between(30, 150);
        let cut_after = if kind.survives() && random.percent(30) {
            random.between(2, 12)
        } else {
            0
        };
        let cancelled = random.percent(CANCELLED);
        let events = if cancelled {
            LONG
        } else {
            random.between(8, 40)
        };
        let arguments = json!({
            "key": key, "events": events, "gap_ms": gap_ms, "cut_after": cut_after,
        });
        let params = json!({
            "name": "run", "arguments": arguments, "_meta": { "progressToken": request },
        });
        Self {
            world,
            session,
            request,
            message: json!({
                "jsonrpc": "2.0", "id": request, "method": "tools/call", "params": params,
            }),
            cancel_at: cancelled.then(|| random.between(2, 12)),
            asked_again: random.percent(ASKED_AGAIN),
            record: CallRecord {
                key,
                kind,
                session: session.number,
                started: now(),
                owner: None,
                heard: Vec::new(),
                resumed: Vec::new(),
                close: Close::GaveUp,
                closed: 0,
                afterwards: None,
            },
            last: None,
            retry: RETRY_DEFAULT,
            heard_at: Instant::now(),
        }
    }

    async fn run(mut self) -> CallRecord {
        let world = Arc::clone(self.world);
        self.record.close = tokio::select! {
            close = self.reach_the_end() => close,
            () = world.until_too_late() => Close::GaveUp,
        };
        self.record.closed = now();
        self.world.set_closed(&self.record.key);
        if self.asked_again && self.record.close == Close::Answered {
            self.record.afterwards = self.ask_again().await;
        }
        self.record
    }

    async fn reach_the_end(&mut self) -> Close {
        let posted = self
            .session
            .post(self.world, &self.message, &mut self.record.owner)
            .await;
        let Ok(mut opened) = posted else {
            return Close::BrokenBeforeId;
        };
        let owner = self.record.owner;
        match self.take(&mut opened, owner).await {
            Ok(Reading::Answered) => return Close::Answered,
            Ok(Reading::Broken) if self.last.is_none() => return Close::BrokenBeforeId,
            Ok(Reading::Broken) => {}
            Err(status) => return Close::Refused(status),
        }
        drop(opened);
        let mut broke = now();
        while self.heard_at.elapsed() < GIVES_UP_AFTER {
            sleep(self.retry.min(RETRY_MAX)).await;
            match self.resume(&mut broke).await {
                Some(close) => return close,
                None => continue,
            }
        }
        Close::GaveUp
    }

    /// Reads an answer; the status when it is none that a call gets.
    async fn take(&mut self, opened: &mut Opened, reader: Option<Seat>) -> Result<Reading, u16> {
        if opened.status != 200 {
            return Err(opened.status);
        }
        if opened.is_stream {
            return Ok(self.read(opened, reader).await);
        }
        let Ok(body) = opened.whole().await else {
            return Ok(Reading::Broken);
        };
        let what = self.understand(&String::from_utf8_lossy(&body));
        self.hear(None, what);
        Ok(Reading::Answered)
    }

    /// One attempt to go on; how the call closed, if it did.
    async fn resume(&mut self, broke: &mut Micros) -> Option<Close> {
        let last = self.last.clone();
        let mut opened = self.session.get(self.world, last.as_deref()).await.ok()?;
        let reader = self.world.route(opened.local);
        let status = opened.status;
        self.record.resumed.push(Resumed {
            broke: *broke,
            answered: now(),
            status,
            reader,
        });
        match status {
            200 => {
                let reading = self.read(&mut opened, reader).await;
                *broke = now();
                (reading == Reading::Answered).then_some(Close::Answered)
            }
            // CAN-03: no response, and the stream is complete
            405 if self.cancel_at == Some(0) => Some(Close::Cancelled),
            // it says itself that it is for a while only
            429 | 500.. => None,
            status => Some(Close::ResumeRefused(status)),
        }
    }

    async fn read(&mut self, opened: &mut Opened, reader: Option<Seat>) -> Reading {
        while let Ok(Some(event)) = opened.next().await {
            self.dispatch(event, reader);
            if self.is_answered() {
                // what still comes would be too much
                while let Ok(Some(event)) = opened.next_within(AFTER_THE_END).await {
                    self.dispatch(event, reader);
                }
                return Reading::Answered;
            }
        }
        Reading::Broken
    }

    fn is_answered(&self) -> bool {
        let last = self.record.heard.last();
        last.is_some_and(|heard| matches!(heard.what, What::End(_)))
    }

    fn dispatch(&mut self, event: Event, reader: Option<Seat>) {
        if let Some(retry) = event.retry {
            self.retry = Duration::from_millis(retry);
        }
        if let Some(id) = &event.id {
            self.last = Some(id.clone());
            self.session.keep_id(self.world, id);
            let owner = self.record.owner;
            self.world.set_open(&self.record.key, owner, reader);
        }
        if event.data.is_empty() {
            return;
        }
        let what = self.understand(&event.data);
        if let What::Question(question) = &what {
            let message: Value = serde_json::from_str(&event.data).unwrap_or_default();
            answer(self.world, self.session, question, message["id"].clone());
        }
        if matches!(&what, What::Event(number) if Some(*number) == self.cancel_at) {
            self.cancel_at = Some(0);
            cancel(self.world, self.session, &self.record.key, self.request);
        }
        self.hear(event.id, what);
    }

    fn hear(&mut self, id: Option<String>, what: What) {
        self.heard_at = Instant::now();
        self.record.heard.push(Heard {
            at: now(),
            id,
            what,
        });
    }

    fn understand(&self, text: &str) -> What {
        let tenant = self.session.tenant(self.world);
        understand(text, tenant, &self.record.key, self.request)
    }

    /// A resume behind the answer: there must be nothing, and 405 says so (EL-13).
    async fn ask_again(&self) -> Option<(u16, usize)> {
        let last = self.last.as_deref()?;
        let mut opened = self.session.get(self.world, Some(last)).await.ok()?;
        if opened.status >= 429 {
            return None;
        }
        let mut more = 0;
        if opened.is_stream {
            while let Ok(Some(event)) = opened.next_within(AFTER_THE_END).await {
                more += usize::from(!event.data.is_empty());
            }
            if more == 0 && opened.was_held() {
                return None; // EL-29: it was let in before anybody knew that this is the end
            }
        }
        Some((opened.status, more))
    }
}
