//! One call to a legacy upstream: the session it needs, made ready, and turns over it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use vestibule_exchange::{Continuation, Final, Outbound, Sharing};
use vestibule_frame::encode;
use vestibule_terms::Method;

use crate::clock::CallClock;
use crate::compose;
use crate::fault::Fault;
use crate::legacy::live::{GetStream, Line, Live};
use crate::legacy::pool::{Lease, no_room};
use crate::legacy::record::Mark;
use crate::legacy::session::SMALL_REQUEST;
use crate::legacy::{Turn, http, pipe, standalone};
use crate::link::Link;
use crate::running::Sink;

/// How long a first call waits to know whether there is a GET stream (GET-06), when the upstream may
/// ask on it and when it may only tell. Some servers send the head with the first event only.
const GET_PATIENCE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(500));

/// Makes the call. None when the upstream turns out not to speak this era.
pub(crate) async fn call(
    link: &Arc<Link>,
    outbound: &Outbound,
    clock: &mut CallClock,
    sink: &Sink,
) -> Result<Option<Final>, Fault> {
    let lease = clock.bound(link.lease(outbound)).await.map_err(no_room)?;
    if let Some(inlet) = &outbound.inlet {
        lease.session.set_inlet(inlet);
    }
    let (mut reopened, mut again) = (false, false);
    loop {
        let live = clock.bound(lease.session.live(link)).await??;
        make_ready(link, &lease, &live, outbound, clock).await?;
        clock.touch();
        let turn = match &live.line {
            Line::Http(line) => http::turn(link, &live, line, outbound, clock, sink).await?,
            Line::Pipe(process) => {
                Box::pin(pipe::turn(link, &live, process, outbound, clock, sink)).await?
            }
        };
        match turn {
            Turn::End(end) => {
                if is_success(&end) {
                    lease.session.succeeded(outbound);
                }
                return Ok(Some(*end));
            }
            Turn::OtherEra => return Ok(None),
            // STA-26: the answer proves that nothing ran, so even a tool call may be sent again
            Turn::SessionGone if !reopened => {
                reopened = true;
                live.end();
            }
            Turn::Again if !again => again = true,
            Turn::SessionGone => return Err(Fault::SessionLost),
            Turn::Again => return Err(Fault::Protocol("http_status")),
        }
    }
}

/// Goes on with what another process began on the same upstream session.
pub(crate) async fn go_on(
    link: &Arc<Link>,
    outbound: &Outbound,
    continuation: &Continuation,
    clock: &mut CallClock,
    sink: &Sink,
) -> Result<Final, Fault> {
    let lease = clock.bound(link.lease(outbound)).await.map_err(no_room)?;
    if let Some(inlet) = &outbound.inlet {
        lease.session.set_inlet(inlet);
    }
    let live = clock.bound(lease.session.attached(link)).await??;
    let Line::Http(line) = &live.line else {
        return Err(Fault::SessionLost);
    };
    match continuation {
        Continuation::Listen { .. } => {
            if may_ask(&lease) || may_tell(&lease, &live) {
                standalone::open(link, &live, line);
            }
            Ok(Final::Empty)
        }
        Continuation::Cancel { mark, .. } => {
            let mark = Mark::read(mark).ok_or(Fault::SessionLost)?;
            let told = live
                .peer
                .carrier()
                .carry(vec![compose::cancelled(&mark.call)]);
            told.await?;
            Ok(Final::Cancelled)
        }
        Continuation::Call { mark, .. } => {
            let mark = Mark::read(mark).ok_or(Fault::SessionLost)?;
            make_ready(link, &lease, &live, outbound, clock).await?;
            http::rest(link, &live, line, (outbound, mark), clock, sink).await
        }
    }
}

fn is_success(end: &Final) -> bool {
    matches!(end, Final::Message(draft) if draft.frame().result().is_some())
}

/// Whether the upstream may ask its client something, so on its GET stream too.
fn may_ask(lease: &Lease) -> bool {
    !lease.session.class().is_empty()
}

/// Whether it may tell something on its GET stream, and somebody wants to know.
fn may_tell(lease: &Lease, live: &Live) -> bool {
    lease.session.has_inlet() && live.speaks_unasked
}

/// Sees to the GET stream and the log level before the call is sent.
async fn make_ready(
    link: &Arc<Link>,
    lease: &Lease,
    live: &Arc<Live>,
    outbound: &Outbound,
    clock: &mut CallClock,
) -> Result<(), Fault> {
    if let Line::Http(line) = &live.line {
        let (asks, tells) = (may_ask(lease), may_tell(lease, live));
        if asks || tells {
            standalone::open(link, live, line);
            let patience = if asks { GET_PATIENCE.0 } else { GET_PATIENCE.1 };
            let mut state = live.get.subscribe();
            let known = state.wait_for(|state| *state != GetStream::Opening);
            // a stream that cannot be opened in time is no reason to refuse the call
            let _unknown = clock.bound(timeout(patience, known)).await?;
        }
    }
    set_level(link, live, outbound, clock).await
}

/// Sets the level that the caller wants, when it differs from the session's. A shared session only
/// becomes more talkative: its calls filter for themselves.
async fn set_level(
    link: &Link,
    live: &Live,
    outbound: &Outbound,
    clock: &mut CallClock,
) -> Result<(), Fault> {
    let Some(wanted) = outbound.log_level else {
        return Ok(());
    };
    if outbound.method == Method::LoggingSetLevel || !live.logs {
        return Ok(());
    }
    let mut level = clock.bound(live.level.lock()).await?;
    let shared = !matches!(outbound.sharing, Sharing::Session(_));
    if level.is_some_and(|set| set == wanted || (shared && set < wanted)) {
        return Ok(());
    }
    let id = link.ids().call();
    let text = vestibule_frame::json::quote(wanted.as_str());
    let params = encode::object(&[("level", text.as_bytes())]);
    // on the heap, like all that is seldom done: it would make every call's future larger
    let asking = Box::pin(live.ask(&id, Method::LoggingSetLevel, &params));
    let asking = timeout(SMALL_REQUEST, asking);
    if !matches!(clock.bound(asking).await?, Ok(Ok(_))) {
        tracing::debug!(upstream.id = %link.upstream(), "the log level could not be set");
    }
    // set or not: it is not tried again before every call
    *level = Some(wanted);
    Ok(())
}
