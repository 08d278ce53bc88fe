//! GET with a session: a standalone stream, or the rest of a stream that broke (GET rows, RES rows,
//! EL-13).

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use tokio::time::{sleep, timeout};
use vestibule_exchange::Exchange;
use vestibule_frame::{encode as write, json, sse};
use vestibule_metrics::StreamKind as Kind;
use vestibule_streamlog::{Class, Event, LogError, Resume, StreamKind};
use vestibule_terms::{Method, Reject};

use super::access::{proven, session_or_405};
use super::hold::{Resuming, held, held_outside};
use super::listen::listen;
use super::live::{Live, PROMPTS, RESOURCES, TOOLS};
use super::reader::Reading;
use super::sink::history_lost;
use crate::answer::{self, Response};
use crate::facts::Facts;
use crate::room::{Room, Shared};
use crate::stream::EventBody;

/// How long a client may wait to be told whether it is let in (EL-29).
const PROMPT: Duration = Duration::from_secs(1);

/// How often a stream is looked for that is on its way from one process to another.
const TURNS: u32 = 8;
const TURN: Duration = Duration::from_millis(250);

/// Serves the GET.
pub(crate) async fn get<S: Exchange>(room: &Room<S>, facts: Facts) -> Response {
    let shared = &room.shared;
    let live = match session_or_405(shared, &facts).await {
        Ok(live) => live,
        Err(Reject::Unavailable { .. }) if comes_back(&facts) => {
            return resume_outside(shared, facts);
        }
        Err(reject) => return answer::refuse(&facts.record, reject, None),
    };
    if !facts.accepts.sse {
        return answer::refuse(&facts.record, Reject::NotAcceptable, None); // HDR-03
    }
    let served = match facts.head.last_event_id.as_deref() {
        Some(last) => resume(shared, &live, &facts, last).await,
        None => standalone(shared, &live).await,
    };
    match served {
        Ok(response) => {
            facts.record.set_outcome(vestibule_terms::Outcome::Ok);
            response
        }
        Err(Refusal::Reject(reject)) => answer::refuse(&facts.record, reject, None),
        Err(Refusal::Nothing) => answer::nothing_to_resume(&facts.record),
    }
}

enum Refusal {
    Reject(Reject),
    /// 405 without a body.
    Nothing,
}

impl From<LogError> for Refusal {
    fn from(error: LogError) -> Self {
        Refusal::Reject(match error {
            LogError::Full(_) => Reject::Limited {
                scope: vestibule_terms::reject::Scope::Principal,
                limit: "streams",
                retry_after: std::time::Duration::from_secs(10),
            },
            // the session is there: its stream is between two processes, and nobody says where (404
            // would end the session for its client)
            LogError::Gone | LogError::Unavailable(_) | LogError::Ended | LogError::Standalone => {
                tracing::warn!(%error, "no stream could be opened");
                Reject::Unavailable {
                    reason: "streams",
                    retry_after: std::time::Duration::from_secs(5),
                }
            }
        })
    }
}

/// Opens one more standalone stream (GET-04).
async fn standalone(shared: &Arc<Shared>, live: &Arc<Live>) -> Result<Response, Refusal> {
    let log = &shared.rooms.log;
    let mut turns = 0;
    let (opened, reader) = loop {
        let opened = log.open(&live.key, StreamKind::Standalone).await?;
        match log.attach(&opened.stream, 0).await {
            Ok(reader) => break (opened, reader),
            Err(LogError::Gone) if turns < TURNS => turns += 1,
            Err(error) => return Err(error.into()),
        }
        sleep(TURN).await;
    };
    let priming = opened
        .priming
        .filter(|_| live.revision().has_priming())
        .map(|priming| sse::priming(priming.as_str()));
    let reading = Reading::begin(shared, live, reader, Kind::Get)
        .await
        .first(priming);
    listen(shared, live);
    Ok(answer::events(Box::new(reading).body()))
}

/// Goes on with a stream after the last event the client has dispatched.
async fn resume(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    facts: &Facts,
    last: &str,
) -> Result<Response, Refusal> {
    let (log, key, last) = (
        Arc::clone(&shared.rooms.log),
        live.key.clone(),
        last.to_owned(),
    );
    let again = (Arc::clone(&log), key.clone(), last.clone());
    let mut resuming: Resuming = Box::pin(async move { log.resume(&key, &last).await });
    let Ok(outcome) = timeout(PROMPT, &mut resuming).await else {
        return Ok(answer::events(EventBody::new(held(shared, live, resuming))));
    };
    let mut outcome = outcome?;
    shared.observer.resumed(&facts.plan.tenant, &outcome);
    let mut turns = 0;
    let resumed = loop {
        match resumed(shared, live, outcome).await {
            Err(LogError::Gone) | Ok(Resumed::NoSession) if turns < TURNS => turns += 1,
            resumed => break resumed?,
        }
        sleep(TURN).await;
        let (log, key, last) = &again;
        outcome = log.resume(key, last).await?;
    };
    match resumed {
        Resumed::Reading(reading) => Ok(answer::events(reading.body())),
        Resumed::Errors(errors) => {
            let errors = stream::iter(errors.into_iter().map(Ok));
            Ok(answer::events(EventBody::new(errors)))
        }
        Resumed::Nothing => Err(Refusal::Nothing),
        Resumed::Foreign => Err(Refusal::Reject(foreign())),
        Resumed::NoSession => Err(Refusal::Reject(Reject::SessionNotFound)),
    }
}

fn comes_back(facts: &Facts) -> bool {
    facts.accepts.sse && facts.head.last_event_id.is_some()
}

/// Lets a client wait whose session has not been seen here, while the store cannot say that it lives
/// (EL-29). Whether its ids are its own can be said without the store.
fn resume_outside(shared: &Arc<Shared>, facts: Facts) -> Response {
    let record = facts.record.clone();
    let Some((key, last)) = proven(shared, &facts).zip(facts.head.last_event_id.clone()) else {
        return answer::refuse(&record, Reject::SessionNotFound, None);
    };
    let (log, session) = (Arc::clone(&shared.rooms.log), key.clone());
    let mut resuming: Resuming = Box::pin(async move { log.resume(&session, &last).await });
    match (&mut resuming).now_or_never() {
        Some(Ok(Resume::Foreign)) => return answer::refuse(&record, foreign(), None),
        Some(known) => resuming = Box::pin(ready(known)),
        None => {}
    }
    record.set_outcome(vestibule_terms::Outcome::Ok);
    answer::events(EventBody::new(held_outside(shared, facts, key, resuming)))
}

fn foreign() -> Reject {
    Reject::InvalidRequest("Last-Event-ID is not valid here".into())
}

/// What a client gets that came back.
pub(super) enum Resumed {
    /// The rest of the stream.
    Reading(Box<Reading>),
    /// The responses that are left for its requests.
    Errors(Vec<Bytes>),
    /// Nothing: it has had all, or nothing is known.
    Nothing,
    /// The id is not of this session.
    Foreign,
    /// The session is gone.
    NoSession,
}

/// Does what the outcome asks for (EL-13).
pub(super) async fn resumed(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    outcome: Resume,
) -> Result<Resumed, LogError> {
    let (stream, after) = match outcome {
        Resume::Replay { stream, after } | Resume::Ending { stream, after } => (stream, after),
        Resume::StandaloneGap { stream, after } => {
            let events = conservative(shared, live).await;
            live.publish_all(shared, events).await;
            (stream, after)
        }
        Resume::LostPost { requests } => {
            let errors = requests
                .iter()
                .map(|request| sse::message(None, &[history_lost(request)]));
            return Ok(Resumed::Errors(errors.collect()));
        }
        Resume::Finished | Resume::Unknown => return Ok(Resumed::Nothing),
        Resume::Foreign => return Ok(Resumed::Foreign),
        Resume::NoSession => return Ok(Resumed::NoSession),
    };
    let reader = shared.rooms.log.attach(&stream, after).await?;
    let reading = Reading::begin(shared, live, reader, Kind::Get).await;
    if stream.id.is_standalone() {
        listen(shared, live);
    }
    Ok(Resumed::Reading(Box::new(reading)))
}

/// What makes a client whole that has missed notifications: each of its lists may have changed, and
/// each resource it subscribed to (EL-13).
pub(super) async fn conservative(shared: &Shared, live: &Live) -> Vec<Event> {
    let lists = [
        (TOOLS, Method::ToolsListChanged),
        (PROMPTS, Method::PromptsListChanged),
        (RESOURCES, Method::ResourcesListChanged),
    ];
    let mut events: Vec<Event> = lists
        .into_iter()
        .filter(|(list, _)| live.declares(*list))
        .map(|(_, method)| invalidation(method.as_str(), method, None))
        .collect();
    let stored = shared.rooms.sessions.get(&live.key).await.ok().flatten();
    for uri in stored.iter().flat_map(|stored| &stored.state.subscriptions) {
        let params = write::object(&[("uri", json::quote(uri).as_bytes())]);
        let subject = format!("updated {uri}");
        events.push(invalidation(
            &subject,
            Method::ResourcesUpdated,
            Some(&params),
        ));
    }
    events
}

fn invalidation(subject: &str, method: Method, params: Option<&Bytes>) -> Event {
    let payload = write::notification(method.as_str(), params.map(|params| &params[..]));
    Event {
        class: Class::Invalidation(Arc::from(subject)),
        payload,
    }
}
