//! One SSE stream with its history: written by one task, read by whoever holds the connection.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::watch;

use super::body::{Broken, Feed};
use super::session::locked;

/// What clients are told to wait before they resume.
const RETRY_MS: u64 = 100;

/// A stream of events.
#[derive(Debug)]
pub(super) struct Stream {
    /// The first part of its event ids; none: it has no ids and cannot be resumed.
    name: Option<String>,
    events: Mutex<Vec<Bytes>>,
    state: watch::Sender<State>,
    readers: AtomicU64,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    events: usize,
    over: bool,
    /// The newest reader; the one before is closed.
    reader: u64,
    connected: bool,
}

impl Stream {
    pub(super) fn new(name: Option<String>) -> Self {
        Self {
            name,
            events: Mutex::default(),
            state: watch::Sender::default(),
            readers: AtomicU64::new(0),
        }
    }

    /// The first part of its event ids.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Adds a message.
    pub(super) fn push(&self, message: &str) {
        let mut events = locked(&self.events);
        let number = events.len() + 1;
        let id = self
            .name
            .as_ref()
            .map(|name| format!("id: {name}:{number}\n"));
        let id = id.unwrap_or_default();
        events.push(Bytes::from(format!("{id}data: {message}\n\n")));
        let count = events.len();
        self.state.send_modify(|state| state.events = count);
    }

    /// Nothing comes any more.
    pub(super) fn finish(&self) {
        self.state.send_modify(|state| state.over = true);
    }

    /// Whether somebody reads it now.
    pub(super) fn is_connected(&self) -> bool {
        self.state.borrow().connected
    }

    /// Feeds a connection behind event `after`. It is ended after `most` events, in good order or
    /// not, as the number of connections so far decides.
    pub(super) async fn feed(&self, feed: Feed, after: usize, most: Option<usize>) {
        let reader = self.readers.fetch_add(1, Ordering::Relaxed) + 1;
        self.state.send_modify(|state| {
            state.reader = reader;
            state.connected = true;
        });
        let cut = self.pass_on(&feed, after, most, reader).await;
        self.state.send_if_modified(|state| {
            let newest = state.reader == reader;
            state.connected = state.connected && !newest;
            newest
        });
        if cut && reader.is_multiple_of(2) {
            // the connection may be gone already
            let _gone = feed.send(Err(Broken)).await;
        }
    }

    /// True when the limit ended it.
    async fn pass_on(&self, feed: &Feed, after: usize, most: Option<usize>, reader: u64) -> bool {
        let mut state = self.state.subscribe();
        if feed.send(Ok(self.greeting(after))).await.is_err() {
            return false;
        }
        let mut cursor = after;
        loop {
            let State {
                over,
                reader: newest,
                ..
            } = *state.borrow_and_update();
            let next = locked(&self.events).get(cursor).cloned();
            if newest != reader {
                return false;
            }
            if let Some(event) = next {
                if most.is_some_and(|most| cursor - after >= most) {
                    return true;
                }
                cursor += 1;
                if feed.send(Ok(event)).await.is_err() {
                    return false;
                }
                continue;
            }
            if over {
                return false;
            }
            tokio::select! {
                changed = state.changed() => if changed.is_err() { return false },
                () = feed.closed() => return false,
            }
        }
    }

    /// The priming event of a stream that can be resumed; else a comment, so that the head goes out.
    fn greeting(&self, after: usize) -> Bytes {
        match &self.name {
            Some(name) => Bytes::from(format!("id: {name}:{after}\nretry: {RETRY_MS}\ndata:\n\n")),
            None => Bytes::from_static(b": hello\n\n"),
        }
    }
}

/// Name and number of an event id.
pub(super) fn place(id: &str) -> Option<(&str, usize)> {
    let (name, number) = id.rsplit_once(':')?;
    Some((name, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::body::Pieces;
    use super::*;

    async fn read(stream: &Stream, after: usize, most: Option<usize>) -> (String, bool) {
        let (feed, pieces) = Pieces::fed();
        let Pieces::Fed(mut pieces) = pieces else {
            unreachable!("it is fed")
        };
        let reading = async {
            let (mut text, mut broken) = (String::new(), false);
            while let Some(piece) = pieces.recv().await {
                match piece {
                    Ok(piece) => text.push_str(std::str::from_utf8(&piece).unwrap()),
                    Err(Broken) => broken = true,
                }
            }
            (text, broken)
        };
        tokio::join!(stream.feed(feed, after, most), reading).1
    }

    #[tokio::test]
    async fn a_stream_is_cut_and_goes_on_behind_the_id_given() {
        let stream = Stream::new(Some("s".to_owned()));
        for message in ["a", "b", "c"] {
            stream.push(message);
        }
        stream.finish();
        let (text, broken) = read(&stream, 0, Some(2)).await;
        assert!(!broken && text.contains("data: b") && !text.contains("data: c"));
        let (text, broken) = read(&stream, 1, Some(1)).await;
        assert!(broken && text.contains("data: b") && !text.contains("data: c"));
        let (text, _) = read(&stream, 2, None).await;
        assert_eq!(text, "id: s:2\nretry: 100\ndata:\n\nid: s:3\ndata: c\n\n");
        assert_eq!(place("a:b:7"), Some(("a:b", 7)));
        assert_eq!(place("a:b"), None);
    }
}
