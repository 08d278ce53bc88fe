//! A client listens in this process, but its upstream sessions may have been opened in another, which
//! may be gone: whatever they say outside of calls is listened to here too (GET-06).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vestibule_exchange::{Call, Continuation, Event, Final};
use vestibule_frame::Id;
use vestibule_store::Kind;
use vestibule_terms::{Deadline, Method, ServerPlan, UpstreamId};

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
                shared.others.look_again();
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

/// A replica is gone, and with it the ears it had at upstreams: clients that listen here may lack
/// what was said meanwhile, and somebody has to listen again. False while it is not known to whom.
pub(crate) async fn look_again(shared: &Arc<Shared>) -> bool {
    let lives: Vec<Arc<Live>> = shared
        .lives
        .iter()
        .filter(|live| live.listening.load(Ordering::Relaxed) > 0)
        .map(|live| Arc::clone(&live))
        .collect();
    let mut all = true;
    for live in lives {
        let sessions = &shared.rooms.sessions;
        match sessions.all_kept(&live.key, Kind::Upstream).await {
            Ok(kept) if kept.is_empty() => {}
            Ok(_) => {
                listen(shared, &live);
                live.look_again(shared).await;
            }
            Err(_away) => all = false,
        }
    }
    all
}

async fn listen_to(
    shared: &Arc<Shared>,
    live: &Arc<Live>,
    plan: &Arc<ServerPlan>,
    upstream: UpstreamId,
) {
    let about = (Method::Ping, &Id::integer(0));
    let deadline = Deadline::starting_now(plan.call_idle, plan.call_idle);
    let call = Call {
        deadline,
        ..live.continuing(plan, &live.user(), about, Continuation::Listen { upstream })
    };
    let mut running = Running::new((shared.below)(call), Some(deadline.end));
    while let Some(event) = running.next().await {
        if let Event::Final(Final::Error(error)) = event {
            tracing::debug!(code = error.code, "an upstream session is not listened to");
        }
    }
}
