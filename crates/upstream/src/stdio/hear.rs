//! Whom a message of a process is for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use vestibule_frame::{Frame, FrameError, Id, Kind, Limits, Payload, meta};
use vestibule_terms::{Method, UpstreamId};

use crate::calls::{Calls, Word};
use crate::ear;
use crate::fault::Fault;
use crate::legacy::peer::Peer;

/// Lines in a row that are no messages, after which a process is given up (STD-03).
const NOISE_MAX: u32 = 100;

/// How a process is understood.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Its era is being found out: only answers count.
    Opening,
    /// Stateless.
    Modern,
    /// With a session.
    Legacy(Arc<Peer>),
}

/// Reads the messages of one process.
#[derive(Debug)]
pub(crate) struct Hearing {
    pub(crate) upstream: UpstreamId,
    pub(crate) calls: Arc<Calls>,
    pub(crate) mode: Arc<ArcSwap<Mode>>,
    noise: u32,
    complaints: AtomicU64,
}

/// A process that writes anything but messages.
#[derive(Debug)]
pub(crate) struct TooNoisy;

impl Hearing {
    pub(crate) fn new(upstream: UpstreamId, calls: Arc<Calls>, mode: Arc<ArcSwap<Mode>>) -> Self {
        Self {
            upstream,
            calls,
            mode,
            noise: 0,
            complaints: AtomicU64::new(0),
        }
    }

    /// Takes one line: a message, a batch of messages (BAT-09), or noise.
    pub(crate) fn line(&mut self, line: Bytes) -> Result<(), TooNoisy> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        match Payload::parse_upstream(line, &Limits::default()) {
            Ok(payload) => {
                self.noise = 0;
                payload
                    .into_frames()
                    .into_iter()
                    .for_each(|frame| self.frame(frame));
                Ok(())
            }
            Err(error) if error.reason.is_unreadable() => self.noise(),
            Err(error) => {
                self.malformed(error);
                self.noise()
            }
        }
    }

    /// Logged ever more seldom: a process may do it in every line.
    fn complain(&self, what: &'static str) {
        let times = self.complaints.fetch_add(1, Ordering::Relaxed) + 1;
        if times.is_power_of_two() {
            tracing::warn!(upstream.id = %self.upstream, times, "an upstream broke the protocol: {what}");
        }
    }

    fn noise(&mut self) -> Result<(), TooNoisy> {
        self.noise += 1;
        if self.noise == 1 {
            self.complain("a line on stdout that is no message");
        }
        if self.noise < NOISE_MAX {
            Ok(())
        } else {
            Err(TooNoisy)
        }
    }

    /// JSON, but no proper message: the call it names has failed (FRM-09, case 60).
    fn malformed(&self, error: FrameError) {
        self.complain(error.reason.label());
        if let Some(id) = error.id {
            self.calls.answer(&id, Err(Fault::Protocol("malformed")));
        }
    }

    fn frame(&self, frame: Frame) {
        match &**self.mode.load() {
            Mode::Legacy(peer) => peer.hear(frame),
            Mode::Modern => self.modern(frame),
            Mode::Opening => {
                if let (Kind::Response, Some(id)) = (frame.kind(), frame.id()) {
                    self.calls.answer(&id, Ok(frame));
                }
            }
        }
    }

    fn modern(&self, frame: Frame) {
        match frame.kind() {
            Kind::Response => {
                if let Some(id) = frame.id() {
                    self.calls.answer(&id, Ok(frame));
                }
            }
            Kind::Notification => self.notified(frame),
            // FRM-20, STD-12: never answered
            Kind::Request => self.complain("a stateless one sent a request"),
        }
    }

    /// STD-07: by subscription, by progress token, else to the one call there is.
    fn notified(&self, frame: Frame) {
        let Some(method) = frame.method().and_then(|name| Method::parse(&name)) else {
            return;
        };
        if method == Method::Cancelled {
            let span = frame
                .params()
                .and_then(|params| frame.member(params, "requestId"));
            if let Some(id) = span.and_then(|span| Id::from_token(frame.shared(span))) {
                self.calls.answer(&id, Err(Fault::Broken));
            }
            return;
        }
        let subscription = frame.meta_member(meta::SUBSCRIPTION_ID);
        let subscription = subscription
            .and_then(|span| frame.string(span))
            .map(|id| id.into_owned());
        if let Some(call) = subscription.or_else(|| ear::progress_token(&frame)) {
            self.calls.tell(&call, Word::Note(method, frame));
        } else if method == Method::Message
            && let Some(call) = self.calls.only()
        {
            self.calls.tell(&call, Word::Note(method, frame));
        }
    }
}
