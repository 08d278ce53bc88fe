//! One listen at one upstream, kept up: after a loss it is opened again with back-off, and what may
//! have been missed meanwhile is said to have changed (SUB-05).

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use futures_util::{Stream, StreamExt};
use tokio::time::Instant;
use tracing::{debug, info};
use vestibule_catalog::Kind;
use vestibule_exchange::{Call, Event, Events, Final, Outbound, Profile, RpcError};
use vestibule_frame::{Draft, Frame, json};
use vestibule_terms::reject::code;
use vestibule_terms::{Deadline, Method, UpstreamId};

use super::filter::{Change, Filter};
use super::{notice, shown};
use crate::names::Names;
use crate::one::outbound;
use crate::select::Selected;
use crate::service::Router;

/// The shortest and the longest pause before a listen is opened again.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A listen has no clock of its own: it lives as long as its client's stream.
const LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What is heard of one upstream.
#[derive(Debug)]
pub(super) enum Heard {
    /// It listens to this much of its share, URIs in exposed form. Said once.
    Acknowledged(Filter),
    /// It does not listen at all. Said instead, once.
    Declined,
    /// A list changed.
    Changed(Change, Draft),
    /// The resource of that exposed URI changed.
    Updated(String, Draft),
}

/// One upstream and what is wanted of it.
pub(super) struct Follow {
    router: Router,
    call: Call,
    upstream: UpstreamId,
    /// In the upstream's own URIs.
    pub(super) share: Filter,
    outbound: Outbound,
    stage: Stage,
    honoured: Option<Filter>,
    attempt: u32,
    queue: VecDeque<Heard>,
}

enum Stage {
    Opening,
    /// Waiting for the acknowledgement, or past it.
    Open(Box<Events>, bool),
    Pausing(Instant),
    Over,
}

impl Follow {
    pub(super) fn new(
        router: Router,
        call: Call,
        upstream: UpstreamId,
        share: Filter,
        profile: &Profile,
    ) -> Self {
        let mut message = call.message.clone();
        message.set_at(&["params", "notifications"], Bytes::from(share.encode()));
        let selected = Selected {
            upstream: upstream.clone(),
            message,
            original: String::new(),
            annotated: None,
        };
        let mut outbound = outbound(&router, &call, selected, Some(profile));
        outbound.deadline = Deadline::starting_now(LIFE, LIFE);
        outbound.progress = false;
        outbound.log_level = None;
        Self {
            router,
            call,
            upstream,
            share,
            outbound,
            stage: Stage::Opening,
            honoured: None,
            attempt: 0,
            queue: VecDeque::new(),
        }
    }
}

/// What is heard of the upstream, until it turns out not to listen.
pub(super) fn follow(state: Follow) -> impl Stream<Item = Heard> + Send {
    stream::unfold(state, |mut state| async move {
        let heard = state.next().await?;
        Some((heard, state))
    })
}

impl Follow {
    async fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some(heard) = self.queue.pop_front() {
                return Some(heard);
            }
            match &mut self.stage {
                Stage::Over => return None,
                Stage::Pausing(until) => {
                    tokio::time::sleep_until(*until).await;
                    self.stage = Stage::Opening;
                }
                Stage::Opening => {
                    let events = self.router.connector.call(self.outbound.clone()).await;
                    self.stage = Stage::Open(Box::new(events), false);
                }
                Stage::Open(events, _) => match events.next().await {
                    Some(Event::Notice(draft)) => self.notice(draft),
                    Some(Event::Final(end)) => self.ended(Some(end)),
                    // Progress and logs have no place on a listen (SUB-09), questions even less.
                    Some(
                        Event::Progress(_)
                        | Event::Log { .. }
                        | Event::Question(_)
                        | Event::QuestionWithdrawn(_)
                        | Event::Paused { .. }
                        | Event::Mark { .. },
                    ) => {}
                    None => self.ended(None),
                },
            }
        }
    }

    fn notice(&mut self, draft: Draft) {
        let Stage::Open(_, acknowledged) = &mut self.stage else {
            return;
        };
        let frame = draft.frame();
        let method = frame.method().and_then(|name| Method::parse(&name));
        if method == Some(Method::SubscriptionsAcknowledged) && !*acknowledged {
            *acknowledged = true;
            let honoured = acknowledged_filter(frame);
            self.acknowledged(honoured);
            return;
        }
        // What comes before the acknowledgement, or was not asked for, is dropped (SUB-13).
        let Some(honoured) = self.honoured.as_ref().filter(|_| *acknowledged) else {
            return;
        };
        if let Some(change) = method.and_then(Change::of) {
            if honoured.changes.contains(&change) {
                self.changed(change, draft);
            }
        } else if method == Some(Method::ResourcesUpdated) {
            let uri = frame
                .params()
                .and_then(|params| frame.member(params, "uri"))
                .and_then(|span| frame.string(span))
                .filter(|uri| honoured.covers(uri))
                .map(|uri| shown(&self.call, &self.upstream, &uri));
            let names = Names {
                plan: &self.call.plan,
                upstream: &self.upstream,
                giving: None,
            };
            if let Some(uri) = uri
                && let Some(draft) = names.updated(draft)
            {
                self.queue.push_back(Heard::Updated(uri, draft));
            }
        }
    }

    fn acknowledged(&mut self, granted: Filter) {
        let granted = self.share.narrowed(&granted);
        self.attempt = 0;
        let first = self.honoured.replace(granted.clone()).is_none();
        if first {
            let (call, upstream) = (&self.call, &self.upstream);
            let uris = granted
                .uris
                .iter()
                .map(|uri| shown(call, upstream, uri))
                .collect();
            let changes = granted.changes;
            return self
                .queue
                .push_back(Heard::Acknowledged(Filter { changes, uris }));
        }
        info!(upstream.id = %self.upstream, "listening to upstream {} again", self.upstream);
        for change in granted.changes {
            self.changed(change, notice(change.method(), None));
        }
        for uri in &granted.uris {
            let uri = shown(&self.call, &self.upstream, uri);
            let params = format!(r#"{{"uri":{}}}"#, json::quote(&uri));
            let draft = notice(Method::ResourcesUpdated, Some(params.as_bytes()));
            self.queue.push_back(Heard::Updated(uri, draft));
        }
    }

    fn changed(&mut self, change: Change, draft: Draft) {
        for kind in Kind::changed_by(change.method()) {
            self.router
                .catalog
                .invalidate(&self.call.plan.tenant, &self.upstream, *kind);
        }
        self.queue.push_back(Heard::Changed(change, draft));
    }

    /// The listen ended. One that never began is not asked for again (case 157), unless it was the
    /// connection that failed, the first time.
    fn ended(&mut self, end: Option<Final>) {
        let begun = self.honoured.is_some();
        if !begun && self.attempt == 0 && end.as_ref().is_some_and(is_lost) {
            self.attempt += 1;
            self.stage = Stage::Opening;
            return;
        }
        if !begun || end.as_ref().is_some_and(is_unsupported) {
            debug!(upstream.id = %self.upstream, "upstream {} does not listen", self.upstream);
            if self.honoured.is_none() {
                self.queue.push_back(Heard::Declined);
            }
            self.stage = Stage::Over;
            return;
        }
        let (shortest, longest) = BACKOFF;
        let pause = shortest
            .saturating_mul(1 << self.attempt.min(6))
            .min(longest);
        self.attempt += 1;
        self.stage = Stage::Pausing(Instant::now() + jittered(pause));
    }
}

fn acknowledged_filter(frame: &Frame) -> Filter {
    let filter = frame
        .params()
        .and_then(|params| frame.member(params, "notifications"));
    filter
        .map(|span| Filter::read(frame, span))
        .unwrap_or_default()
}

/// Whether the upstream said that it has no such method.
fn is_unsupported(end: &Final) -> bool {
    let none = |code| code == code::METHOD_NOT_FOUND;
    match end {
        Final::Message(draft) => draft
            .frame()
            .error_parts()
            .and_then(|parts| parts.code)
            .is_some_and(none),
        Final::Error(RpcError { code, .. }) => none(*code),
        Final::View(_) | Final::List(_) | Final::Empty | Final::Wanted(_) | Final::Cancelled => {
            false
        }
    }
}

/// Whether the connection failed.
fn is_lost(end: &Final) -> bool {
    matches!(end, Final::Error(error) if error.code == code::UPSTREAM_UNAVAILABLE)
}

/// Between half of a pause and the whole of it, so that many do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    let per_mille = u32::try_from(random % 501).unwrap_or(0);
    pause * (500 + per_mille) / 1000
}
