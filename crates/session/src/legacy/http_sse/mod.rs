//! Clients of HTTP+SSE, the transport of 2024-11-05, on the same URL (HSE rows).
//!
//! A GET is the client's one stream, and the session lasts as long as that: its first event names
//! the address for POSTs, `?sse=` and an id that proves itself. A POST is answered 202 and its
//! message does what a session's message does anywhere; every response, notification and question
//! goes through the session's log to the stream, so it does not matter which process has it. There
//! are no event ids and there is no resumption.
//!
//! Until `initialize` a session is nothing but that stream and its log. The record is stored when
//! the revision is negotiated, and counts the stream as open: a session whose stream is closed is
//! known by that, here, elsewhere, and after a restart.
//!
//! - `connection`: the GET, and what its end ends.
//! - `post`: messages of a session that is open.
//! - `handshake`: messages of one that is not yet.
//! - `outlet`: where what belongs to a POST goes.

mod connection;
mod handshake;
mod outlet;
mod post;

use std::sync::Arc;

use tokio::sync::watch;
use vestibule_store::{SessionKey, Stored};
use vestibule_terms::{Reject, SessionId};

use super::access::{attach, unavailable};
use super::live::Live;
use crate::facts::Facts;
use crate::room::Shared;

pub(crate) use connection::connect;
pub(super) use outlet::Outlet;
pub(crate) use post::post;

/// What this process knows of a session's stream.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Requests whose response is not in the log yet.
    unanswered: watch::Sender<usize>,
}

impl Line {
    /// The line of that session, if it is one over HTTP+SSE.
    pub(super) fn of(shared: &Shared, stored: &Stored) -> Option<Self> {
        let (key, server) = (&stored.key, &stored.opening.server);
        let sealer = &shared.rooms.sealer;
        sealer
            .check_sse_session_id(key.id().expose(), key.tenant(), server, key.principal())
            .then(Self::default)
    }

    fn accepted(&self, requests: usize) {
        self.unanswered.send_modify(|left| *left += requests);
    }

    fn answered(&self, requests: usize) {
        self.unanswered
            .send_modify(|left| *left = left.saturating_sub(requests));
    }

    /// Resolves when nothing waits for its response.
    async fn quiet(&self) {
        let mut unanswered = self.unanswered.subscribe();
        // an error would say that the sender is gone, which `self` holds
        let _quiet = unanswered.wait_for(|left| *left == 0).await;
    }
}

/// The name of the session of the address, if its id was minted for this caller here (HSE-06).
fn proven(shared: &Shared, facts: &Facts) -> Option<SessionKey> {
    let text = facts.sse_session()?;
    let (tenant, server) = (&facts.plan.tenant, &facts.plan.server);
    let principal = facts.principal.binding();
    shared
        .rooms
        .sealer
        .check_sse_session_id(text, tenant, server, &principal)
        .then(|| SessionKey::new(tenant, &principal, &SessionId::new(text)))
}

/// The session, counted as used; none before its handshake. One whose stream is closed is over,
/// although its calls may still have a moment (HSE-05).
async fn session(
    shared: &Arc<Shared>,
    facts: &Facts,
    key: &SessionKey,
) -> Result<Option<Arc<Live>>, Reject> {
    let touched = shared.rooms.sessions.touch(key).await;
    let Some(stored) = touched.map_err(|error| unavailable(&error))? else {
        return Ok(None);
    };
    if stored.streams_open == 0 {
        return Err(Reject::SessionNotFound);
    }
    facts.record.set_revision(stored.opening.revision);
    let live = attach(shared, stored, &facts.principal);
    live.used_by(&facts.principal);
    Ok(Some(live))
}
