//! What arrives for a session outside every call, on its way to the newest standalone stream
//! (GET-03, GET-05).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use vestibule_exchange::{Arrival, Away, BoxFuture, Inlet, QuestionRef};
use vestibule_frame::Draft;
use vestibule_store::{Kind, StoreError};
use vestibule_streamlog::{Class, Event};
use vestibule_terms::{Direction, Method, UpstreamId};

use super::get::conservative;
use super::live::Live;
use super::question;
use crate::modern::answer_with_error;
use crate::relay::is_list_change;
use crate::room::Shared;

/// Arrivals that may wait while the log is busy.
const WAITING: usize = 1024;

/// Arrivals of one session, taken in order by one task that lives only while there are some.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    waiting: Mutex<Waiting>,
    /// Told whenever nothing waits any more.
    empty: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<(UpstreamId, Arrival)>,
    working: bool,
}

impl Mailbox {
    /// Queues; true when somebody has to begin to work. Gives back what found no room.
    fn put(&self, upstream: UpstreamId, arrival: Arrival) -> (bool, Option<Arrival>) {
        let mut waiting = self.lock();
        if waiting.queue.len() >= WAITING {
            return (false, Some(arrival));
        }
        waiting.queue.push_back((upstream, arrival));
        (!std::mem::replace(&mut waiting.working, true), None)
    }

    /// The next one; nothing ends the work.
    fn take(&self) -> Option<(UpstreamId, Arrival)> {
        let mut waiting = self.lock();
        let next = waiting.queue.pop_front();
        waiting.working = next.is_some();
        if next.is_none() {
            self.empty.notify_waiters();
        }
        next
    }

    /// Waits until what has arrived so far is on its way to the client.
    pub(super) async fn settled(&self) {
        let empty = self.empty.notified();
        if self.lock().working {
            empty.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a session that is handed to the rooms below; it does not keep the session alive.
#[derive(Debug)]
pub(super) struct SessionInlet(pub(super) std::sync::Weak<Live>);

impl Inlet for SessionInlet {
    fn arrive(&self, upstream: &UpstreamId, arrival: Arrival) {
        let Some(live) = self.0.upgrade() else { return };
        let (begin, refused) = live.mailbox.put(upstream.clone(), arrival);
        if let Some(Arrival::Question(question)) = refused
            && let Some(shared) = live.shared.upgrade()
        {
            let code = vestibule_terms::reject::code::INTERNAL;
            answer_with_error(
                &shared.back,
                question.from,
                code,
                "too much waits for the client",
            );
        }
        if begin {
            tokio::spawn(async move { live.work().await });
        }
    }

    fn recall(&self, upstream: &UpstreamId) -> BoxFuture<Result<Option<Bytes>, Away>> {
        let (live, upstream) = (self.0.upgrade(), upstream.clone());
        Box::pin(async move {
            let Some((live, shared)) = both(live) else {
                return Ok(None);
            };
            let sessions = &shared.rooms.sessions;
            let kept = sessions.kept(&live.key, Kind::Upstream, upstream.as_str());
            kept.await.map_err(|error| {
                tracing::debug!(%error, "an upstream session cannot be recalled");
                Away
            })
        })
    }

    fn remember(
        &self,
        upstream: &UpstreamId,
        record: Bytes,
        instead: Option<Bytes>,
    ) -> BoxFuture<Option<Bytes>> {
        let (live, upstream) = (self.0.upgrade(), upstream.clone());
        Box::pin(async move {
            let (live, shared) = both(live)?;
            let sessions = &shared.rooms.sessions;
            let (key, name) = (&live.key, upstream.as_str());
            if let Some(instead) = instead {
                let new = Some(record.clone());
                let swapped = sessions.swap_kept(key, Kind::Upstream, name, &instead, new);
                if heard(swapped.await)? {
                    return Some(record);
                }
            }
            let kept = sessions.keep(key, Kind::Upstream, name, record);
            heard(kept.await)?.map(|kept| kept.record)
        })
    }
}

/// A session and its room, while both are there.
fn both(live: Option<Arc<Live>>) -> Option<(Arc<Live>, Arc<Shared>)> {
    let live = live?;
    let shared = live.shared.upgrade()?;
    Some((live, shared))
}

/// What the store answered; without it a session goes on by itself.
fn heard<T>(answer: Result<T, StoreError>) -> Option<T> {
    answer
        .inspect_err(|error| tracing::debug!(%error, "an upstream session is not written down"))
        .ok()
}

impl Live {
    async fn work(&self) {
        while let Some((upstream, arrival)) = self.mailbox.take() {
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            self.arrived(&shared, &upstream, arrival).await;
        }
    }

    async fn arrived(&self, shared: &Arc<Shared>, upstream: &UpstreamId, arrival: Arrival) {
        match arrival {
            Arrival::ListChanged(method, draft) | Arrival::Notice(method, draft) => {
                self.notice(shared, method, &draft).await;
            }
            Arrival::Updated(draft) => {
                self.notice(shared, Method::ResourcesUpdated, &draft).await;
            }
            Arrival::Log { level, message } => {
                if level >= self.heard_level() {
                    let event = Event {
                        class: Class::Log,
                        payload: one_piece(&message),
                    };
                    self.publish(shared, event).await;
                }
            }
            Arrival::Missed => self.look_again(shared).await,
            Arrival::Question(asked) => {
                if let Some(asked) = self.ask(shared, asked, None).await {
                    self.publish_question(shared, asked).await;
                }
            }
            Arrival::QuestionWithdrawn(draft) => {
                let theirs = |from: &QuestionRef| from.upstream == *upstream;
                let withdrawn = self.withdraw(shared, draft, theirs).await;
                if let Some(payload) = withdrawn {
                    self.publish(
                        shared,
                        Event {
                            class: Class::Message,
                            payload,
                        },
                    )
                    .await;
                }
            }
        }
    }

    /// The client may lack notifications: it is told to look at everything again (EL-13).
    pub(crate) async fn look_again(&self, shared: &Arc<Shared>) {
        for event in conservative(shared, self).await {
            self.publish(shared, event).await;
        }
    }

    /// A notification that belongs to no call, if the client's revision has it.
    pub(super) async fn notice(&self, shared: &Arc<Shared>, method: Method, draft: &Draft) {
        if !method.allowed(Direction::ServerNotification, self.revision()) {
            return;
        }
        let class = if is_list_change(method) {
            Class::Invalidation(Arc::from(method.as_str()))
        } else if method == Method::ResourcesUpdated {
            let Some(uri) = updated_uri(draft) else {
                return;
            };
            Class::Invalidation(Arc::from(uri))
        } else {
            Class::Message
        };
        self.publish(
            shared,
            Event {
                class,
                payload: one_piece(draft),
            },
        )
        .await;
    }

    /// Hands an event to the session's newest standalone stream, once the client is ready.
    pub(super) async fn publish(&self, shared: &Shared, event: Event) {
        match self.hold(event) {
            Some(event) => self.publish_all(shared, vec![event]).await,
            None => self.watch(),
        }
    }

    pub(super) async fn publish_all(&self, shared: &Shared, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        match shared.rooms.log.publish(&self.key, events).await {
            Ok(dropped) => question::lost(shared, self, &dropped),
            Err(error) => tracing::debug!(%error, "an event of a session found no log"),
        }
    }
}

pub(super) fn one_piece(draft: &Draft) -> Bytes {
    draft.to_bytes()
}

fn updated_uri(draft: &Draft) -> Option<String> {
    let frame = draft.frame();
    frame
        .string(frame.uri()?)
        .map(|uri| format!("updated {uri}"))
}
