//! Commands on their way: one stream a replica, read by it alone.
//!
//! A command stays in the stream until it is done. What has been handed out and is not done after a
//! while is handed out again: its effect, or its acknowledgement, failed.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::Reply;
use crate::{Command, ReplicaId, Token};

/// So long nobody hears of a command that was handed out.
const AGAIN: Duration = Duration::from_secs(2);

/// What this process has read and handed out.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    read: VecDeque<Command>,
    handed_out: HashMap<Bytes, Instant>,
}

impl Inbox {
    /// The oldest that was read.
    pub(super) fn next(&mut self, now: Instant) -> Option<Command> {
        let command = self.read.pop_front()?;
        self.handed_out.insert(command.token.id.clone(), now);
        Some(command)
    }

    /// Takes what is in the stream now; what is not there any more is done.
    pub(super) fn fill(&mut self, found: Vec<Command>, now: Instant) {
        self.read.clear();
        let mut handed_out = std::mem::take(&mut self.handed_out);
        for command in found {
            let since = handed_out.remove(&command.token.id);
            match since.filter(|since| now.duration_since(*since) < AGAIN) {
                Some(since) => {
                    self.handed_out.insert(command.token.id, since);
                }
                None => self.read.push_back(command),
            }
        }
    }
}

/// What `XRANGE` answered.
pub(super) fn commands(inbox: &ReplicaId, found: &Reply) -> Vec<Command> {
    let entry = |entry: &Reply| {
        let [id, fields] = entry.list() else {
            return None;
        };
        let token = Token {
            inbox: inbox.clone(),
            id: id.bytes()?.clone(),
        };
        let bytes = fields.list().get(1)?.bytes()?.clone();
        Some(Command { bytes, token })
    };
    found.list().iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(id: &'static str) -> Command {
        Command {
            bytes: Bytes::from_static(b"do"),
            token: Token {
                inbox: ReplicaId::new("somebody").unwrap(),
                id: Bytes::from_static(id.as_bytes()),
            },
        }
    }

    fn taken(inbox: &mut Inbox, now: Instant) -> Vec<Bytes> {
        let all = std::iter::from_fn(|| inbox.next(now));
        all.map(|command| command.token.id).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_done_comes_again_and_what_is_done_does_not() {
        let mut inbox = Inbox::default();
        let start = Instant::now();
        inbox.fill(vec![command("1"), command("2")], start);
        assert_eq!(taken(&mut inbox, start), ["1", "2"]);
        inbox.fill(vec![command("1"), command("2"), command("3")], start);
        assert_eq!(taken(&mut inbox, start), ["3"]);
        let later = start + AGAIN;
        inbox.fill(vec![command("2"), command("3")], later);
        assert_eq!(taken(&mut inbox, later), ["2", "3"]);
        inbox.fill(vec![], later);
        assert!(inbox.handed_out.is_empty());
    }
}
