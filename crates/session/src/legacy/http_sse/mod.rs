//! Clients of HTTP+SSE, the transport of 2024-11-05, on the same URL (HSE rows).
//!
//! A GET is the client's one stream, and the session lasts as long as that: its first event names
//! the address for POSTs, `?sse=` and an id that proves itself. A POST is answered 202 and its
//! message does what a session's message does anywhere; every response, notification and question
//! goes through the session's log to the stream, so it does not matter which process has it. There
//! are no event ids and there is no resumption.
//!
//! Until `initialize` a session is nothing but that stream and its log. The record is stored when
//! the revision is negotiated, by whoever gets that POST, and counts the stream as open by word of
//! whoever has it: a session whose stream went with its process is known by that.
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use vestibule_store::{SessionKey, Stored};
use vestibule_terms::{Reject, SessionId};

use super::access::{entered, unavailable};
use super::live::Live;
use crate::facts::Facts;
use crate::room::Shared;

pub(crate) use connection::connect;
use connection::finish;
pub(super) use outlet::Outlet;
pub(crate) use post::post;

/// After this time a session's record counts its stream, also as other processes see it.
const COUNTED_BY: Duration = Duration::from_secs(10);

/// What this process knows of a session's stream.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Requests whose response is not in the log yet.
    unanswered: watch::Sender<usize>,
    /// Whether the stream was here and is closed.
    closed: AtomicBool,
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

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
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
    if is_abandoned(shared, &stored) {
        finish(shared, key).await;
        return Err(Reject::SessionNotFound);
    }
    let live = entered(shared, facts, stored, None).await;
    if live.line.as_ref().is_some_and(Line::is_closed) {
        return Err(Reject::SessionNotFound);
    }
    Ok(Some(live))
}

/// Whether the process that had the stream is gone: nobody counts the stream as open, and there was
/// time to.
fn is_abandoned(shared: &Shared, stored: &Stored) -> bool {
    let now = shared.rooms.clock.unix_millis();
    let age = Duration::from_millis(now.saturating_sub(stored.opening.created));
    stored.streams_open == 0 && age >= COUNTED_BY
}
