//! Whose a request is, and what its target is called there: by table, for names; by prefix, for
//! URIs. Not permitted and not existing read the same, whatever the way to name the item (T46).

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_catalog::{Kind, allow, uri};
use vestibule_exchange::{Call, RpcError};
use vestibule_frame::agree::Annotated;
use vestibule_frame::{Draft, Span, json};
use vestibule_terms::reject::code;
use vestibule_terms::{Method, ServerKind, UpstreamId};

use crate::method::Target;
use crate::seen::Holder;
use crate::service::{Router, viewer};

/// A request as it goes to its upstream.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) upstream: UpstreamId,
    /// The client's message with the target as the upstream calls it.
    pub(crate) message: Draft,
    /// The target as the upstream calls it.
    pub(crate) original: String,
    /// The mirrored arguments, where the tool is known by table.
    pub(crate) annotated: Option<Arc<[Annotated]>>,
}

/// Finds the upstream of a call.
pub(crate) async fn select(
    router: &Router,
    call: &Call,
    target: Target,
) -> Result<Selected, RpcError> {
    match target {
        Target::Name(kind) => {
            let frame = call.message.frame();
            named(router, call, kind, frame.name()).await
        }
        Target::Uri => {
            let span = call.message.frame().uri();
            Box::pin(located(router, call, Kind::Resources, span)).await
        }
        Target::Reference => Box::pin(referenced(router, call)).await,
    }
}

async fn referenced(router: &Router, call: &Call) -> Result<Selected, RpcError> {
    let frame = call.message.frame();
    let reference = frame
        .params()
        .and_then(|params| frame.member(params, "ref"))
        .ok_or_else(|| invalid("params.ref is missing"))?;
    let kind = frame
        .member(reference, "type")
        .and_then(|span| frame.string(span));
    match kind.as_deref() {
        Some("ref/prompt") => {
            named(router, call, Kind::Prompts, frame.member(reference, "name")).await
        }
        Some("ref/resource") => {
            located(
                router,
                call,
                Kind::Templates,
                frame.member(reference, "uri"),
            )
            .await
        }
        Some(_) | None => Err(invalid(
            "params.ref.type must be ref/prompt or ref/resource",
        )),
    }
}

async fn named(
    router: &Router,
    call: &Call,
    kind: Kind,
    span: Option<Span>,
) -> Result<Selected, RpcError> {
    let (span, exposed) = text(call, span, "the name of the target")?;
    let selected = |upstream: &UpstreamId, original: &str, annotated| Selected {
        upstream: upstream.clone(),
        message: renamed(call, span, &exposed, original),
        original: original.to_owned(),
        annotated,
    };
    match &call.plan.kind {
        ServerKind::Transparent(_) if !allow::permits(&call.plan, kind, &exposed) => {
            Err(RpcError::unknown(kind.noun()))
        }
        // Its upstream decides what exists.
        ServerKind::Transparent(upstream) => Ok(selected(upstream, &exposed, None)),
        ServerKind::Federated(_) => {
            let item = router.catalog.resolve(viewer(call), kind, &exposed).await?;
            Ok(selected(
                &item.upstream,
                &item.original,
                Some(Arc::clone(&item.annotated)),
            ))
        }
    }
}

async fn located(
    router: &Router,
    call: &Call,
    kind: Kind,
    span: Option<Span>,
) -> Result<Selected, RpcError> {
    let (span, exposed) = text(call, span, "the URI of the target")?;
    let (upstream, original) = locate(router, call, kind, &exposed).await?;
    let message = renamed(call, span, &exposed, &original);
    Ok(Selected {
        upstream,
        message,
        original,
        annotated: None,
    })
}

/// The upstream and the original of a URI or template that a client names.
pub(crate) async fn locate(
    router: &Router,
    call: &Call,
    kind: Kind,
    exposed: &str,
) -> Result<(UpstreamId, String), RpcError> {
    if !uri::is_acceptable(exposed) {
        return Err(invalid("the URI is too long or has control characters"));
    }
    let plan = &call.plan;
    let hidden = || missing(call, exposed);
    if !allow::sees_anything(plan) {
        return Err(hidden());
    }
    let (upstream, original) = match &plan.kind {
        ServerKind::Transparent(upstream) => (upstream.clone(), exposed.to_owned()),
        ServerKind::Federated(upstreams) => match uri::resolve(upstreams, exposed) {
            Some((upstream, original)) => (upstream.clone(), original.into_owned()),
            None => {
                // A URI that the allow list hides must not tell whose it is, or that several have it.
                let given = Holder::of(call)
                    .map(|holder| router.seen.of(plan, &holder, exposed))
                    .unwrap_or_default();
                let owner = router.catalog.owner(viewer(call), exposed, &given).await;
                let owner = owner.map_err(|error| match plan.allow.resources {
                    Some(_) => hidden(),
                    None if error == RpcError::unknown(Kind::Resources.noun()) => hidden(),
                    None => error,
                })?;
                (owner, exposed.to_owned())
            }
        },
    };
    let shown = match &plan.kind {
        ServerKind::Transparent(_) => Cow::Borrowed(exposed),
        ServerKind::Federated(_) => uri::expose(&upstream, &original),
    };
    if !allow::permits(plan, kind, &shown) {
        return Err(hidden());
    }
    if uri::climbs(&original) {
        return Err(invalid("the path of a file URI must not climb"));
    }
    Ok((upstream, original))
}

/// A resource that does not exist or is not permitted: one wording, the code of the era (ERR-02,
/// ERR-03).
pub(crate) fn missing(call: &Call, exposed: &str) -> RpcError {
    let about_resource = call.method != Method::CompletionComplete;
    let code = if about_resource && !call.revision.is_modern() {
        code::RESOURCE_NOT_FOUND
    } else {
        code::INVALID_PARAMS
    };
    let data = format!(r#"{{"uri":{}}}"#, json::quote(exposed));
    RpcError {
        data: Some(Bytes::from(data)),
        ..RpcError::new(code, "unknown resource")
    }
}

fn text(call: &Call, span: Option<Span>, what: &str) -> Result<(Span, String), RpcError> {
    let frame = call.message.frame();
    let span = span.ok_or_else(|| invalid(&format!("{what} is missing")))?;
    let text = frame
        .string(span)
        .ok_or_else(|| invalid(&format!("{what} must be a string")))?;
    Ok((span, text.into_owned()))
}

/// The message with its target renamed; untouched when it has the same name on both sides.
fn renamed(call: &Call, span: Span, exposed: &str, original: &str) -> Draft {
    let mut message = call.message.clone();
    if exposed != original {
        message.replace(span, Bytes::from(json::quote(original)));
    }
    message
}

pub(crate) fn invalid(message: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, message)
}
