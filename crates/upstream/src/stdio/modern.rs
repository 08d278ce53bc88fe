//! Calls to a stateless process: one process for everybody, any number of calls at once (STD-09).

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use vestibule_exchange::Outbound;
use vestibule_frame::Frame;
use vestibule_terms::{Method, Revision};

use crate::calls::{Next, Word};
use crate::carrier::{CancelGuard, Carrier};
use crate::clock::CallClock;
use crate::compose;
use crate::ear::Ear;
use crate::fault::Fault;
use crate::flight::Flight;
use crate::link::Link;
use crate::modern::{self, Turn};
use crate::running::Sink;
use crate::stdio::hear::Mode;
use crate::stdio::open::StdioSide;
use crate::stdio::process::Process;

/// The process that all calls share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    current: ArcSwapOption<Process>,
    starting: Flight<Result<Arc<Process>, Fault>>,
}

impl Shared {
    /// Takes a process that has been started already.
    pub(crate) fn adopt(&self, process: Arc<Process>) {
        self.current.store(Some(process));
    }

    /// Gives the process up; it ends when the calls that use it have ended.
    pub(crate) fn leave(&self) {
        self.current.store(None);
    }

    /// Ends the process.
    pub(crate) fn stop(&self) {
        if let Some(process) = self.current.swap(None) {
            process.stop();
        }
    }

    fn alive(&self) -> Option<Arc<Process>> {
        self.current
            .load_full()
            .filter(|process| !process.has_exited())
    }
}

/// The process, started anew when it has ended (STD-06).
async fn process(link: &Arc<Link>, side: &StdioSide) -> Result<Arc<Process>, Fault> {
    if let Some(process) = side.shared.alive() {
        return Ok(process);
    }
    let handle = link.background().handle().clone();
    let link = Arc::clone(link);
    let starting = side
        .shared
        .starting
        .run(&handle, move || async move { restart(&link).await });
    starting.await.unwrap_or(Err(Fault::Broken))
}

async fn restart(link: &Link) -> Result<Arc<Process>, Fault> {
    let Some(side) = link.stdio() else {
        return Err(Fault::Retired);
    };
    if let Some(process) = side.shared.alive() {
        return Ok(process);
    }
    let process = side.start(link).await?;
    process.set_mode(Mode::Modern);
    side.shared.adopt(Arc::clone(&process));
    if link.is_over() {
        side.shared.stop();
        return Err(Fault::Retired);
    }
    Ok(process)
}

/// Makes the call; a call that was not written goes to the next process, once.
pub(crate) async fn call(
    link: &Arc<Link>,
    side: &StdioSide,
    outbound: &Outbound,
    clock: &mut CallClock,
    sink: &Sink,
) -> Result<Turn, Fault> {
    let process_now = clock.bound(process(link, side)).await??;
    match turn(link, &process_now, outbound, clock, sink).await {
        Err(Fault::NotSent(_)) => {
            let next = clock.bound(process(link, side)).await??;
            turn(link, &next, outbound, clock, sink).await
        }
        ended => ended,
    }
}

async fn turn(
    link: &Arc<Link>,
    process: &Process,
    outbound: &Outbound,
    clock: &mut CallClock,
    sink: &Sink,
) -> Result<Turn, Fault> {
    let id = link.ids().call();
    let revision = Revision::NEWEST_MODERN;
    let payload = compose::modern(outbound, &id, revision, link.client_info()).chunks();
    let mut ear = Ear::new(outbound, &id);
    let mut ticket = process.calls().open(&id, outbound.method);
    let carrier: Arc<dyn Carrier> = Arc::new(process.pipe().clone());
    let mut guard = CancelGuard::new(&id, carrier, link.background());
    if let Err(fault) = clock.bound(process.write(&payload)).await? {
        guard.disarm();
        return Err(fault);
    }
    loop {
        let next = clock.bound(ticket.next()).await?;
        clock.touch();
        match next {
            Next::Word(Word::Note(method, frame)) => {
                if let Some(event) = ear.notification(method, frame) {
                    sink.send(event).await;
                }
            }
            Next::Word(Word::Question(_) | Word::Withdrawn(_)) => {} // never sent by a stateless one
            Next::Answer(Ok(frame)) => {
                guard.disarm();
                return modern::settle(frame);
            }
            Next::Answer(Err(fault)) => return Err(fault),
        }
    }
}

/// Asks the process what it is.
pub(crate) async fn discover(link: &Arc<Link>, side: &StdioSide) -> Result<Frame, Fault> {
    let process = process(link, side).await?;
    let id = link.ids().call();
    let (_, message) = compose::discover(&id, Revision::NEWEST_MODERN, link.client_info());
    let mut ticket = process.calls().open(&id, Method::ServerDiscover);
    process.write(&[message]).await?;
    loop {
        if let Next::Answer(answer) = ticket.next().await {
            return answer;
        }
    }
}
