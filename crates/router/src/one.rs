//! A call to the one upstream that owns its target.

use std::sync::Arc;

use bytes::Bytes;
use vestibule_catalog::catalog::PROBE_WAIT;
use vestibule_catalog::{Freshness, Kind};
use vestibule_exchange::{
    Call, Capabilities, Continuation, Events, Final, Inlet, LogLevel, Outbound, Profile, RpcError,
    Sharing,
};
use vestibule_frame::agree::{self, Annotated};
use vestibule_frame::head::Head;
use vestibule_frame::{Draft, Frame, Id, Limits, encode, json};
use vestibule_terms::reject::code;
use vestibule_terms::{Method, Revision, UpstreamId};

use crate::inlet::Arrivals;
use crate::method::Target;
use crate::relay::{Retry, relay};
use crate::rewrite::Rewrite;
use crate::select::{Selected, invalid, select};
use crate::service::{Router, method_not_found, viewer};
use crate::view::{completes, subscribes};

/// Routes one call and starts it.
pub(crate) async fn call(router: Router, call: Call, target: Target) -> Events {
    match start(&router, call, target).await {
        Ok(events) => events,
        Err(error) => Events::error(error),
    }
}

async fn start(router: &Router, call: Call, target: Target) -> Result<Events, RpcError> {
    let selected = select(router, &call, target).await?;
    call.record.set_upstream(selected.upstream.clone());
    let (tenant, upstream) = (&call.plan.tenant, &selected.upstream);
    let answers = call.rounds.answers.as_ref();
    if answers.is_some_and(|answers| answers.upstream != *upstream) {
        return Err(RpcError::lost(Some(upstream))); // another one has taken its place meanwhile
    }
    // An upstream of which nothing is known is called all the same: the connector says why it
    // cannot be reached, or finds that it can be again.
    let profile = router
        .catalog
        .profile(tenant, upstream, call.revision.era(), PROBE_WAIT)
        .await
        .ok();
    if let Some(end) = profile
        .as_deref()
        .and_then(|profile| refused(&call, profile))
    {
        return Ok(Events::ready(end));
    }
    let mirrors = mirrors(profile.as_deref());
    let annotated = annotated(router, &call, &selected, mirrors).await;
    if call.revision.is_modern() {
        check_params(&call, annotated.as_deref().unwrap_or_default())?;
    }
    let param_headers = match &annotated {
        Some(annotated) if mirrors => params_of(&selected.message, annotated)?,
        Some(_) | None => Vec::new(),
    };
    let mut outbound = outbound(router, &call, selected, profile.as_deref());
    outbound.param_headers = param_headers;
    if call.method == Method::ToolsCall {
        // Tasks are not offered, so asking for one is a member nobody defined (TOL-18).
        outbound.message.remove_at(&["params", "task"]);
    }
    let retry = (mirrors && call.method == Method::ToolsCall).then(|| Retry {
        router: router.clone(),
        call: call.clone(),
        outbound: outbound.clone(),
    });
    let metrics = Some(router.metrics.clone()).filter(|_| call.method == Method::ToolsCall);
    let known = annotated.is_some().then(|| outbound.name.clone()).flatten();
    let rewrite = Rewrite::of(router, &call, &outbound.upstream).counting(metrics, known);
    let events = router.connector.call(outbound).await;
    Ok(relay(rewrite, events, retry))
}

/// Goes on with what another process began at an upstream of this server.
pub(crate) async fn go_on(router: Router, call: Call, continuation: &Continuation) -> Events {
    let upstream = continuation.upstream();
    if !call.plan.upstreams().contains(upstream) {
        return Events::error(RpcError::lost(Some(upstream))); // it has been taken away since
    }
    call.record.set_upstream(upstream.clone());
    let (tenant, era) = (&call.plan.tenant, call.revision.era());
    let profile = router.catalog.profile(tenant, upstream, era, PROBE_WAIT);
    let profile = profile.await.ok();
    let selected = Selected {
        upstream: upstream.clone(),
        original: String::new(),
        message: call.message.clone(),
        annotated: None,
    };
    let outbound = outbound(&router, &call, selected, profile.as_deref());
    let metrics = Some(router.metrics.clone()).filter(|_| call.method == Method::ToolsCall);
    let rewrite = Rewrite::of(&router, &call, upstream).counting(metrics, None);
    let events = router.connector.call(outbound).await;
    relay(rewrite, events, None)
}

/// What ends a call before it reaches an upstream of this kind.
fn refused(call: &Call, profile: &Profile) -> Option<Final> {
    let method = call.method;
    let subscribing = method == Method::ResourcesSubscribe;
    let about_subscription = subscribing || method == Method::ResourcesUnsubscribe;
    if about_subscription && profile.revision.era() != call.revision.era() {
        let message = "subscriptions of this upstream cannot be relayed to this client";
        return Some(Final::Error(RpcError::not_translatable(
            message,
            "subscription",
        )));
    }
    let completing = method == Method::CompletionComplete;
    let missing = (method == Method::ToolsCall && !profile.offers("tools"))
        || (method == Method::PromptsGet && !profile.offers("prompts"))
        || (method == Method::ResourcesRead && !profile.offers("resources"))
        || (completing && !completes(profile))
        || (subscribing && !subscribes(profile));
    if missing && completing && call.plan.is_federated() {
        // Another upstream may be why the server as a whole has completions.
        return Some(no_values());
    }
    missing.then(|| Final::Error(method_not_found()))
}

/// A completion without values.
fn no_values() -> Final {
    let result = br#"{"completion":{"values":[],"total":0,"hasMore":false}}"#;
    let text = encode::result(&Id::integer(0), result);
    let frame = Frame::parse(text, &Limits::default()).expect("a result of our own is well-formed");
    Final::Message(Draft::new(frame))
}

/// Whether the upstream wants arguments mirrored in headers.
fn mirrors(profile: Option<&Profile>) -> bool {
    profile.is_some_and(|profile| profile.over_http && profile.revision.is_modern())
}

/// The mirrored arguments of the tool that is called, if the call has to do with them and the tool
/// is known (XMH-07).
async fn annotated(
    router: &Router,
    call: &Call,
    selected: &Selected,
    mirrors: bool,
) -> Option<Arc<[Annotated]>> {
    if call.method != Method::ToolsCall {
        return None;
    }
    if selected.annotated.is_some() || !(mirrors || call.revision.is_modern()) {
        return selected.annotated.clone();
    }
    Box::pin(definition(
        router,
        call,
        &selected.upstream,
        &selected.original,
        Freshness::Resolving,
    ))
    .await
}

/// The mirrored arguments of a tool as its upstream lists it.
pub(crate) async fn definition(
    router: &Router,
    call: &Call,
    upstream: &UpstreamId,
    tool: &str,
    freshness: Freshness,
) -> Option<Arc<[Annotated]>> {
    let viewer = viewer(call);
    let found = router
        .catalog
        .definition(viewer, upstream, Kind::Tools, tool, freshness)
        .await;
    found.map(|definition| definition.annotated)
}

/// HDR-19: the client's `Mcp-Param-*` headers against the arguments.
fn check_params(call: &Call, annotated: &[Annotated]) -> Result<(), RpcError> {
    if annotated.is_empty() {
        return Ok(());
    }
    let head = Head {
        params: call.param_headers.to_vec(),
        ..Head::default()
    };
    agree::params(&head, annotated, arguments(&call.message))
        .map_err(|disagreement| RpcError::new(disagreement.code(), disagreement.to_string()))
}

/// HDR-18, XMH-05: the headers for an upstream, as (suffix, value before encoding).
pub(crate) fn params_of(
    message: &Draft,
    annotated: &[Annotated],
) -> Result<Vec<(String, String)>, RpcError> {
    let arguments = arguments(message);
    let exact = |annotation: &Annotated| match number_at(annotation, arguments) {
        Some(token) => agree::exact_integer(token).is_some(),
        None => true,
    };
    let integers = annotated.iter().filter(|a| a.kind == agree::ValueKind::Int);
    if let Some(wrong) = integers.into_iter().find(|annotation| !exact(annotation)) {
        let path = wrong.path.join(".");
        return Err(invalid(&format!(
            "params.arguments.{path} is not an integer within 2^53 - 1"
        )));
    }
    let header = |(name, value): (String, String)| {
        let suffix = name.strip_prefix("Mcp-Param-")?.to_owned();
        Some((suffix, agree::decode_value(value.as_bytes()).ok()?))
    };
    Ok(agree::synthesise(annotated, arguments)
        .into_iter()
        .filter_map(header)
        .collect())
}

fn arguments(message: &Draft) -> Option<&[u8]> {
    let frame = message.frame();
    frame.arguments().map(|span| frame.text(span))
}

/// The number that an annotated argument is, if it is one.
fn number_at<'a>(annotation: &Annotated, arguments: Option<&'a [u8]>) -> Option<&'a [u8]> {
    let token = annotation
        .path
        .iter()
        .try_fold(arguments?, |object, key| json::member(object, key))?;
    token
        .first()
        .is_some_and(|byte| matches!(byte, b'-' | b'0'..=b'9'))
        .then_some(token)
}

/// The request to the upstream.
pub(crate) fn outbound(
    router: &Router,
    call: &Call,
    selected: Selected,
    profile: Option<&Profile>,
) -> Outbound {
    let mirrored = matches!(
        call.method,
        Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead
    );
    let inlet = call
        .inlet
        .as_ref()
        .map(|inlet| Arc::new(Arrivals::new(router, call, Arc::clone(inlet))) as Arc<dyn Inlet>);
    Outbound {
        tenant: call.plan.tenant.clone(),
        upstream: selected.upstream,
        sharing: sharing(call),
        era: call.revision.era(),
        method: call.method,
        message: selected.message,
        name: mirrored.then_some(selected.original),
        param_headers: Vec::new(),
        capabilities: class(router, call, profile),
        log_level: call.log_level.or_else(|| unset_level(call, profile)),
        progress: call.progress,
        deadline: call.deadline,
        record: call.record.clone(),
        inlet,
        continues: call.continues.clone(),
    }
}

/// What is heard of an upstream before the client has set a level: warnings where both have levels
/// by session, nothing across eras or where every request names its own (LOG-01, AMB-34).
fn unset_level(call: &Call, profile: Option<&Profile>) -> Option<LogLevel> {
    let by_session = |revision: Revision| !revision.is_modern();
    let both = by_session(call.revision) && profile.is_some_and(|p| by_session(p.revision));
    both.then_some(LogLevel::Warning)
}

/// Whose session a call uses at its upstream (translation rules, section 4).
pub(crate) fn sharing(call: &Call) -> Sharing {
    match &call.session {
        Some(session) if !call.revision.is_modern() => Sharing::Session(session.clone()),
        Some(_) | None => Sharing::Principal(Arc::from(call.principal.binding())),
    }
}

fn class(router: &Router, call: &Call, profile: Option<&Profile>) -> Arc<Capabilities> {
    let asked = |profile: &&Profile| {
        // a stateless upstream asks on the call's own stream, and this client takes none (HDR-01)
        let crosses = !call.revision.is_modern() && profile.revision.is_modern();
        !crosses || call.rounds.asks
    };
    profile.filter(asked).map_or_else(Arc::default, |profile| {
        router.catalog.class(viewer(call), profile)
    })
}

/// -32020 of an upstream about headers that we made (XMH-06).
pub(crate) fn is_header_mismatch(end: &Final) -> bool {
    match end {
        Final::Message(draft) => {
            let parts = draft.frame().error_parts();
            parts.is_some_and(|parts| parts.code == Some(code::HEADER_MISMATCH))
        }
        Final::Error(error) => error.code == code::HEADER_MISMATCH,
        Final::View(_) | Final::List(_) | Final::Empty | Final::Wanted(_) | Final::Cancelled => {
            false
        }
    }
}

/// A JSON string token.
pub(crate) fn token(text: &str) -> Bytes {
    Bytes::from(json::quote(text))
}
