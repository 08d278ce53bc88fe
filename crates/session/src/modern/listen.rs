//! `subscriptions/listen`: a stream of change notifications, each under the listen's own id, that
//! the gateway ends with a result (SUB-01 … SUB-09).

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use vestibule_exchange::{Call, Event, Exchange, Final, RpcError};
use vestibule_frame::{Draft, Frame, Id, encode as write, meta, sse};
use vestibule_metrics::StreamKind;
use vestibule_terms::accept::Accepts;
use vestibule_terms::reject::{Scope, code};
use vestibule_terms::{Method, Outcome, Record, Reject, ServerId, TenantId};

use super::call::refuse_question;
use crate::answer::{self, Response};
use crate::encode::{Encoder, Reply};
use crate::ending::Ending;
use crate::observe;
use crate::room::{Room, Shared};
use crate::running::Running;
use crate::stream::{EventBody, Outlet, queue};

/// Listen streams that one caller may have open on one server (SUB-06).
const LIMIT: usize = 8;

type Whose = (TenantId, ServerId, Arc<str>);

/// The open listen streams of this process, counted by caller and server.
#[derive(Debug, Default)]
pub(crate) struct Listens(Arc<DashMap<Whose, usize>>);

/// A place among a caller's listen streams, free again when dropped.
#[derive(Debug)]
struct Seat {
    all: Arc<DashMap<Whose, usize>>,
    whose: Whose,
}

impl Listens {
    fn sit(&self, whose: Whose) -> Option<Seat> {
        let mut taken = self.0.entry(whose.clone()).or_insert(0);
        if *taken >= LIMIT {
            return None;
        }
        *taken += 1;
        Some(Seat {
            all: Arc::clone(&self.0),
            whose,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let dashmap::mapref::entry::Entry::Occupied(mut taken) =
            self.all.entry(self.whose.clone())
        {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }
}

/// What the client asked to hear of (SUB-02).
#[derive(Debug, Default, PartialEq, Eq)]
struct Filter {
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: HashSet<String>,
}

/// One listen stream.
struct Listener {
    shared: Arc<Shared>,
    id: Id,
    filter: Filter,
    record: Record,
    acknowledged: bool,
    counted: observe::Stream,
    _seat: Seat,
}

/// Opens the stream once the stages below have acknowledged; their refusal is a JSON error.
pub(super) async fn serve<S: Exchange>(
    room: &Room<S>,
    accepts: Accepts,
    call: Call,
    id: Id,
) -> Response {
    let record = call.record.clone();
    if !accepts.sse {
        return answer::refuse(&record, Reject::NotAcceptable, Some(&id));
    }
    let Some(filter) = Filter::of(call.message.frame()) else {
        let error = RpcError::new(
            code::INVALID_PARAMS,
            "params.notifications must be a filter",
        );
        return answer::json(&record, Reply::error(Some(&id), &error), true);
    };
    let seat = match seat(room, &call) {
        Ok(seat) => seat,
        Err(reject) => return answer::refuse(&record, reject, Some(&id)),
    };
    let tenant = call.plan.tenant.clone();
    let ending = room.shared.endings.watch(&call.principal, &call.plan);
    let opens_at = Instant::now() + call.plan.stream_after;
    let mut running = Running::new(room.call(call), None);
    let mut listener = Listener {
        shared: Arc::clone(&room.shared),
        id,
        filter,
        record,
        acknowledged: false,
        counted: room.shared.observer.stream(&tenant, StreamKind::Listen),
        _seat: seat,
    };
    let first = tokio::select! {
        biased;
        first = running.next() => first,
        () = sleep_until(opens_at) => None,
    };
    let first = match first {
        Some(Event::Final(Final::Error(error))) => {
            let reply = Reply::error(Some(&listener.id), &error);
            return answer::json(&listener.record, reply, true);
        }
        Some(Event::Final(Final::Message(draft))) if draft.frame().error().is_some() => {
            return listener.refused(draft);
        }
        other => other,
    };
    listener.record.set_outcome(Outcome::Ok);
    let (outlet, events) = queue();
    let over = first.is_some_and(|event| listener.hear(event, &outlet));
    if !over {
        tokio::spawn(listener.pump(running, outlet, ending));
    }
    answer::events(EventBody::new(events))
}

/// SUB-06.
fn seat<S: Exchange>(room: &Room<S>, call: &Call) -> Result<Seat, Reject> {
    let (tenant, server) = (call.plan.tenant.clone(), call.plan.server.clone());
    let whose = (tenant, server, Arc::from(call.principal.binding()));
    room.shared.listens.sit(whose).ok_or_else(|| {
        let tenant = Some(&call.plan.tenant);
        room.shared
            .rooms
            .metrics
            .rate_limited(tenant, Scope::Principal);
        Reject::Limited {
            scope: Scope::Principal,
            limit: "streams",
            retry_after: std::time::Duration::from_secs(10),
        }
    })
}

// === impl Filter ===

impl Filter {
    /// The filter of a request; none when it is missing or of another shape (SUB-08).
    fn of(frame: &Frame) -> Option<Self> {
        let object = frame.member(frame.params()?, "notifications")?;
        if frame.text(object).first() != Some(&b'{') {
            return None;
        }
        let flag = |key: &str| match frame.member(object, key).map(|span| frame.text(span)) {
            None | Some(b"false" | b"null") => Some(false), // AMB-32
            Some(b"true") => Some(true),
            Some(_) => None,
        };
        let mut uris = HashSet::new();
        if let Some(list) = frame.member(object, "resourceSubscriptions")
            && frame.text(list) != b"null"
        {
            if frame.text(list).first() != Some(&b'[') {
                return None;
            }
            for uri in frame.elements(list) {
                uris.insert(frame.string(uri)?.into_owned());
            }
        }
        Some(Self {
            tools: flag("toolsListChanged")?,
            prompts: flag("promptsListChanged")?,
            resources: flag("resourcesListChanged")?,
            uris,
        })
    }

    /// Whether the client asked for this notification (SUB-02, SUB-09).
    fn wants(&self, method: Method, frame: &Frame) -> bool {
        let uri = || frame.uri().and_then(|uri| frame.string(uri));
        let is = |wanted: Method| method == wanted;
        (self.tools && is(Method::ToolsListChanged))
            || (self.prompts && is(Method::PromptsListChanged))
            || (self.resources && is(Method::ResourcesListChanged))
            || (is(Method::ResourcesUpdated) && uri().is_some_and(|uri| self.covers(&uri)))
    }

    /// A subscription covers its URI and what lies below it.
    fn covers(&self, uri: &str) -> bool {
        self.uris.contains(uri)
            || self.uris.iter().any(|subscribed| {
                uri.strip_prefix(subscribed.as_str())
                    .is_some_and(|rest| subscribed.ends_with('/') || rest.starts_with('/'))
            })
    }
}

// === impl Listener ===

impl Listener {
    fn refused(&self, draft: Draft) -> Response {
        let encoder = Encoder {
            revision: vestibule_terms::Revision::NEWEST_MODERN,
            identity: &self.shared.rooms.identity,
            strict: false,
            served: &[],
        };
        let end = Final::Message(draft);
        match encoder.reply(end, Method::SubscriptionsListen, &self.id) {
            Some(reply) => answer::json(&self.record, reply, true),
            None => answer::refuse(&self.record, Reject::Internal, Some(&self.id)),
        }
    }

    async fn pump(mut self, mut running: Running, outlet: Outlet, mut ending: Ending) {
        let mut draining = self.shared.draining.subscribe();
        loop {
            let event = tokio::select! {
                event = running.next() => event,
                () = outlet.closed() => return,
                () = drained(&mut draining) => None,
                _over = ending.over() => None, // AUT-23: with its result
            };
            let Some(event) = event else {
                let _last = outlet.push(sse::message(None, &[self.result()]));
                return;
            };
            if self.hear(event, &outlet) {
                return;
            }
        }
    }

    /// Sends what is to be sent of one event; true when the stream is over.
    fn hear(&mut self, event: Event, outlet: &Outlet) -> bool {
        let (message, over) = match event {
            Event::Notice(draft) => (self.notice(draft), false),
            Event::Question(question) => {
                refuse_question(&self.shared.back, question);
                (None, false)
            }
            Event::Progress(_)
            | Event::Log { .. }
            | Event::QuestionWithdrawn(_)
            | Event::Paused { .. }
            | Event::Mark { .. } => (None, false), // SUB-09
            Event::Final(Final::Error(error)) => {
                (Some(Reply::error(Some(&self.id), &error).chunks), true)
            }
            Event::Final(_) => (Some(vec![self.result()]), true),
        };
        let Some(message) = message else { return over };
        self.counted.event();
        let sent = outlet.push(sse::message(None, &message));
        over || sent.is_err()
    }

    /// A notification under this listen's id, if it may be sent now.
    fn notice(&mut self, mut draft: Draft) -> Option<Vec<Bytes>> {
        let method = Method::parse(&draft.frame().method()?)?;
        if method == Method::SubscriptionsAcknowledged {
            if std::mem::replace(&mut self.acknowledged, true) {
                return None;
            }
        } else if !self.acknowledged || !self.filter.wants(method, draft.frame()) {
            return None; // SUB-02
        }
        draft.set_meta(meta::SUBSCRIPTION_ID, self.id.token());
        Some(draft.chunks())
    }

    /// SUB-04: the result that ends a listen.
    fn result(&self) -> Bytes {
        let identity = &self.shared.rooms.identity;
        write::result(
            &self.id,
            &crate::encode::listen_result(self.id.as_bytes(), identity),
        )
    }
}

/// Resolves when the process begins to stop.
pub(crate) async fn drained(draining: &mut watch::Receiver<bool>) {
    if draining.wait_for(|draining| *draining).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vestibule_frame::Limits;

    fn frame(params: &str) -> Frame {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{params}}}"#
        );
        Frame::parse(Bytes::from(text), &Limits::default()).unwrap()
    }

    /// SUB-08, AMB-32: a missing or malformed filter is refused, a false field is an absent one.
    #[test]
    fn sub_08_the_filter_is_required_and_typed() {
        for bad in [
            "{}",
            r#"{"notifications":[]}"#,
            r#"{"notifications":{"toolsListChanged":1}}"#,
            r#"{"notifications":{"resourceSubscriptions":"a:b"}}"#,
            r#"{"notifications":{"resourceSubscriptions":[1]}}"#,
        ] {
            assert_eq!(Filter::of(&frame(bad)), None, "{bad}");
        }
        let some = r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":false}}"#;
        let filter = Filter::of(&frame(some)).unwrap();
        assert!(filter.tools && !filter.prompts);
        assert_eq!(
            Filter::of(&frame(r#"{"notifications":{}}"#)),
            Some(Filter::default())
        );
    }

    /// 8.5: a subscription covers what lies below its URI and nothing beside it.
    #[test]
    fn a_subscription_covers_the_paths_below_it() {
        let text = r#"{"notifications":{"resourceSubscriptions":["file:///a","file:///d/"]}}"#;
        let filter = Filter::of(&frame(text)).unwrap();
        for covered in ["file:///a", "file:///a/b", "file:///d/", "file:///d/e"] {
            assert!(filter.covers(covered), "{covered}");
        }
        for foreign in ["file:///ab", "file:///", "file:///d"] {
            assert!(!filter.covers(foreign), "{foreign}");
        }
    }

    /// SUB-06: eight a caller and server; the ninth waits for one to close.
    #[test]
    fn sub_06_a_caller_has_eight_seats() {
        let listens = Listens::default();
        let whose = (
            TenantId::new("t").unwrap(),
            ServerId::new("s").unwrap(),
            Arc::from("p"),
        );
        let seats: Vec<Seat> = (0..LIMIT)
            .map(|_| listens.sit(whose.clone()).unwrap())
            .collect();
        assert!(listens.sit(whose.clone()).is_none());
        drop(seats);
        assert!(listens.sit(whose).is_some());
        assert!(
            listens.0.is_empty(),
            "no seat is remembered after its stream"
        );
    }
}
