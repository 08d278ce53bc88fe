//! One turn of a call to a legacy process: a line out, and what comes back over the one channel.

use std::sync::Arc;

use vestibule_exchange::Outbound;

use crate::clock::CallClock;
use crate::compose;
use crate::fault::Fault;
use crate::legacy::Turn;
use crate::legacy::in_call::InCall;
use crate::legacy::live::Live;
use crate::link::Link;
use crate::running::Sink;
use crate::stdio::process::Process;

/// Makes the call once.
pub(crate) async fn turn(
    link: &Arc<Link>,
    live: &Live,
    process: &Arc<Process>,
    outbound: &Outbound,
    clock: &mut CallClock,
    sink: &Sink,
) -> Result<Turn, Fault> {
    let id = link.ids().call();
    let payload = compose::legacy(outbound, &id).chunks();
    let mut call = InCall::open(live, outbound, id, sink, link.background());
    if let Err(fault) = clock.bound(process.write(&payload)).await? {
        call.not_running();
        // a process that has exited: nothing was written, so the next one may get the call
        return if fault.is_down() {
            Ok(Turn::SessionGone)
        } else {
            Err(fault)
        };
    }
    loop {
        let next = clock.bound(call.next()).await;
        match next {
            Err(Fault::Timeout) if call.is_waiting_for_client() && !clock.is_over() => {
                clock.touch()
            }
            Err(fault) => return Err(fault),
            Ok(next) => {
                clock.touch();
                if let Some(end) = call.take(next).await? {
                    return Ok(Turn::End(Box::new(end)));
                }
            }
        }
    }
}
