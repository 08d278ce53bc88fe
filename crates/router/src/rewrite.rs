//! The events of one call as its client may see them: names and URIs exposed, errors mapped, lists
//! of a transparent server with their cursor sealed and without what may not be seen.

use std::sync::Arc;

use bytes::Bytes;
use vestibule_catalog::cursor::{Owner, UPSTREAM_CURSOR_MAX};
use vestibule_catalog::definition::items;
use vestibule_catalog::{Catalog, Cursor, Definition, Kind, Mirroring, Position, allow, warn_flaw};
use vestibule_exchange::error_map::{FROM_UPSTREAM, Mapped, Told, map_error, sanitise};
use vestibule_exchange::view::CacheScope;
use vestibule_exchange::{Call, Event, Final, ListPage, RpcError};
use vestibule_frame::{Draft, Frame, Span};
use vestibule_metrics::Metrics;
use vestibule_terms::reject::code;
use vestibule_terms::{Era, Method, Principal, ServerPlan, UpstreamId};

use crate::names::{Giving, Names};
use crate::one::token;
use crate::seen::{Holder, Seen};

/// Most values of a completion (CMP-02).
const COMPLETIONS_MAX: usize = 100;

/// Rewrites the events of one call.
pub(crate) struct Rewrite {
    plan: Arc<ServerPlan>,
    principal: Arc<Principal>,
    told: Told,
    method: Method,
    upstream: UpstreamId,
    catalog: Arc<Catalog>,
    mirroring: Mirroring,
    metrics: Option<Metrics>,
    tool: Option<String>,
    seen: Arc<Seen>,
    holder: Option<Holder>,
}

impl Rewrite {
    pub(crate) fn of(router: &crate::Router, call: &Call, upstream: &UpstreamId) -> Self {
        Self {
            plan: Arc::clone(&call.plan),
            principal: Arc::clone(&call.principal),
            told: Told {
                era: call.revision.era(),
                elicit_url: call.capabilities.elicit_url,
            },
            method: call.method,
            upstream: upstream.clone(),
            catalog: Arc::clone(&router.catalog),
            mirroring: Mirroring::Ignored,
            metrics: None,
            tool: None,
            seen: Arc::clone(&router.seen),
            holder: Holder::of(call),
        }
    }

    /// Counts the call when it has ended, under its original name where the catalog knows it.
    pub(crate) fn counting(self, metrics: Option<Metrics>, tool: Option<String>) -> Self {
        Self {
            metrics,
            tool,
            ..self
        }
    }

    /// Whether tools with wrong annotations are hidden or mended.
    pub(crate) fn mirroring(self, mirroring: Mirroring) -> Self {
        Self { mirroring, ..self }
    }

    pub(crate) fn upstream(&self) -> &UpstreamId {
        &self.upstream
    }

    fn names(&self) -> Names<'_> {
        let giving = self.holder.as_ref().map(|holder| Giving {
            seen: &self.seen,
            holder,
        });
        Names {
            plan: &self.plan,
            upstream: &self.upstream,
            giving,
        }
    }

    /// One event that is not the end; none when it may not be seen.
    pub(crate) fn event(&self, event: Event) -> Option<Event> {
        let names = self.names();
        Some(match event {
            Event::Log { level, message } => Event::Log {
                level,
                message: names.log(message),
            },
            Event::Question(question) => Event::Question(names.question(question)),
            Event::Notice(message) => Event::Notice(self.notice(message)?),
            Event::Final(end) => Event::Final(self.end(end)),
            Event::Progress(_)
            | Event::QuestionWithdrawn(_)
            | Event::Paused { .. }
            | Event::Mark { .. } => event,
        })
    }

    fn notice(&self, message: Draft) -> Option<Draft> {
        let method = message
            .frame()
            .method()
            .and_then(|name| Method::parse(&name));
        if method == Some(Method::ResourcesUpdated) {
            return self.names().updated(message);
        }
        for kind in method.map(Kind::changed_by).unwrap_or_default() {
            self.catalog
                .invalidate(&self.plan.tenant, &self.upstream, *kind);
        }
        Some(message)
    }

    /// The end of the call.
    pub(crate) fn end(&self, end: Final) -> Final {
        let end = match end {
            Final::Message(draft) if draft.frame().error().is_some() => self.error(draft),
            Final::Message(draft) => self.result(draft),
            Final::Error(error) if error.code == code::HEADER_MISMATCH => {
                Final::Error(RpcError::protocol(&self.upstream, "header_mismatch"))
            }
            Final::Error(_)
            | Final::View(_)
            | Final::List(_)
            | Final::Empty
            | Final::Wanted(_)
            | Final::Cancelled => end,
        };
        if let Some(metrics) = &self.metrics {
            let tool = self.tool.as_deref();
            metrics.tool_called(&self.plan.tenant, &self.upstream, tool, is_ok(&end));
        }
        end
    }

    fn error(&self, mut draft: Draft) -> Final {
        let kind = Kind::of(self.method);
        let found = draft.frame().error_parts().and_then(|parts| parts.code);
        if let Some(kind) = kind
            && found == Some(code::METHOD_NOT_FOUND)
        {
            // Not every server that has resources has templates too, and few say so (RSC-11).
            return Final::List(empty_page(kind));
        }
        match map_error(draft.frame(), &self.upstream, self.method, self.told) {
            Mapped::Replace(error)
                if found == Some(code::MISSING_CAPABILITY) && self.told_by_result() =>
            {
                let data = error.data.unwrap_or_default();
                let text = format!("{}: {}", error.message, String::from_utf8_lossy(&data));
                Final::tool_error(&sanitise(&text))
            }
            // without the page: whoever reads this did not ask for it
            Mapped::Replace(error)
                if found == Some(code::URL_ELICITATION) && self.told_by_result() =>
            {
                let text = format!("{}. Authorise it there, then try again.", error.message);
                Final::tool_error(&sanitise(&text))
            }
            Mapped::Replace(mut error) => {
                let data = error.data.as_ref().filter(|_| self.plan.is_federated());
                if let Some(data) = data.and_then(|data| self.names().error_data(data)) {
                    error.data = Some(data);
                }
                Final::Error(error)
            }
            Mapped::Pass => {
                let frame = draft.frame().clone();
                let data = frame.error_parts().and_then(|parts| parts.data);
                let in_data = |key| data.and_then(|data| frame.member(data, key));
                if self.plan.is_federated() {
                    self.names().uri(&mut draft, in_data("uri"));
                }
                if let Some(origin) = in_data("origin") {
                    // ERR-13: only we say that something is ours
                    draft.replace(origin, Bytes::from_static(FROM_UPSTREAM));
                }
                Final::Message(draft)
            }
        }
    }

    /// Whether a model reads what the client's revision has no error for (AMB-38).
    fn told_by_result(&self) -> bool {
        self.method == Method::ToolsCall && self.told.era == Era::Legacy
    }

    fn result(&self, mut draft: Draft) -> Final {
        if let Some(kind) = Kind::of(self.method) {
            return self.page(draft, kind);
        }
        if self.method == Method::CompletionComplete {
            cap_values(&mut draft);
        }
        if self.plan.is_federated() {
            self.names().result(&mut draft, self.method);
        }
        Final::Message(draft)
    }

    /// A page of a transparent server: its cursor sealed, what may not be seen taken out.
    fn page(&self, mut draft: Draft, kind: Kind) -> Final {
        let protocol = |reason| Final::Error(RpcError::protocol(&self.upstream, reason));
        let frame = draft.frame().clone();
        let Some(result) = frame.result() else {
            return protocol("list_result");
        };
        if let Some(span) = frame.member(result, "nextCursor")
            && frame.text(span) != b"null"
        {
            let Some(cursor) = frame
                .string(span)
                .filter(|text| text.len() <= UPSTREAM_CURSOR_MAX)
            else {
                return protocol("next_cursor");
            };
            draft.replace(
                span,
                token(&self.seal(&frame, result, kind, cursor.into_owned())),
            );
        }
        let array = frame.member(result, kind.member());
        let listed = items(frame.bytes(), result.range(), kind.member());
        let (Some(array), Some(listed)) = (array, listed) else {
            return protocol("list_result");
        };
        let kept: Vec<Bytes> = listed
            .iter()
            .filter_map(|raw| self.kept(kind, raw))
            .collect();
        if kept != listed {
            draft.replace(
                array,
                Bytes::from([b"[", kept.join(&b","[..]).as_slice(), b"]"].concat()),
            );
        }
        Final::Message(draft)
    }

    fn seal(&self, frame: &Frame, result: Span, kind: Kind, cursor: String) -> String {
        let scope = frame
            .member(result, "cacheScope")
            .map(|span| frame.text(span));
        let public = scope == Some(b"\"public\"");
        let scope = if public {
            CacheScope::Public
        } else {
            CacheScope::Private
        };
        let owner = Owner {
            plan: &self.plan,
            principal: &self.principal,
            kind,
        };
        let cursor = Cursor {
            scope,
            position: Position::Upstream(cursor),
        };
        self.catalog.cursors().seal(owner, &cursor)
    }

    /// An item as it is listed, if it is: permitted, and a tool only when it is sound.
    fn kept(&self, kind: Kind, raw: &Bytes) -> Option<Bytes> {
        let raw = match Definition::read(kind, raw.clone(), self.mirroring) {
            Ok(definition) => {
                return allow::permits(&self.plan, kind, &definition.key).then_some(definition.raw);
            }
            Err(flaw) if kind == Kind::Tools => {
                warn_flaw(kind, &self.upstream, raw, &flaw);
                return None;
            }
            Err(_) => raw,
        };
        // Only tools are judged; but what cannot be named cannot be permitted by name either.
        let open = match kind {
            Kind::Prompts => self.plan.allow.prompts.is_none(),
            Kind::Tools | Kind::Resources | Kind::Templates => self.plan.allow.resources.is_none(),
        };
        (open && allow::sees_anything(&self.plan)).then(|| raw.clone())
    }
}

/// CMP-02: at most a hundred values, and then there are more.
fn cap_values(draft: &mut Draft) {
    let frame = draft.frame().clone();
    let completion = frame
        .result()
        .and_then(|result| frame.member(result, "completion"));
    let Some(completion) = completion else { return };
    let Some(values) = frame.member(completion, "values") else {
        return;
    };
    let all: Vec<&[u8]> = frame
        .elements(values)
        .map(|span| frame.text(span))
        .collect();
    if all.len() > COMPLETIONS_MAX {
        let first = all
            .get(..COMPLETIONS_MAX)
            .unwrap_or_default()
            .join(&b","[..]);
        draft.replace(values, Bytes::from([b"[", first.as_slice(), b"]"].concat()));
        draft.set_member(completion, "hasMore", Bytes::from_static(b"true"));
    }
}

fn is_ok(end: &Final) -> bool {
    match end {
        Final::Message(draft) => {
            let frame = draft.frame();
            let failed = frame
                .result()
                .and_then(|result| frame.member(result, "isError"));
            frame.result().is_some() && failed.map(|span| frame.text(span)) != Some(b"true")
        }
        Final::Error(_) | Final::Wanted(_) | Final::Cancelled => false,
        Final::View(_) | Final::List(_) | Final::Empty => true,
    }
}

/// A list with nothing in it, not to be kept.
pub(crate) fn empty_page(kind: Kind) -> ListPage {
    ListPage {
        member: kind.member(),
        items: Vec::new(),
        next_cursor: None,
        ttl_ms: 0,
        scope: CacheScope::Private,
    }
}
