//! Enumerating one list of one upstream: all pages, bounded, each item checked.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::Instant;
use tracing::warn;
use vestibule_exchange::error_map::{Mapped, Told, map_error};
use vestibule_exchange::view::CacheScope;
use vestibule_exchange::{
    Capabilities, Connector, Event, Final, Inlet, Outbound, Profile, RpcError, Sharing,
};
use vestibule_frame::{Draft, Frame, Id, Limits, encode, json};
use vestibule_terms::reject::code;
use vestibule_terms::{Deadline, Era, Record, TenantId, UpstreamId};

use crate::definition::{Definition, Mirroring, items};
use crate::kind::Kind;

/// Most pages of one enumeration (PAG-05).
const PAGES_MAX: usize = 1000;
/// Most items of one enumeration (PAG-05).
const ITEMS_MAX: usize = 50_000;
/// Longest silence while enumerating.
const IDLE: Duration = Duration::from_secs(20);
/// Longest enumeration.
const TOTAL: Duration = Duration::from_secs(60);
/// Lifetime of a list of an upstream that gives no hints (CCH-14).
const LEGACY_TTL: Duration = Duration::from_secs(30);
/// Longest lifetime that is believed.
const TTL_MAX: Duration = Duration::from_secs(60 * 60);

/// What to enumerate, as whom.
#[derive(Clone)]
pub(crate) struct Enumeration {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) tenant: TenantId,
    pub(crate) upstream: UpstreamId,
    /// The era of the clients it is for.
    pub(crate) era: Era,
    pub(crate) profile: Arc<Profile>,
    pub(crate) kind: Kind,
    pub(crate) class: Arc<Capabilities>,
    pub(crate) inlet: Arc<dyn Inlet>,
}

/// A whole list.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) items: Vec<Definition>,
    pub(crate) ttl: Duration,
    pub(crate) scope: CacheScope,
}

/// One page as it came.
struct Page {
    items: Vec<Bytes>,
    next: Option<String>,
    ttl: Duration,
    scope: CacheScope,
}

impl Enumeration {
    /// Fetches all pages. A cursor that comes back ends the enumeration with what is there, as do
    /// the caps (case 20); an error on any page fails it.
    pub(crate) async fn run(self) -> Result<Fetched, RpcError> {
        let deadline = Deadline::starting_now(IDLE, TOTAL);
        let mut list = Gathered::new(self.kind, self.mirroring());
        let mut cursors: HashSet<String> = HashSet::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let page = self.page(cursor.as_deref(), deadline).await?;
            list.add(page.items, page.ttl, page.scope, &self.upstream);
            match page.next {
                None => return Ok(list.done()),
                Some(_) if list.definitions.len() >= ITEMS_MAX => break,
                Some(next) if !cursors.insert(next.clone()) => break,
                Some(next) => cursor = Some(next),
            }
        }
        warn!(
            tenant.id = %self.tenant, upstream.id = %self.upstream, list = self.kind.member(),
            "upstream {} never ends its list; using what came so far", self.upstream
        );
        Ok(list.done())
    }

    fn mirroring(&self) -> Mirroring {
        if self.profile.over_http && self.profile.revision.is_modern() {
            Mirroring::Required
        } else {
            Mirroring::Ignored
        }
    }

    async fn page(&self, cursor: Option<&str>, deadline: Deadline) -> Result<Page, RpcError> {
        let mut events = self.connector.call(self.outbound(cursor, deadline)).await;
        let end = loop {
            match tokio::time::timeout_at(deadline.next(), events.next()).await {
                Ok(Some(Event::Final(end))) => break end,
                // Nothing else that is said on the way concerns a list; a question is refused by
                // the connector, which knows that nobody is there to be asked.
                Ok(Some(_)) => {}
                Ok(None) => return Err(RpcError::outcome_unknown(&self.upstream)),
                Err(_) => return Err(RpcError::timeout(&self.upstream)),
            }
        };
        match end {
            Final::Message(draft) => self.read(draft.frame()),
            Final::Error(error) => Err(error),
            Final::View(_)
            | Final::List(_)
            | Final::Empty
            | Final::Wanted(_)
            | Final::Cancelled => Err(RpcError::protocol(&self.upstream, "list_result")),
        }
    }

    fn outbound(&self, cursor: Option<&str>, deadline: Deadline) -> Outbound {
        let params = match cursor {
            Some(cursor) => format!(r#"{{"cursor":{}}}"#, json::quote(cursor)),
            None => "{}".to_owned(),
        };
        let method = self.kind.method();
        Outbound {
            tenant: self.tenant.clone(),
            upstream: self.upstream.clone(),
            sharing: Sharing::Catalog,
            era: self.era,
            method,
            message: request(method.as_str(), params.as_bytes()),
            name: None,
            param_headers: Vec::new(),
            capabilities: Arc::clone(&self.class),
            log_level: None,
            progress: false,
            deadline,
            record: Record::default(),
            inlet: Some(Arc::clone(&self.inlet)),
            continues: None,
        }
    }

    fn read(&self, frame: &Frame) -> Result<Page, RpcError> {
        let protocol = |reason| RpcError::protocol(&self.upstream, reason);
        if let Some(parts) = frame.error_parts() {
            // Not every server that has resources has templates too, and few say so.
            if parts.code == Some(code::METHOD_NOT_FOUND) {
                return Ok(Page {
                    items: Vec::new(),
                    next: None,
                    ttl: LEGACY_TTL,
                    scope: CacheScope::Public,
                });
            }
            let told = Told {
                era: Era::Modern,
                elicit_url: false,
            };
            let mapped = map_error(frame, &self.upstream, self.kind.method(), told);
            return Err(match mapped {
                Mapped::Replace(error) => error,
                Mapped::Pass => protocol("list_error"),
            });
        }
        let result = frame.result().ok_or_else(|| protocol("list_result"))?;
        let modern = self.profile.revision.is_modern();
        let result_type = frame.result_type().map(|span| frame.text(span));
        if modern && result_type.is_some_and(|text| text != b"\"complete\"") {
            return Err(protocol("result_type"));
        }
        let items = items(frame.bytes(), result.range(), self.kind.member())
            .ok_or_else(|| protocol("list_result"))?;
        let next = match frame.member(result, "nextCursor") {
            None => None,
            Some(span) if frame.text(span) == b"null" => None,
            // The empty string is a cursor like any other (PAG-03).
            Some(span) => {
                let text = frame.string(span).ok_or_else(|| protocol("next_cursor"))?;
                Some(text.into_owned())
            }
        };
        let text = |key| frame.member(result, key).map(|span| frame.text(span));
        let private = text("cacheScope") == Some(b"\"private\"");
        Ok(Page {
            items,
            next,
            ttl: if modern {
                ttl(text("ttlMs"))
            } else {
                LEGACY_TTL
            },
            scope: if modern && private {
                CacheScope::Private
            } else {
                CacheScope::Public
            },
        })
    }
}

/// A hint as it counts: absent and negative are 0 (CCH-03), the rest is capped.
fn ttl(token: Option<&[u8]>) -> Duration {
    let millis = token
        .and_then(vestibule_frame::agree::exact_integer)
        .and_then(|millis| u64::try_from(millis).ok())
        .unwrap_or(0);
    Duration::from_millis(millis).min(TTL_MAX)
}

/// A request of our own; the connector gives it its id.
pub(crate) fn request(method: &str, params: &[u8]) -> Draft {
    let text = encode::request(&Id::integer(0), method, Some(params));
    let frame =
        Frame::parse(text, &Limits::default()).expect("a request of our own is well-formed");
    Draft::new(frame)
}

struct Gathered {
    kind: Kind,
    mirroring: Mirroring,
    seen: HashSet<Arc<str>>,
    definitions: Vec<Definition>,
    expiry: Option<Instant>,
    scope: CacheScope,
}

impl Gathered {
    fn new(kind: Kind, mirroring: Mirroring) -> Self {
        Self {
            kind,
            mirroring,
            seen: HashSet::new(),
            definitions: Vec::new(),
            expiry: None,
            scope: CacheScope::Public,
        }
    }

    /// Keeps one copy of each good item; names what is dropped.
    fn add(&mut self, raw: Vec<Bytes>, ttl: Duration, scope: CacheScope, upstream: &UpstreamId) {
        let expiry = Instant::now() + ttl;
        self.expiry = Some(self.expiry.map_or(expiry, |earlier| earlier.min(expiry)));
        if scope == CacheScope::Private {
            self.scope = CacheScope::Private;
        }
        for raw in raw {
            if self.definitions.len() >= ITEMS_MAX {
                return;
            }
            match Definition::read(self.kind, raw.clone(), self.mirroring) {
                Ok(definition) if self.seen.insert(Arc::clone(&definition.key)) => {
                    self.definitions.push(definition);
                }
                Ok(_) => {}
                Err(flaw) => warn_flaw(self.kind, upstream, &raw, &flaw),
            }
        }
    }

    fn done(self) -> Fetched {
        let now = Instant::now();
        let ttl = self
            .expiry
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        Fetched {
            items: self.definitions,
            ttl,
            scope: self.scope,
        }
    }
}

/// Logs an item that is dropped, by name where it has one.
pub fn warn_flaw(kind: Kind, upstream: &UpstreamId, raw: &[u8], flaw: &crate::definition::Flaw) {
    let name = json::member(raw, kind.key())
        .and_then(json::string)
        .unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(128).collect();
    warn!(
        upstream.id = %upstream, item = name, reason = %flaw,
        "dropped a {} of upstream {upstream}", kind.noun()
    );
}
