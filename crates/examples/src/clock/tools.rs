//! The clock's tools.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use http::Response;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::check::MISSING_CAPABILITY;
use super::{Call, Clock, complete, now, time, unix_now, whole};
use crate::http::{self as web, Events};
use crate::rpc::{self, Params, RpcError};

/// Longest wait, in seconds.
const MAX_WAIT: u64 = 60;
/// The one question of `remind`.
const QUESTION: &str = "what";

impl Clock {
    pub(super) async fn call_tool(self: Arc<Self>, call: Call) -> Response<Body> {
        let outcome = match self.prepare(&call) {
            Ok(Tool::Done(result)) => Ok(result),
            Ok(Tool::Wait(seconds)) => return self.wait(call, seconds).await,
            Err(error) => Err(error),
        };
        whole(&call.id, &outcome)
    }

    fn prepare(&self, call: &Call) -> Result<Tool, RpcError> {
        let arguments = rpc::object(&call.params, "arguments")?;
        match rpc::text(&call.params, "name")? {
            "convert" => Ok(Tool::Done(complete(convert(&arguments)))),
            "now" => Ok(Tool::Done(complete(tell(&arguments)))),
            "remind" => self.remind(call, &arguments).map(Tool::Done),
            "wait" => match arguments.get("seconds").and_then(Value::as_u64) {
                Some(seconds) if seconds <= MAX_WAIT => Ok(Tool::Wait(seconds)),
                Some(_) | None => {
                    let error = rpc::tool_error("`seconds` must be an integer from 0 to 60");
                    Ok(Tool::Done(complete(error)))
                }
            },
            other => Err(RpcError::invalid_params(format!("unknown tool: {other}"))),
        }
    }

    /// Waits, as a stream where the caller wants to hear of it, else as one late answer. Either
    /// way a caller that closes the connection ends the wait.
    async fn wait(self: Arc<Self>, call: Call, seconds: u64) -> Response<Body> {
        let going_on = GoingOn::new(&self);
        if call.meta.progress_token.is_none() && call.meta.severity.is_none() {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            return whole(&call.id, &Ok(waited(seconds)));
        }
        let (events, response) = web::event_stream(CancellationToken::new());
        tokio::spawn(async move {
            tokio::select! {
                () = count(&events, &call, seconds) => {}
                () = events.closed() => {}
            }
            drop(going_on);
        });
        response
    }

    /// Two rounds: the first answers with a question and a sealed state, the second brings both
    /// back with the user's answer.
    fn remind(&self, call: &Call, arguments: &Params) -> Result<Value, RpcError> {
        let Some(at) = arguments.get("at").and_then(Value::as_str) else {
            return Ok(complete(rpc::tool_error("`at` must be a time, HH:MM")));
        };
        if time::minutes(at).is_none() {
            return Ok(complete(rpc::tool_error("`at` must be a time, HH:MM")));
        }
        let Some(state) = call.params.get("requestState") else {
            return self.ask(call, at);
        };
        let state = state.as_str().unwrap_or_default();
        if !self.seal.holds(state, at, unix_now()) {
            return Err(RpcError::invalid_params("invalid or expired requestState"));
        }
        let answers = rpc::object(&call.params, "inputResponses")?;
        let Some(answer) = answers.get(QUESTION) else {
            return self.ask(call, at);
        };
        let action = answer.get("action").and_then(Value::as_str);
        let what = answer.pointer("/content/text").and_then(Value::as_str);
        let result = match (action, what) {
            (Some("accept"), Some(what)) => rpc::tool_text(format!("At {at}: {what}")),
            (Some("decline" | "cancel"), _) => rpc::tool_text("The user wants no reminder."),
            _ => return Err(RpcError::invalid_params("malformed answer to the question")),
        };
        Ok(complete(result))
    }

    fn ask(&self, call: &Call, at: &str) -> Result<Value, RpcError> {
        if !rpc::can_show_forms(&call.meta.capabilities) {
            let error = RpcError::new(
                MISSING_CAPABILITY,
                "this tool asks the user: the client needs the elicitation capability",
            );
            let required = json!({ "requiredCapabilities": { "elicitation": { "form": {} } } });
            return Err(error.with_data(required));
        }
        let question = json!({
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": format!("What do you want to be reminded of at {at}?"),
                "requestedSchema": {
                    "type": "object",
                    "properties": { "text": { "type": "string", "title": "Reminder" } },
                    "required": ["text"],
                },
            },
        });
        Ok(json!({
            "resultType": "input_required",
            "inputRequests": { QUESTION: question },
            "requestState": self.seal.state(at, unix_now()),
        }))
    }
}

/// What a call of a tool comes to.
enum Tool {
    Done(Value),
    Wait(u64),
}

/// Counts a wait for as long as it lives.
struct GoingOn(Arc<Clock>);

impl GoingOn {
    fn new(clock: &Arc<Clock>) -> Self {
        clock.waiting.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(clock))
    }
}

impl Drop for GoingOn {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn waited(seconds: u64) -> Value {
    complete(rpc::tool_text(format!("waited {seconds} s")))
}

async fn count(events: &Events, call: &Call, seconds: u64) {
    let info = rpc::severity("info");
    if call
        .meta
        .severity
        .is_some_and(|wanted| info >= Some(wanted))
    {
        let log =
            json!({ "level": "info", "logger": "wait", "data": format!("waiting {seconds} s") });
        events
            .send(&rpc::notification("notifications/message", &log))
            .await;
    }
    for second in 1..=seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Some(token) = &call.meta.progress_token {
            let progress = json!({ "progressToken": token, "progress": second, "total": seconds });
            events
                .send(&rpc::notification("notifications/progress", &progress))
                .await;
        }
    }
    events
        .send(&rpc::answer(&call.id, &Ok(waited(seconds))))
        .await;
}

fn known_place(arguments: &Params, name: &str) -> Result<time::Place, Value> {
    let text = arguments.get(name).and_then(Value::as_str);
    text.and_then(time::place)
        .ok_or_else(|| rpc::tool_error(format!("`{name}` must be one of the known places")))
}

fn convert(arguments: &Params) -> Value {
    let text = arguments.get("time").and_then(Value::as_str);
    let Some(time) = text.and_then(time::minutes) else {
        return rpc::tool_error("`time` must be a time, HH:MM");
    };
    match (known_place(arguments, "from"), known_place(arguments, "to")) {
        (Ok(from), Ok(to)) => {
            let (time, days) = time::convert(time, from, to);
            let structured = json!({ "time": time, "daysLater": days });
            let mut result = rpc::tool_text(structured.to_string());
            result["structuredContent"] = structured;
            result
        }
        (Err(error), _) | (_, Err(error)) => error,
    }
}

fn tell(arguments: &Params) -> Value {
    if !arguments.contains_key("place") {
        return rpc::tool_text(time::written(now(), ("UTC", 0)));
    }
    match known_place(arguments, "place") {
        Ok(place) => rpc::tool_text(time::written(now(), place)),
        Err(error) => error,
    }
}
