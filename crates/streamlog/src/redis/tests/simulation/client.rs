//! A client that comes back with the last id it has dispatched.

use super::*;

/// What one client knows of one stream.
pub(super) struct Client {
    pub(super) stream: StreamRef,
    /// Its connection, and to which replica of all there ever were.
    pub(super) reader: Option<(usize, Reader)>,
    /// Ids and payloads it has dispatched; the first is the beginning of the stream.
    pub(super) had: Vec<(EventId, Bytes)>,
    pub(super) told_of_loss: bool,
    pub(super) done: bool,
}

impl Client {
    pub(super) fn new(opened: &Opened, reader: (usize, Reader)) -> Self {
        let beginning = opened.priming.clone().expect("the store is there");
        Self {
            stream: opened.stream.clone(),
            reader: Some(reader),
            had: vec![(beginning, Bytes::new())],
            told_of_loss: false,
            done: false,
        }
    }

    pub(super) fn payloads(&self) -> Vec<Bytes> {
        let had = self.had.iter().skip(1);
        had.map(|(_, payload)| payload.clone()).collect()
    }

    /// Reads what is there, at most so much; whether a loss was told of a standalone stream.
    pub(super) async fn read(&mut self, count: usize) -> bool {
        let standalone = self.stream.id.is_standalone();
        for _ in 0..count {
            let Some((_, reader)) = &mut self.reader else {
                break;
            };
            let wait = Duration::from_secs(7); // longer than it takes to find what no hint said
            let Ok(next) = timeout(wait, reader.next()).await else {
                break;
            };
            match next.unwrap() {
                Next::Event(entry) => {
                    let id = entry.id.expect("the store is there");
                    self.had.push((id, entry.payload));
                }
                Next::Caught(_) => panic!("the store is there"),
                Next::Gap => {
                    self.told_of_loss = true;
                    self.done |= !standalone;
                }
                Next::Finished => self.done = true,
                Next::Orphaned { .. } => break, // the sweep ends it
                Next::Stopped(stop) => {
                    let expected =
                        matches!(stop, Stop::Evicted | Stop::Forgotten | Stop::Superseded);
                    assert!(expected, "{stop:?}");
                    self.reader = None;
                }
            }
            if self.done {
                self.reader = None;
            }
        }
        standalone && self.told_of_loss
    }

    /// Comes back with the last id that was dispatched.
    pub(super) async fn reconnect(&mut self, at: usize, log: &Arc<dyn StreamLog>) -> bool {
        let standalone = self.stream.id.is_standalone();
        if self.done {
            return false;
        }
        let last = self.had.last().expect("the beginning at least").0.clone();
        let (stream, after) = match log.resume(&mine(), last.as_str()).await.unwrap() {
            Resume::Replay { stream, after } | Resume::Ending { stream, after } => (stream, after),
            Resume::StandaloneGap { stream, after } => {
                self.told_of_loss = true;
                (stream, after)
            }
            Resume::LostPost { .. } | Resume::Unknown => {
                (self.told_of_loss, self.done) = (true, true);
                self.reader = None;
                return false;
            }
            Resume::Finished => {
                self.done = true;
                self.reader = None;
                return false;
            }
            other @ (Resume::Foreign | Resume::NoSession) => panic!("{other:?}"),
        };
        self.reader = Some((at, log.attach(&stream, after).await.unwrap()));
        self.stream = stream;
        standalone && self.told_of_loss
    }
}
