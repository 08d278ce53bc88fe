//! What the notes server says about itself.

use serde_json::{Value, json};

pub(super) fn capabilities() -> Value {
    json!({
        "tools": {},
        "resources": { "subscribe": true, "listChanged": true },
        "prompts": {},
        "completions": {},
        "logging": {},
    })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

pub(super) fn tools() -> Value {
    json!([
        {
            "name": "note_add",
            "title": "Add a note",
            "description": "Adds a note and returns its URI.",
            "inputSchema": {
                "type": "object",
                "properties": { "title": text("A short title."), "text": text("The note.") },
                "required": ["title", "text"],
            },
            "outputSchema": {
                "type": "object",
                "properties": { "uri": { "type": "string" } },
                "required": ["uri"],
            },
        },
        {
            "name": "note_clear",
            "title": "Remove all notes",
            "description": "Removes every note, after asking the user.",
            "inputSchema": { "type": "object" },
            "annotations": { "destructiveHint": true, "openWorldHint": false },
        },
        {
            "name": "note_edit",
            "title": "Change a note",
            "description": "Replaces the text of a note.",
            "inputSchema": {
                "type": "object",
                "properties": { "uri": text("The note's URI."), "text": text("The new text.") },
                "required": ["uri", "text"],
            },
        },
        {
            "name": "note_export",
            "title": "Export all notes",
            "description": "Returns every note as one document; takes a second and reports progress.",
            "inputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "note_list",
            "title": "List notes",
            "description": "Lists the titles and URIs of all notes.",
            "inputSchema": { "type": "object" },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
    ])
}

pub(super) fn templates() -> Value {
    json!([{
        "uriTemplate": "note://{number}",
        "name": "note",
        "title": "A note by its number",
        "mimeType": "text/plain",
    }])
}

pub(super) fn prompts() -> Value {
    json!([{
        "name": "summarize",
        "title": "Summarize a note",
        "description": "Asks for a summary of one note.",
        "arguments": [{ "name": "title", "description": "The note's title.", "required": true }],
    }])
}

/// The form of `note_clear`.
pub(super) fn confirmation(notes: usize) -> Value {
    json!({
        "message": format!("Remove all {notes} notes?"),
        "requestedSchema": {
            "type": "object",
            "properties": { "confirm": { "type": "boolean", "title": "Remove them" } },
            "required": ["confirm"],
        },
    })
}
