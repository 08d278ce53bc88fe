//! `run`: numbered events, perhaps a question, then the result.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::ledger::DiskFailed;
use super::message::{self, Arguments};
use super::serve::House;
use super::session::locked;
use super::stream::Stream;
use crate::history::{Entry, Kind, now};

/// How long a question waits for its answer. Longer than clients wait for anything.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// One call that runs.
pub(super) struct Run {
    pub(super) house: Arc<House>,
    pub(super) kind: Kind,
    pub(super) canary: String,
    pub(super) stream: Arc<Stream>,
    pub(super) id: Value,
    pub(super) token: Value,
    pub(super) arguments: Arguments,
}

impl Run {
    /// Sends everything, each piece when it is on disk.
    pub(super) async fn run(self) {
        // a ledger that cannot be written ends the call without an answer, and so the whole run
        let _failed = self.events().await;
        self.stream.finish();
    }

    async fn events(&self) -> Result<(), DiskFailed> {
        let Arguments { events, gap_ms, .. } = self.arguments;
        let key = &self.arguments.key;
        for number in 1..=events {
            if number > 1 {
                sleep(Duration::from_millis(gap_ms)).await;
            }
            if self.kind == Kind::Asking && number == events.div_ceil(2) {
                self.ask().await?;
            }
            let entry = Entry::Emitted {
                at: now(),
                key: key.clone(),
                number,
            };
            self.house.ledger.enter(&entry).await?;
            let text = format!("{} {key} {number}", self.canary);
            self.stream
                .push(&message::progress(&self.token, number, &text));
        }
        let entry = Entry::Ended {
            at: now(),
            key: key.clone(),
        };
        self.house.ledger.enter(&entry).await?;
        let text = format!("{} {key} end", self.canary);
        self.stream.push(&message::text(&self.id, &text));
        Ok(())
    }

    /// Asks the client, and waits for its first answer.
    async fn ask(&self) -> Result<(), DiskFailed> {
        let key = &self.arguments.key;
        let question = format!("q-{key}");
        let (answered, answer) = oneshot::channel();
        locked(&self.house.questions).insert(question.clone(), answered);
        let entry = Entry::Asked {
            at: now(),
            key: key.clone(),
            question: question.clone(),
        };
        self.house.ledger.enter(&entry).await?;
        let text = format!("{} {key} {question}", self.canary);
        self.stream.push(&message::question(&question, &text));
        // without an answer it goes on: what did not come is seen in the ledger
        let _unanswered = timeout(ANSWER_WITHIN, answer).await;
        Ok(())
    }
}
