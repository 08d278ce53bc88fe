//! `subscriptions/listen`: one stream of a modern client over one listen at each modern upstream.
//!
//! The filter is split by upstream and exposed again on the way back. The acknowledgement is the
//! first thing the client hears: when every upstream has answered, or after three seconds without
//! those that have not. What changes lists is passed at once and then at most once a second; what
//! was subscribed to and is not honoured is left out of the acknowledgement (cases 156, 157).
//! Dropping the events ends every listen behind them.

mod filter;
mod follow;

use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, SelectAll};
use futures_util::{Stream, StreamExt};
use tokio::time::Instant;
use vestibule_catalog::Kind;
use vestibule_exchange::{Call, Event, Events, RpcError};
use vestibule_frame::{Draft, Frame, Limits, encode};
use vestibule_terms::{Era, Method, ServerKind, UpstreamId};

use crate::listen::filter::{Change, Filter};
use crate::listen::follow::{Follow, Heard, follow};
use crate::select::{invalid, locate};
use crate::service::Router;

/// How long upstreams may take to be probed, and then to acknowledge.
const ACK_WAIT: Duration = Duration::from_secs(3);
/// How often one kind of list may be said to have changed (T67).
const CHANGE_EVERY: Duration = Duration::from_secs(1);
/// Events kept while the acknowledgement is awaited; more are as good as one.
const EARLY_MAX: usize = 1000;

/// Opens the stream.
pub(crate) async fn listen(router: Router, call: Call) -> Events {
    match open(router, call).await {
        Ok(events) => events,
        Err(error) => Events::error(error),
    }
}

async fn open(router: Router, call: Call) -> Result<Events, RpcError> {
    let frame = call.message.frame();
    let requested = frame
        .params()
        .and_then(|params| frame.member(params, "notifications"))
        .filter(|span| frame.text(*span).first() == Some(&b'{'))
        .ok_or_else(|| invalid("params.notifications must be an object"))?;
    let requested = Filter::read(frame, requested);
    let parts = split(&router, &call, &requested).await?;
    let mut followed = SelectAll::new();
    let count = parts.len();
    for follower in parts {
        followed.push(Box::pin(follow(follower)) as Pin<Box<dyn Stream<Item = Heard> + Send>>);
    }
    let listening = Listening {
        requested,
        followed,
        unanswered: count,
        honoured: Filter::default(),
        acknowledged: false,
        ack_by: Instant::now() + ACK_WAIT,
        queue: VecDeque::new(),
        changes: Changes::default(),
    };
    Ok(Events::stream(stream::unfold(
        listening,
        |mut listening| async move {
            let draft = listening.next().await;
            Some((Event::Notice(draft), listening))
        },
    )))
}

/// The share of each modern upstream in the filter.
async fn split(router: &Router, call: &Call, requested: &Filter) -> Result<Vec<Follow>, RpcError> {
    let upstreams = call.plan.upstreams();
    let probes = upstreams.iter().map(|up| {
        router
            .catalog
            .profile(&call.plan.tenant, up, Era::Modern, ACK_WAIT)
    });
    let profiles = join_all(probes).await;
    let wanted = subscribed(router, call, requested).await;
    let mut parts = Vec::new();
    let (mut legacy, mut failure) = (false, None);
    for (upstream, profile) in upstreams.iter().zip(profiles) {
        let profile = match profile {
            Ok(profile) if profile.revision.era() == Era::Modern => profile,
            Ok(_) => {
                legacy = true;
                continue;
            }
            Err(error) => {
                failure = Some(error);
                continue;
            }
        };
        let share = Filter {
            changes: requested.offered(|kind| kind.offered_by(&profile)),
            uris: wanted
                .iter()
                .filter(|(up, _)| up == upstream)
                .map(|(_, u)| u.clone())
                .collect(),
        };
        parts.push(Follow::new(
            router.clone(),
            call.clone(),
            upstream.clone(),
            share,
            &profile,
        ));
    }
    if parts.is_empty() && legacy {
        let message = "none of this server's upstreams can be listened to by this client";
        return Err(RpcError::not_translatable(message, "subscription"));
    }
    match failure {
        Some(error) if parts.is_empty() => Err(error),
        Some(_) | None => {
            // An upstream that nothing is wanted of is left alone.
            parts.retain(|part| !part.share.is_empty());
            Ok(parts)
        }
    }
}

/// The subscribed URIs that exist for this caller, as (upstream, original).
async fn subscribed(router: &Router, call: &Call, requested: &Filter) -> Vec<(UpstreamId, String)> {
    let located = requested
        .uris
        .iter()
        .map(|exposed| locate(router, call, Kind::Resources, exposed));
    join_all(located)
        .await
        .into_iter()
        .filter_map(Result::ok)
        .collect()
}

/// The exposed form of an upstream's URI on the called server.
fn shown(call: &Call, upstream: &UpstreamId, original: &str) -> String {
    match call.plan.kind {
        ServerKind::Transparent(_) => original.to_owned(),
        ServerKind::Federated(_) => vestibule_catalog::uri::expose(upstream, original).into_owned(),
    }
}

/// A notification of our own.
fn notice(method: Method, params: Option<&[u8]>) -> Draft {
    let text: Bytes = encode::notification(method.as_str(), params);
    let frame =
        Frame::parse(text, &Limits::default()).expect("a notification of our own is well-formed");
    Draft::new(frame)
}

struct Listening {
    requested: Filter,
    followed: SelectAll<Pin<Box<dyn Stream<Item = Heard> + Send>>>,
    unanswered: usize,
    honoured: Filter,
    acknowledged: bool,
    ack_by: Instant,
    queue: VecDeque<Draft>,
    changes: Changes,
}

impl Listening {
    /// The next notification for the client. Cancel-safe: what was heard is kept.
    async fn next(&mut self) -> Draft {
        loop {
            if !self.acknowledged && (self.unanswered == 0 || Instant::now() >= self.ack_by) {
                self.acknowledged = true;
                return self.acknowledgement();
            }
            if self.acknowledged
                && let Some(draft) = self.queue.pop_front()
            {
                return draft;
            }
            let wake = if self.acknowledged {
                self.changes.due()
            } else {
                Some(self.ack_by)
            };
            let heard = tokio::select! {
                heard = self.followed.next(), if !self.followed.is_empty() => heard,
                () = until(wake) => None,
            };
            match heard {
                Some(heard) => self.take(heard),
                None if self.acknowledged => self.queue.extend(self.changes.take_due()),
                None => {}
            }
        }
    }

    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Acknowledged(share) => {
                self.unanswered = self.unanswered.saturating_sub(1);
                if !self.acknowledged {
                    self.honoured.add(share);
                }
            }
            Heard::Declined => self.unanswered = self.unanswered.saturating_sub(1),
            // Who answers after the acknowledgement is not part of it: nothing of that is sent (SUB-02).
            Heard::Changed(change, draft) => {
                if !self.acknowledged || self.honoured.changes.contains(&change) {
                    self.queue.extend(self.changes.pass(change, draft));
                }
            }
            Heard::Updated(uri, draft) => {
                let wanted = !self.acknowledged || self.honoured.covers(&uri);
                if wanted && self.queue.len() < EARLY_MAX {
                    self.queue.push_back(draft);
                }
            }
        }
    }

    /// What is honoured, in the order it was asked for, only true fields and accepted URIs.
    fn acknowledgement(&self) -> Draft {
        let filter = self.requested.narrowed(&self.honoured).encode();
        let params = format!(r#"{{"notifications":{filter}}}"#);
        notice(Method::SubscriptionsAcknowledged, Some(params.as_bytes()))
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => pending().await,
    }
}

/// Changes of lists: the first of a kind passes, later ones wait for their second to be over and
/// count as one.
#[derive(Default)]
struct Changes(Vec<(Change, Instant, Option<Draft>)>);

impl Changes {
    fn pass(&mut self, change: Change, draft: Draft) -> Option<Draft> {
        let now = Instant::now();
        match self.0.iter_mut().find(|(known, _, _)| *known == change) {
            Some((_, next, held)) if now < *next => {
                *held = Some(draft);
                None
            }
            Some((_, next, _)) => {
                *next = now + CHANGE_EVERY;
                Some(draft)
            }
            None => {
                self.0.push((change, now + CHANGE_EVERY, None));
                Some(draft)
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        self.0
            .iter()
            .filter(|(_, _, held)| held.is_some())
            .map(|(_, next, _)| *next)
            .min()
    }

    fn take_due(&mut self) -> Vec<Draft> {
        let now = Instant::now();
        let due = self.0.iter_mut().filter(|(_, next, _)| *next <= now);
        due.filter_map(|(_, next, held)| {
            let draft = held.take()?;
            *next = now + CHANGE_EVERY;
            Some(draft)
        })
        .collect()
    }
}
