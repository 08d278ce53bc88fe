//! What the clock says about itself: constants and what follows from the list of places.

use serde_json::{Value, json};

use super::check::{MIRRORED, VERSION};
use super::time::{PLACES, place};
use super::{NOW, WAITING};
use crate::rpc::{self, Params, RpcError};

pub(super) fn server() -> Value {
    json!({
        "supportedVersions": [VERSION],
        "capabilities": {
            "tools": {},
            "resources": { "subscribe": true },
            "prompts": {},
            "completions": {},
            "logging": {},
        },
        "instructions": "Tells and converts times. Ask clock://now for the time in UTC.",
        "_meta": { "io.modelcontextprotocol/serverInfo": {
            "name": "clock", "title": "Clock", "version": env!("CARGO_PKG_VERSION"),
        } },
    })
}

fn one_place(description: &str) -> Value {
    let names: Vec<_> = PLACES.iter().map(|(name, _)| *name).collect();
    json!({ "type": "string", "description": description, "enum": names })
}

fn time_of_day(description: &str) -> Value {
    json!({ "type": "string", "description": description, "pattern": "^[0-2][0-9]:[0-5][0-9]$" })
}

pub(super) fn tools() -> Value {
    let mut to = one_place("Where to.");
    to["x-mcp-header"] = json!(MIRRORED.1);
    json!([
        {
            "name": "convert",
            "title": "Convert a time",
            "description": "Converts a time of day from one place to another.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "time": time_of_day("HH:MM, in the first place."),
                    "from": one_place("Where from."),
                    "to": to,
                },
                "required": ["time", "from", "to"],
            },
            "outputSchema": {
                "type": "object",
                "properties": {
                    "time": { "type": "string" },
                    "daysLater": { "type": "integer" },
                },
                "required": ["time", "daysLater"],
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "now",
            "title": "The time",
            "description": "Tells the time, in UTC or in a place.",
            "inputSchema": {
                "type": "object",
                "properties": { "place": one_place("Where; UTC if absent.") },
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "remind",
            "title": "Set a reminder",
            "description": "Asks the user what to be reminded of at a time of day.",
            "inputSchema": {
                "type": "object",
                "properties": { "at": time_of_day("HH:MM.") },
                "required": ["at"],
            },
        },
        {
            "name": "wait",
            "title": "Wait",
            "description": "Waits for some seconds and reports progress. Close the connection to cancel.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "seconds": { "type": "integer", "minimum": 0, "maximum": 60 },
                },
                "required": ["seconds"],
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
    ])
}

pub(super) fn resources() -> Value {
    json!([
        { "uri": NOW, "name": "now", "title": "The time in UTC", "mimeType": "text/plain" },
        {
            "uri": WAITING,
            "name": "waiting",
            "title": "How many calls of wait are going on",
            "mimeType": "text/plain",
        },
    ])
}

pub(super) fn templates() -> Value {
    json!([{
        "uriTemplate": "clock://place/{name}",
        "name": "place",
        "title": "The time in a place",
        "mimeType": "text/plain",
    }])
}

pub(super) fn prompts() -> Value {
    json!([{
        "name": "meeting",
        "title": "Plan a meeting",
        "description": "Finds a time of day that suits people in two places.",
        "arguments": [
            { "name": "here", "description": "One place.", "required": true },
            { "name": "there", "description": "The other place.", "required": true },
        ],
    }])
}

pub(super) fn prompt(params: &Params) -> Result<Value, RpcError> {
    let name = rpc::text(params, "name")?;
    if name != "meeting" {
        return Err(RpcError::invalid_params(format!("unknown prompt: {name}")));
    }
    let arguments = rpc::object(params, "arguments")?;
    let place = |argument| {
        let name = rpc::text(&arguments, argument)?;
        place(name)
            .map(|(name, _)| name)
            .ok_or_else(|| RpcError::invalid_params(format!("unknown place: {name}")))
    };
    let (here, there) = (place("here")?, place("there")?);
    let text = format!(
        "Use the convert tool to find a time between 09:00 and 17:00 both in {here} and in {there}."
    );
    Ok(json!({
        "description": format!("A meeting of {here} and {there}"),
        "messages": [{ "role": "user", "content": { "type": "text", "text": text } }],
    }))
}

/// Places complete the arguments of the prompt and of the template.
pub(super) fn completion(params: &Params) -> Result<Value, RpcError> {
    let reference = rpc::object(params, "ref")?;
    let argument = rpc::object(params, "argument")?;
    let member = |name| reference.get(name).and_then(Value::as_str);
    let known = matches!(
        (member("type"), member("name"), member("uri")),
        (Some("ref/prompt"), Some("meeting"), _)
            | (Some("ref/resource"), _, Some("clock://place/{name}"))
    );
    if !known {
        return Err(RpcError::invalid_params("unknown reference"));
    }
    rpc::text(&argument, "name")?;
    let typed = rpc::text(&argument, "value")?;
    Ok(rpc::completion(typed, PLACES.iter().map(|(name, _)| *name)))
}
