//! Whether a request belongs to a live session of its caller: first what the id proves by itself,
//! then the store (EL-29). Everything that is not is 404, whatever the reason (STA-06, case 109).

use std::sync::Arc;
use std::time::Duration;

use vestibule_store::{SessionKey, StoreError, Stored};
use vestibule_terms::{Principal, Reject, SessionId};

use super::live::Live;
use crate::classify::ALLOW_MODERN;
use crate::facts::Facts;
use crate::room::Shared;

/// When to come back to a store that is away.
const AWAY: Duration = Duration::from_secs(5);

/// The store cannot take new work.
pub(super) fn unavailable(error: &StoreError) -> Reject {
    tracing::warn!(%error, "the session store does not answer");
    Reject::Unavailable {
        reason: "store",
        retry_after: AWAY,
    }
}

/// The name of the session the request shows, if the id was minted for this caller here.
pub(super) fn proven(shared: &Shared, facts: &Facts) -> Option<SessionKey> {
    let text = facts.head.session.as_deref()?;
    let (tenant, server) = (&facts.plan.tenant, &facts.plan.server);
    let principal = facts.principal.binding();
    shared
        .rooms
        .sealer
        .check_session_id(text, tenant, server, &principal)?;
    Some(SessionKey::new(tenant, &principal, &SessionId::new(text)))
}

/// The session of that id where it is known here as this caller's on this server: who has shown
/// once that the id is his need not show it again, which saves a MAC a revision.
fn known(shared: &Shared, facts: &Facts) -> Option<Arc<Live>> {
    let name = vestibule_exchange::SessionKey {
        tenant: facts.plan.tenant.clone(),
        session: SessionId::new(facts.head.session.as_deref()?),
    };
    let live = Arc::clone(&*shared.lives.get(&name)?);
    let is_his = live.user().is_same_caller(&facts.principal);
    let is_here = *live.server() == facts.plan.server && live.line.is_none();
    (is_his && is_here).then_some(live)
}

/// The request's session, counted as used.
pub(super) async fn session(shared: &Arc<Shared>, facts: &Facts) -> Result<Arc<Live>, Reject> {
    let known = known(shared, facts);
    let key = match &known {
        Some(live) => Some(live.key.clone()),
        None => proven(shared, facts),
    };
    let Some(key) = key else {
        return Err(Reject::SessionNotFound);
    };
    let stored = shared
        .rooms
        .sessions
        .touch(&key)
        .await
        .map_err(|error| unavailable(&error))?;
    let Some(stored) = stored else {
        return Err(Reject::SessionNotFound);
    };
    let negotiated = stored.opening.revision;
    if facts
        .head
        .version
        .as_deref()
        .is_some_and(|stated| stated != negotiated.as_str())
    {
        tracing::debug!(%negotiated, "the version header differs from the session's"); // VER-07
    }
    Ok(entered(shared, facts, stored, known).await)
}

/// A request enters its session: what this process holds of it, as the store has it now.
pub(super) async fn entered(
    shared: &Arc<Shared>,
    facts: &Facts,
    stored: Stored,
    known: Option<Arc<Live>>,
) -> Arc<Live> {
    facts.record.set_revision(stored.opening.revision);
    let (version, state) = (stored.version, Arc::clone(&stored.state));
    let live = known.unwrap_or_else(|| attach(shared, stored, &facts.principal));
    live.used_by(&facts.principal);
    live.renewed(shared, version, &state).await;
    live
}

/// As [`session`] for GET and DELETE, where a stateless client with a stale id is told that there
/// is nothing here for it (STA-18).
pub(super) async fn session_or_405(
    shared: &Arc<Shared>,
    facts: &Facts,
) -> Result<Arc<Live>, Reject> {
    let found = session(shared, facts).await;
    let modern = facts
        .head
        .version
        .as_deref()
        .and_then(vestibule_terms::Revision::parse)
        .is_some_and(vestibule_terms::Revision::is_modern);
    match found {
        Err(Reject::SessionNotFound) if modern => Err(Reject::MethodNotAllowed {
            allow: ALLOW_MODERN,
        }),
        other => other,
    }
}

/// What this process holds of a session, made when it is first seen here.
pub(super) fn attach(shared: &Arc<Shared>, stored: Stored, user: &Arc<Principal>) -> Arc<Live> {
    let name = Live::name_of(&stored.key);
    if let Some(live) = shared.lives.get(&name) {
        return Arc::clone(&live);
    }
    let live = shared
        .lives
        .entry(name)
        .or_insert_with(|| Live::new(shared, &stored, user));
    Arc::clone(&live)
}
