//! A client listens in this process, but its upstream sessions may have been opened in another, which
//! may be gone: whatever they say outside of calls is listened to here too (GET-06).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use vestibule_exchange::{Call, Continuation, Event, Final};
use vestibule_frame::{Draft, Frame, Id, Limits, encode};
use vestibule_store::Kind;
use vestibule_terms::{Deadline, Method, Record, ServerPlan, UpstreamId};

use super::live::Live;
use crate::room::Shared;
use crate::running::Running;

/// Listens to the upstream sessions that are written down; does not wait. One that is listened to
/// here already is left as it is.
pub(super) fn listen(shared: &Arc<Shared>, live: &Arc<Live>) {
    let (shared, live) = (Arc::clone(shared), Arc::clone(live));
    tokio::spawn(async move {
        let kept = shared
            .rooms
            .sessions
            .all_kept(&live.key, Kind::Upstream)
            .await;
        let kept = match kept {
            Ok(kept) if kept.is_empty() => return,
            Ok(kept) => kept,
            Err(error) => {
                tracing::debug!(%error, "upstream sessions could not be looked up");
                return;
            }
        };
        let Some(plan) = (shared.rooms.plans)(&live.name.tenant, live.server()) else {
            return;
        };
        for (name, _record) in kept {
            if let Ok(upstream) = UpstreamId::new(&name) {
                listen_to(&shared, &live, &plan, upstream).await;
            }
        }
    });
}

/// A replica is dead, and with it the ears it had at upstreams: clients that listen here may lack
/// what was said meanwhile, and somebody has to listen again.
pub(crate) async fn look_again(shared: &Arc<Shared>) {
    let lives: Vec<Arc<Live>> = shared
        .lives
        .iter()
        .filter(|live| live.listening.load(Ordering::Relaxed) > 0)
        .map(|live| Arc::clone(&live))
        .collect();
    for live in lives {
        let sessions = &shared.rooms.sessions;
        let kept = sessions.all_kept(&live.key, Kind::Upstream).await;
        if kept.is_ok_and(|kept| !kept.is_empty()) {
            listen(shared, &live);
            live.look_again(shared).await;
        }
    }
}

async fn listen_to(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    plan: &Arc<ServerPlan>,
    upstream: UpstreamId,
) {
    let Some(message) = message() else { return };
    let deadline = Deadline::starting_now(plan.call_idle, plan.call_idle);
    let call = Call {
        plan: Arc::clone(plan),
        principal: live.user(),
        record: Record::default(),
        revision: live.revision(),
        method: Method::Ping,
        message,
        session: Some(live.name.clone()),
        capabilities: Arc::clone(&live.capabilities),
        log_level: live.level(),
        progress: false,
        param_headers: Arc::new([]),
        deadline,
        inlet: Some(Arc::clone(&live.inlet)),
        continues: Some(Arc::new(Continuation::Listen { upstream })),
    };
    let mut running = Running::new((shared.below)(call), Some(deadline.end));
    while let Some(event) = running.next().await {
        if let Event::Final(Final::Error(error)) = event {
            tracing::debug!(code = error.code, "an upstream session is not listened to");
        }
    }
}

/// What the call is about, for whoever logs it; nothing is sent.
fn message() -> Option<Draft> {
    let text: Bytes = encode::request(&Id::integer(0), Method::Ping.as_str(), None);
    Frame::parse(text, &Limits::default()).ok().map(Draft::new)
}
