//! Answers to questions and cancellations of calls, through whichever replica takes them. They are no
//! requests: each is posted until it was taken.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::session::Session;
use super::world::World;
use crate::history::{AnswerRecord, CancelRecord, now};

/// A user takes a moment.
const THINKS: Duration = Duration::from_millis(30);
const PAUSE: Duration = Duration::from_millis(100);
const GIVES_UP_AFTER: Duration = Duration::from_secs(60);

/// Answers a question in the background.
pub(super) fn answer(world: &Arc<World>, session: &Session, question: &str, id: Value) {
    let (world, session) = (Arc::clone(world), session.clone());
    let question = question.to_owned();
    tokio::spawn(async move {
        let content = format!("answer to {question} of session {}", session.number);
        let result = json!({ "action": "accept", "content": { "text": content } });
        let message = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        sleep(THINKS).await;
        let taken = post(&world, &session, &message).await;
        world.write(|records| {
            records.answers.push(AnswerRecord {
                question,
                session: session.number,
                id: message["id"].as_u64().unwrap_or_default(),
                content,
                taken,
            });
        });
    });
}

/// Cancels a call in the background.
pub(super) fn cancel(world: &Arc<World>, session: &Session, key: &str, request: u64) {
    let (world, session) = (Arc::clone(world), session.clone());
    let key = key.to_owned();
    tokio::spawn(async move {
        let params = json!({ "requestId": request, "reason": "enough" });
        let message = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params,
        });
        if let Some(taken) = post(&world, &session, &message).await {
            world.write(|records| records.cancels.push(CancelRecord { key, taken }));
        }
    });
}

async fn post(world: &World, session: &Session, message: &Value) -> Option<u64> {
    let until = Instant::now() + GIVES_UP_AFTER;
    while Instant::now() < until {
        let mut taker = None;
        match session.post(world, message, &mut taker).await {
            Ok(opened) if opened.status == 202 => return Some(now()),
            Ok(opened) if (400..429).contains(&opened.status) => return None,
            Ok(_) | Err(_) => sleep(PAUSE).await,
        }
    }
    None
}
