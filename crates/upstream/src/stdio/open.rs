//! The first messages to a process: which era it speaks (translation rules 2.3, VER-13), and
//! `initialize`.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};
use vestibule_frame::{Frame, encode};
use vestibule_terms::{Method, Revision};

use crate::calls::{Calls, Next, Ticket};
use crate::carrier::Carrier;
use crate::compose;
use crate::era::Known;
use crate::fault::Fault;
use crate::legacy::handshake::{self, Answered};
use crate::legacy::live::{Line, Live};
use crate::legacy::peer::{Owner, Peer};
use crate::legacy::session::Session;
use crate::link::Link;
use crate::locked;
use crate::probe::{self, Verdict};
use crate::stdio::hear::Mode;
use crate::stdio::modern::Shared;
use crate::stdio::process::Process;

/// Silence after the first byte on stdout, and after the start, that means a legacy server.
const SILENCE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(30));
/// Longest wait for the answer to `initialize`: package runners download first.
const INITIALIZE: Duration = Duration::from_secs(60);
/// Waits between restarts.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// A process that lived this long did not fail at its start.
const SETTLED: Duration = Duration::from_secs(60);

/// What is kept per upstream that is a process.
#[derive(Debug, Default)]
pub(crate) struct StdioSide {
    /// The one process of a stateless upstream.
    pub(crate) shared: Shared,
    restarts: Arc<Mutex<Restarts>>,
    /// A late answer showed that it speaks the stateless era too: it gets more time next time.
    patient: Arc<AtomicBool>,
    /// A process has ended unasked.
    ended: Arc<AtomicBool>,
}

/// When the next process may be started (STD-06).
#[derive(Debug, Default)]
struct Restarts {
    failures: u32,
    not_before: Option<Instant>,
}

impl Restarts {
    fn failed(&mut self, lived: Duration) {
        self.failures = if lived >= SETTLED {
            1
        } else {
            self.failures + 1
        };
        let wait = BACKOFF.0 * 2_u32.saturating_pow(self.failures.min(10) - 1);
        self.not_before = Some(Instant::now() + wait.min(BACKOFF.1));
    }
}

impl StdioSide {
    /// Starts a process, not sooner than the last failure allows.
    pub(crate) async fn start(&self, link: &Link) -> Result<Arc<Process>, Fault> {
        let not_before = locked(&self.restarts).not_before;
        if let Some(not_before) = not_before {
            sleep_until(not_before).await;
        }
        let restarts = Arc::clone(&self.restarts);
        let has_ended = Arc::clone(&self.ended);
        let ended = move |lived| {
            locked(&restarts).failed(lived);
            has_ended.store(true, Ordering::Relaxed);
        };
        let started = Process::start(link.target(), link.background(), ended);
        if started.is_err() {
            locked(&self.restarts).failed(Duration::ZERO);
        }
        link.observe().reached(started.is_ok());
        started
    }

    /// Starts a process and opens a session on it.
    pub(crate) async fn open_session(&self, link: &Link, owner: Owner) -> Result<Live, Fault> {
        let process = self.start(link).await?;
        initialize(link, process, owner, None).await
    }

    /// Finds out the era by asking. The process that was asked is kept for use.
    pub(crate) async fn probe(&self, link: &Arc<Link>) -> Result<Known, Fault> {
        let process = self.start(link).await?;
        let id = link.ids().call();
        let (_, message) = compose::discover(&id, Revision::NEWEST_MODERN, link.client_info());
        let mut ticket = process.calls().open(&id, Method::ServerDiscover);
        process.write(&[message]).await?;
        match self.listen(&process, &mut ticket).await {
            Some(Ok(frame)) => match probe::judge_message(&frame) {
                Verdict::Modern { revision } => self.modern(link, process, &frame, revision),
                Verdict::Legacy { offer, .. } => self.legacy(link, process, offer, None).await,
                Verdict::Fault(fault) => Err(fault),
            },
            // it has exited on a message it does not know: initialize comes first then
            Some(Err(Fault::Broken)) => {
                let process = self.start(link).await?;
                self.legacy(link, process, None, None).await
            }
            Some(Err(fault)) => Err(fault),
            None => self.legacy(link, process, None, Some(ticket)).await,
        }
    }

    /// The answer to the probe, or none when the process stays silent.
    async fn listen(&self, process: &Process, ticket: &mut Ticket) -> Option<Result<Frame, Fault>> {
        let last = process.since() + SILENCE.1;
        let patient = self.patient.load(Ordering::Relaxed);
        let silence = async {
            process.spoke().cancelled().await;
            sleep(if patient { SILENCE.1 } else { SILENCE.0 }).await;
        };
        tokio::select! {
            answer = answer(ticket) => Some(answer),
            () = silence => None,
            () = sleep_until(last) => None,
        }
    }

    /// Whether the era is to be found out again: the last process has ended, and showed before
    /// that it speaks the other one too.
    pub(crate) fn wants_probe(&self) -> bool {
        self.patient.load(Ordering::Relaxed) && self.ended.swap(false, Ordering::Relaxed)
    }

    fn modern(
        &self,
        link: &Link,
        process: Arc<Process>,
        frame: &Frame,
        revision: Revision,
    ) -> Result<Known, Fault> {
        process.set_mode(Mode::Modern);
        self.shared.adopt(process);
        link.observe().reached(true);
        Ok(Known::discovered(frame, revision, false))
    }

    /// Goes on with `initialize` on the same process; a late answer to the probe still counts.
    async fn legacy(
        &self,
        link: &Arc<Link>,
        process: Arc<Process>,
        offer: Option<Revision>,
        late: Option<Ticket>,
    ) -> Result<Known, Fault> {
        let session = link.catalog_session();
        let owner = session.owner(link);
        let Some(mut late) = late else {
            let live = initialize(link, process, owner, offer).await?;
            return Ok(settle(link, &session, live));
        };
        let calls = Arc::clone(&process);
        tokio::select! {
            biased;
            opened = initialize(link, Arc::clone(&process), owner, offer) => {
                let patient = Arc::clone(&self.patient);
                // both answered: it is used as it began, and asked with more patience next time
                link.background().task(async move {
                    if timeout(INITIALIZE, answer(&mut late)).await.is_ok_and(|a| is_modern(&a)) {
                        patient.store(true, Ordering::Relaxed);
                    }
                    drop(calls);
                });
                Ok(settle(link, &session, opened?))
            }
            answer = modern_answer(&mut late) => match answer {
                Ok((frame, revision)) => self.modern(link, process, &frame, revision),
                Err(fault) => Err(fault),
            },
        }
    }
}

fn settle(link: &Link, session: &Session, live: Live) -> Known {
    let known = Known::legacy(Arc::clone(&live.profile), false);
    session.adopt(Arc::new(live), link.background());
    known
}

fn is_modern(answer: &Result<Frame, Fault>) -> bool {
    answer
        .as_ref()
        .is_ok_and(|frame| matches!(probe::judge_message(frame), Verdict::Modern { .. }))
}

/// Waits for a late modern answer; any other answer is no news, so this then never returns.
async fn modern_answer(ticket: &mut Ticket) -> Result<(Frame, Revision), Fault> {
    if let Ok(frame) = answer(ticket).await
        && let Verdict::Modern { revision } = probe::judge_message(&frame)
    {
        return Ok((frame, revision));
    }
    std::future::pending().await
}

async fn answer(ticket: &mut Ticket) -> Result<Frame, Fault> {
    loop {
        if let Next::Answer(answer) = ticket.next().await {
            return answer;
        }
    }
}

/// Opens a session on a process that has just been started.
async fn initialize(
    link: &Link,
    process: Arc<Process>,
    owner: Owner,
    offer: Option<Revision>,
) -> Result<Live, Fault> {
    let opened = timeout(INITIALIZE, negotiate(link, &process, &owner, offer)).await;
    let profile = match opened.unwrap_or(Err(Fault::Timeout)) {
        Ok(profile) => profile,
        Err(fault) => {
            process.stop(); // CAN-02: initialize is never cancelled
            return Err(fault);
        }
    };
    let carrier: Arc<dyn Carrier> = Arc::new(process.pipe().clone());
    let calls: Arc<Calls> = Arc::clone(process.calls());
    let peer = Peer::new(owner, profile.revision, calls, carrier, link.tools());
    let peer = Arc::new(peer);
    process.set_mode(Mode::Legacy(Arc::clone(&peer)));
    let ready = encode::notification(Method::Initialized.as_str(), None);
    process.write(&[ready]).await?;
    link.observe().reached(true);
    Ok(Live::new(peer, Line::Pipe(process), profile))
}

async fn negotiate(
    link: &Link,
    process: &Process,
    owner: &Owner,
    offer: Option<Revision>,
) -> Result<Arc<vestibule_exchange::Profile>, Fault> {
    let mut offered = offer.unwrap_or(Revision::NEWEST_LEGACY);
    for _ in 0..2 {
        let id = link.ids().call();
        let declared = owner.class.encode(offered);
        let message = compose::initialize(&id, offered, &declared, link.client_info());
        let mut ticket = process.calls().open(&id, Method::Initialize);
        process.write(&[message]).await?;
        let frame = answer(&mut ticket).await?;
        match handshake::read(&frame, offered, false) {
            Answered::Opened(profile) => return Ok(profile),
            Answered::Offer(revision) => offered = revision,
            Answered::Failed(fault) => return Err(fault),
        }
    }
    Err(Fault::Incompatible)
}
