//! From the log to a connection: the events of one stream with their ids, and what the client is
//! told when the connection ends before the stream does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::sync::watch;
use vestibule_frame::sse;
use vestibule_metrics::StreamKind;
use vestibule_store::OpenStream;
use vestibule_streamlog::{Entry, LogError, Next, Orphan, Reader, Stop};

use super::get::conservative;
use super::live::Live;
use super::sink::history_lost;
use crate::modern::drained;
use crate::observe;
use crate::room::Shared;
use crate::stream::{Aborted, EventBody, come_back};

/// When to come back to a stream that was closed because something is wrong with it.
const SOON: Duration = Duration::from_secs(1);

/// One connection's reading of one stream.
pub(super) struct Reading {
    shared: Arc<Shared>,
    live: Arc<Live>,
    reader: Reader,
    /// The id tokens of the requests that the stream answers, where they are known.
    requests: Vec<Bytes>,
    ready: VecDeque<Bytes>,
    over: bool,
    draining: watch::Receiver<bool>,
    counted: observe::Stream,
    _open: Option<OpenStream>,
}

impl Reading {
    /// Begins to read; the session is in use as long as the result lives.
    pub(super) async fn begin(
        shared: &Arc<Shared>,
        live: &Arc<Live>,
        reader: Reader,
        kind: StreamKind,
    ) -> Self {
        let open = OpenStream::begin(&shared.rooms.sessions, &live.key).await;
        if reader.stream().id.is_standalone() {
            live.listening.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            counted: shared.observer.stream(&live.name.tenant, kind),
            draining: shared.draining.subscribe(),
            shared: Arc::clone(shared),
            live: Arc::clone(live),
            reader,
            requests: Vec::new(),
            ready: VecDeque::new(),
            over: false,
            _open: open.ok().flatten(),
        }
    }

    /// The requests that the stream answers.
    pub(super) fn answering(mut self, requests: Vec<Bytes>) -> Self {
        self.requests = requests;
        self
    }

    /// Sends these bytes first.
    pub(super) fn first(mut self, event: Option<Bytes>) -> Self {
        self.ready.extend(event);
        self
    }

    /// The body.
    pub(super) fn body(self: Box<Self>) -> EventBody {
        EventBody::new(self.events())
    }

    /// What the body consists of.
    pub(super) fn events(self: Box<Self>) -> impl Stream<Item = Result<Bytes, Aborted>> + Send {
        stream::unfold(self, |mut reading| async move {
            let event = reading.next().await?;
            Some((Ok(event), reading))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            // SSE-03: a client that may not be able to come back gets its answer first
            let stays =
                !self.live.revision().has_priming() && !self.reader.stream().id.is_standalone();
            let next = tokio::select! {
                biased;
                next = self.reader.next() => next,
                () = drained(&mut self.draining), if !stays => {
                    self.close_with(Some(self.shared.spread_retry()));
                    continue;
                }
            };
            self.take(next).await;
        }
    }

    async fn take(&mut self, next: Result<Next, LogError>) {
        match next {
            Ok(Next::Event(entry)) => self.event(&entry),
            Ok(Next::Caught(id)) => {
                // a beginning in the middle: an id, and no message
                let priming = self.live.revision().has_priming();
                self.ready
                    .extend(priming.then(|| sse::priming(id.as_str())));
            }
            Ok(Next::Finished) => self.over = true,
            Ok(Next::Gap) if self.reader.stream().id.is_standalone() => {
                self.live
                    .publish_all(&self.shared, conservative(&self.shared, &self.live).await)
                    .await;
            }
            Ok(Next::Gap) if self.requests.is_empty() => self.close_with(Some(SOON)),
            Ok(Next::Gap) => {
                let errors = self
                    .requests
                    .iter()
                    .map(|id| sse::message(None, &[history_lost(id)]));
                self.ready.extend(errors.collect::<Vec<_>>());
                self.over = true;
            }
            Ok(Next::Orphaned { .. }) if self.shared.endings.stopping() => {
                self.close_with(Some(self.shared.spread_retry()));
            }
            Ok(Next::Orphaned { requests, note }) => self.adopt(requests, note).await,
            Ok(Next::Stopped(stop)) => self.stopped(stop),
            Err(error) => {
                tracing::debug!(%error, "a stream can no longer be read");
                self.over = true;
            }
        }
    }

    fn event(&mut self, entry: &Entry) {
        self.counted.event();
        let id = entry.id.as_ref().map(|id| id.as_str());
        let id = id.filter(|_| self.live.revision().has_event_ids());
        self.ready
            .push_back(sse::message(id, std::slice::from_ref(&entry.payload)));
    }

    /// The task that wrote the stream is gone, perhaps with its process: its requests get the one
    /// answer that is left (EL-14, EL-15).
    async fn adopt(&self, requests: Vec<Bytes>, note: Option<Bytes>) {
        let stream = self.reader.stream().clone();
        let orphan = Orphan {
            stream,
            requests,
            note,
        };
        super::adopt::adopt(&self.shared, orphan).await;
    }

    fn stopped(&mut self, stop: Stop) {
        let stated = match stop {
            Stop::Planned => self.live.paused(self.reader.stream().id),
            Stop::Superseded | Stop::Evicted | Stop::Slow | Stop::Away | Stop::Forgotten => None,
        };
        self.close_with(stated.or(stop.retry()));
    }

    fn close_with(&mut self, retry: Option<Duration>) {
        self.ready.extend(retry.map(come_back));
        self.over = true;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.reader.stream().id.is_standalone() {
            self.live.listening.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
