//! Sessions: what runs in each, and its GET streams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::stream::Stream;

/// GET streams of one session whose history is kept.
const STREAMS: usize = 64;

/// One session.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) tenant: String,
    /// Told when a call is cancelled, by the request's id.
    pub(super) running: Mutex<HashMap<String, Arc<Notify>>>,
    /// Its GET streams, the newest last.
    streams: Mutex<Vec<(String, Arc<Stream>)>>,
}

impl Session {
    pub(super) fn of(tenant: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            ..Self::default()
        }
    }

    /// Ends a call.
    pub(super) fn cancel(&self, request: &str) {
        if let Some(running) = locked(&self.running).get(request) {
            running.notify_one();
        }
    }

    /// A new GET stream.
    pub(super) fn open_stream(&self, name: &str) -> Arc<Stream> {
        let stream = Arc::new(Stream::new(Some(name.to_owned())));
        let mut streams = locked(&self.streams);
        streams.push((name.to_owned(), Arc::clone(&stream)));
        if streams.len() > STREAMS {
            streams.remove(0);
        }
        stream
    }

    /// A GET stream of before.
    pub(super) fn stream(&self, name: &str) -> Option<Arc<Stream>> {
        let streams = locked(&self.streams);
        let found = streams.iter().find(|(known, _)| known == name);
        found.map(|(_, stream)| Arc::clone(stream))
    }

    /// The one stream that a message goes to: the newest that somebody reads, else the newest.
    pub(super) fn newest_stream(&self) -> Option<Arc<Stream>> {
        let streams = locked(&self.streams);
        let read = streams
            .iter()
            .rev()
            .find(|(_, stream)| stream.is_connected());
        let newest = read.or(streams.last());
        newest.map(|(_, stream)| Arc::clone(stream))
    }
}

/// A lock whose holders do nothing that could panic halfway.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
