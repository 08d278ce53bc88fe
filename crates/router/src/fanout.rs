//! What concerns all upstreams of a server: lists, and the log level of a legacy session.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use vestibule_catalog::catalog::PROBE_WAIT;
use vestibule_catalog::cursor::{self, Owner};
use vestibule_catalog::{Kind, Mirroring, Position, allow};
use vestibule_exchange::{BoxFuture, Call, Event, Events, Final, RpcError, Sharing};
use vestibule_frame::{Draft, Frame};
use vestibule_terms::{Era, ServerKind, UpstreamId};

use crate::one::{outbound, sharing, token};
use crate::relay::relay;
use crate::rewrite::{Rewrite, empty_page};
use crate::select::{Selected, invalid};
use crate::service::{Router, method_not_found, viewer};

/// How long a level may take to reach the upstreams before the client is answered.
const LEVEL_WAIT: Duration = Duration::from_secs(3);

/// A page of a list.
pub(crate) async fn list(router: Router, call: Call, kind: Kind) -> Events {
    let outcome = match call.plan.kind.clone() {
        ServerKind::Federated(_) => merged(&router, &call, kind).await,
        ServerKind::Transparent(upstream) => relayed(&router, &call, kind, upstream).await,
    };
    outcome.unwrap_or_else(Events::error)
}

async fn merged(router: &Router, call: &Call, kind: Kind) -> Result<Events, RpcError> {
    let cursor = cursor_of(call.message.frame())?;
    let cursor = cursor.map(|(_, text)| text);
    let page = router
        .catalog
        .page(viewer(call), kind, cursor.as_deref())
        .await?;
    Ok(Events::ready(Final::List(page)))
}

/// A list of the one upstream, page by page: a private session keeps the lists it has of its own.
async fn relayed(
    router: &Router,
    call: &Call,
    kind: Kind,
    upstream: UpstreamId,
) -> Result<Events, RpcError> {
    call.record.set_upstream(upstream.clone());
    let message = unsealed(router, call, kind)?;
    if !allow::sees_anything(&call.plan) {
        return Ok(Events::ready(Final::List(empty_page(kind))));
    }
    let profile = router
        .catalog
        .profile(
            &call.plan.tenant,
            &upstream,
            call.revision.era(),
            PROBE_WAIT,
        )
        .await
        .ok();
    let profile = profile.as_deref();
    if profile.is_some_and(|profile| !kind.offered_by(profile)) {
        return Err(method_not_found());
    }
    let mirrors = profile.is_some_and(|p| p.over_http && p.revision.is_modern());
    let mirroring = if mirrors {
        Mirroring::Required
    } else {
        Mirroring::Ignored
    };
    let rewrite = Rewrite::of(router, call, &upstream).mirroring(mirroring);
    let selected = Selected {
        upstream,
        message,
        original: String::new(),
        annotated: None,
    };
    let events = router
        .connector
        .call(outbound(router, call, selected, profile))
        .await;
    Ok(relay(rewrite, events, None))
}

/// The request with the upstream's own cursor in it.
fn unsealed(router: &Router, call: &Call, kind: Kind) -> Result<Draft, RpcError> {
    let mut message = call.message.clone();
    match cursor_of(call.message.frame())? {
        None => message.remove_at(&["params", "cursor"]),
        Some((span, text)) => {
            let owner = Owner {
                plan: &call.plan,
                principal: &call.principal,
                kind,
            };
            match router.catalog.cursors().open(owner, &text)?.position {
                Position::Upstream(own) => message.replace(span, token(&own)),
                Position::After { .. } => return Err(cursor::invalid()),
            }
        }
    }
    Ok(message)
}

/// The client's cursor; null counts as absent, the empty string does not (PAG-03).
fn cursor_of(frame: &Frame) -> Result<Option<(vestibule_frame::Span, String)>, RpcError> {
    let span = frame
        .params()
        .and_then(|params| frame.member(params, "cursor"));
    let Some(span) = span.filter(|span| frame.text(*span) != b"null") else {
        return Ok(None);
    };
    let text = frame
        .string(span)
        .ok_or_else(|| invalid("params.cursor must be a string"))?;
    Ok(Some((span, text.into_owned())))
}

/// Waits until a call has ended, however it does.
async fn to_its_end(events: BoxFuture<Events>) {
    let mut events = events.await;
    while let Some(event) = events.next().await {
        if matches!(event, Event::Final(_)) {
            return;
        }
    }
}

/// Tells the private upstream sessions of a legacy client its log level. The client is answered
/// whatever they say (translation rules, section 5.1).
pub(crate) async fn level(router: &Router, call: &Call) -> Events {
    let private = matches!(sharing(call), Sharing::Session(_));
    let told = call
        .plan
        .upstreams()
        .iter()
        .filter(|_| private)
        .filter_map(|upstream| {
            let profile =
                router
                    .connector
                    .known_profile(&call.plan.tenant, upstream, Era::Legacy)?;
            let logs = !profile.revision.is_modern() && profile.offers("logging");
            logs.then(|| {
                let selected = Selected {
                    upstream: upstream.clone(),
                    message: call.message.clone(),
                    original: String::new(),
                    annotated: None,
                };
                let outbound = outbound(router, call, selected, Some(profile.as_ref()));
                to_its_end(router.connector.call(outbound))
            })
        });
    let all = join_all(told);
    let _late_ones_are_not_waited_for = tokio::time::timeout(LEVEL_WAIT, all).await;
    Events::ready(Final::Empty)
}
