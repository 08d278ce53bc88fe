//! The tools. Those that take long or ask something answer with a stream, the others at once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::session::{Running, Session, lock};
use super::{Notes, describe};
use crate::http::Events;
use crate::rpc::{self, Params, RpcError};

/// `note_export` takes this many steps, each this long.
const STEPS: u32 = 5;
const STEP: Duration = Duration::from_millis(200);

/// Whether the tool of this call answers with a stream.
pub(super) fn streams(params: &Params) -> bool {
    let name = params.get("name").and_then(Value::as_str);
    matches!(name, Some("note_clear" | "note_export"))
}

/// A call that answers with a stream.
pub(super) struct Streamed {
    pub(super) notes: Arc<Notes>,
    pub(super) session: Arc<Session>,
    pub(super) events: Events,
    pub(super) id: Value,
    pub(super) params: Params,
}

impl Streamed {
    /// Runs the tool and sends its answer, unless the client cancels before: then there is none.
    /// A client that only loses the connection has not cancelled.
    pub(super) async fn run(self, running: Running) {
        let result = tokio::select! {
            result = self.result() => result,
            () = running.cancelled() => return,
        };
        drop(running);
        self.events.send(&rpc::answer(&self.id, &Ok(result))).await;
    }

    async fn result(&self) -> Value {
        if self.params.get("name") == Some(&json!("note_clear")) {
            self.clear().await
        } else {
            self.export().await
        }
    }

    async fn clear(&self) -> Value {
        if !rpc::can_show_forms(&self.session.capabilities) {
            return rpc::tool_error("this client cannot ask its user, so nothing is removed");
        }
        let count = lock(&self.notes.store).all().count();
        let form = describe::confirmation(count);
        let answer = self
            .session
            .ask(&self.events, "elicitation/create", &form)
            .await;
        let Some(Ok(answer)) = answer else {
            return rpc::tool_error("the user was not asked, so nothing is removed");
        };
        let accepted = answer.get("action") == Some(&json!("accept"));
        if !accepted || answer.pointer("/content/confirm") != Some(&json!(true)) {
            return rpc::tool_text("The user keeps the notes.");
        }
        let removed = lock(&self.notes.store).clear();
        self.notes.list_changed();
        rpc::tool_text(format!("Removed {removed} notes."))
    }

    async fn export(&self) -> Value {
        let token = self
            .params
            .get("_meta")
            .and_then(|meta| meta.get("progressToken"));
        self.log("info", "exporting all notes").await;
        for step in 1..=STEPS {
            tokio::time::sleep(STEP).await;
            if let Some(token) = token {
                let progress = json!({
                    "progressToken": token,
                    "progress": step,
                    "total": STEPS,
                    "message": format!("step {step} of {STEPS}"),
                });
                let message = rpc::notification("notifications/progress", &progress);
                self.events.send(&message).await;
            }
        }
        let notes: Vec<String> = lock(&self.notes.store)
            .all()
            .map(|(_, note)| format!("# {}\n\n{}\n", note.title, note.text))
            .collect();
        rpc::tool_text(notes.join("\n"))
    }

    async fn log(&self, level: &str, text: &str) {
        if self.session.wants(level) {
            let log = json!({ "level": level, "logger": "notes", "data": text });
            let message = rpc::notification("notifications/message", &log);
            self.events.send(&message).await;
        }
    }
}

/// A call that is answered at once.
pub(super) fn call(notes: &Notes, params: &Params) -> Result<Value, RpcError> {
    let arguments = rpc::object(params, "arguments")?;
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str);
    match rpc::text(params, "name")? {
        "note_add" => Ok(match (argument("title"), argument("text")) {
            (Some(title), Some(text)) => add(notes, title, text),
            _ => rpc::tool_error("`title` and `text` must be strings"),
        }),
        "note_edit" => Ok(match (argument("uri"), argument("text")) {
            (Some(uri), Some(text)) => edit(notes, uri, text),
            _ => rpc::tool_error("`uri` and `text` must be strings"),
        }),
        "note_list" => Ok(list(notes)),
        other => Err(RpcError::invalid_params(format!("unknown tool: {other}"))),
    }
}

fn add(notes: &Notes, title: &str, text: &str) -> Value {
    let added = lock(&notes.store).add(title, text);
    match added {
        Ok(uri) => {
            notes.list_changed();
            let structured = json!({ "uri": uri });
            let mut result = rpc::tool_text(structured.to_string());
            result["structuredContent"] = structured;
            result
        }
        Err(why) => rpc::tool_error(why),
    }
}

fn edit(notes: &Notes, uri: &str, text: &str) -> Value {
    let edited = lock(&notes.store).edit(uri, text);
    match edited {
        Ok(()) => {
            notes.updated(uri);
            rpc::tool_text("Changed.")
        }
        Err(why) => rpc::tool_error(why),
    }
}

fn list(notes: &Notes) -> Value {
    let lines: Vec<String> = lock(&notes.store)
        .all()
        .map(|(uri, note)| format!("{uri} {}", note.title))
        .collect();
    if lines.is_empty() {
        return rpc::tool_text("There are no notes.");
    }
    rpc::tool_text(lines.join("\n"))
}
