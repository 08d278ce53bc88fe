//! An MCP server of revision 2025-11-25 over stdin and stdout: one JSON-RPC message a line.
//!
//! It offers a small tree of files that is built into the program, as tools and as resources.
//! Every request is answered at once, so that requests are simply handled one after the other.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Read as _, Write};

use serde_json::{Value, json};

use crate::rpc::{self, INVALID_REQUEST, Message, Params, RpcError};

/// Longest line that is read.
const MAX_LINE: u64 = 1024 * 1024;
/// The revisions with one message a line, newest first.
const VERSIONS: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// What a resource of this server begins with.
const SCHEME: &str = "file:///";
/// Resource not found, in the revisions with sessions.
const RESOURCE_NOT_FOUND: i64 = -32002;

/// The tree: path and text, in order of path.
const TREE: [(&str, &str); 4] = [
    ("README.md", include_str!("../tree/README.md")),
    ("data/cities.csv", include_str!("../tree/data/cities.csv")),
    ("guide/start.md", include_str!("../tree/guide/start.md")),
    ("guide/tenants.md", include_str!("../tree/guide/tenants.md")),
];

/// Reads messages from `stdin` and writes answers to `stdout` until `stdin` ends. Blocks: a child
/// that serves one client needs no runtime.
pub fn run_files<I: BufRead, O: Write>(mut stdin: I, mut stdout: O) -> io::Result<()> {
    let mut initialized = false;
    while let Some(line) = next_line(&mut stdin)? {
        let answer = match line {
            Line::Text(line) if line.trim_ascii().is_empty() => None,
            Line::Text(line) => handle(&line, &mut initialized),
            Line::TooLong => Some(RpcError::new(INVALID_REQUEST, "line too long").to_message(None)),
        };
        if let Some(answer) = answer {
            writeln!(stdout, "{answer}")?;
            stdout.flush()?;
        }
    }
    Ok(())
}

enum Line {
    Text(Vec<u8>),
    TooLong,
}

/// The next line, at most [`MAX_LINE`] of it in memory. The last line may lack its end.
fn next_line<R: BufRead>(reader: &mut R) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut parts = 0;
    loop {
        line.clear();
        let read = reader
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?;
        let was_cut = read as u64 == MAX_LINE && !line.ends_with(b"\n");
        match (was_cut, parts) {
            (true, _) => parts += 1, // only the end of this line is still of interest
            (false, 0) if read == 0 => return Ok(None),
            (false, 0) => return Ok(Some(Line::Text(line))),
            (false, _) => return Ok(Some(Line::TooLong)),
        }
    }
}

/// The answer to one line, if it wants one.
fn handle(line: &[u8], initialized: &mut bool) -> Option<Value> {
    let (id, method, params) = match rpc::parse(line) {
        Ok(Message::Request { id, method, params }) => (id, method, params),
        // nothing is ever asked of the client, so there is nothing it could answer
        Ok(Message::Notification { .. } | Message::Response { .. }) => return None,
        Err(error) => return Some(error.to_message(None)),
    };
    let outcome = match method.as_str() {
        "initialize" => {
            *initialized = true;
            Ok(initialize(&params))
        }
        "ping" => Ok(json!({})),
        // also the answer to a client that first asks for a stateless server
        _ if !*initialized => Err(RpcError::new(INVALID_REQUEST, "`initialize` comes first")),
        "tools/list" => Ok(json!({ "tools": tools() })),
        "tools/call" => call(&params),
        "resources/list" => Ok(json!({ "resources": resources() })),
        "resources/templates/list" => Ok(json!({ "resourceTemplates": [] })),
        "resources/read" => read(&params),
        _ => Err(RpcError::method_not_found(&method)),
    };
    Some(rpc::answer(&id, &outcome))
}

fn initialize(params: &Params) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version = VERSIONS
        .into_iter()
        .find(|version| Some(*version) == asked)
        .unwrap_or(VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {}, "resources": {} },
        "serverInfo": { "name": "files", "title": "Files", "version": env!("CARGO_PKG_VERSION") },
        "instructions": "A small tree of example files. Begin with list_dir.",
    })
}

fn tools() -> Value {
    let path = |description: &str| json!({ "type": "string", "description": description });
    let reads_only = json!({ "readOnlyHint": true, "openWorldHint": false });
    json!([
        {
            "name": "list_dir",
            "title": "List a folder",
            "description": "Lists the files and folders of a folder.",
            "inputSchema": {
                "type": "object",
                "properties": { "path": path("The folder; empty is the root.") },
            },
            "annotations": reads_only,
        },
        {
            "name": "read_file",
            "title": "Read a file",
            "description": "Returns the text of a file.",
            "inputSchema": {
                "type": "object",
                "properties": { "path": path("The file.") },
                "required": ["path"],
            },
            "annotations": reads_only,
        },
        {
            "name": "search",
            "title": "Search",
            "description": "Finds the lines that contain a text, in any file.",
            "inputSchema": {
                "type": "object",
                "properties": { "text": path("What to look for; upper and lower case are equal.") },
                "required": ["text"],
            },
            "annotations": reads_only,
        },
    ])
}

fn call(params: &Params) -> Result<Value, RpcError> {
    let arguments = rpc::object(params, "arguments")?;
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str);
    match rpc::text(params, "name")? {
        "list_dir" => Ok(list_dir(argument("path").unwrap_or_default())),
        "read_file" => Ok(match argument("path") {
            Some(path) => read_file(path),
            None => rpc::tool_error("`path` must be a string"),
        }),
        "search" => Ok(match argument("text") {
            Some(text) if !text.is_empty() => search(text),
            Some(_) | None => rpc::tool_error("`text` must be a text that is not empty"),
        }),
        other => Err(RpcError::invalid_params(format!("unknown tool: {other}"))),
    }
}

/// Entries are looked up, never opened, so no path can lead out of the tree.
fn find(path: &str) -> Option<&'static str> {
    TREE.iter()
        .find(|(own, _)| *own == path)
        .map(|(_, text)| *text)
}

fn list_dir(path: &str) -> Value {
    let folder = match path.trim_matches('/') {
        "" | "." => String::new(),
        path => format!("{path}/"),
    };
    let entries: BTreeSet<String> = TREE
        .iter()
        .filter_map(|(own, _)| own.strip_prefix(folder.as_str()))
        .map(|rest| match rest.split_once('/') {
            Some((folder, _)) => format!("{folder}/"),
            None => rest.to_owned(),
        })
        .collect();
    if entries.is_empty() {
        return rpc::tool_error(format!("no such folder: {path}"));
    }
    let lines: Vec<_> = entries.into_iter().collect();
    rpc::tool_text(lines.join("\n"))
}

fn read_file(path: &str) -> Value {
    match find(path.trim_start_matches('/')) {
        Some(text) => rpc::tool_text(text),
        None => rpc::tool_error(format!("no such file: {path}")),
    }
}

fn search(text: &str) -> Value {
    let wanted = text.to_lowercase();
    let mut found = Vec::new();
    for (path, content) in TREE {
        for (number, line) in content.lines().enumerate() {
            if line.to_lowercase().contains(&wanted) {
                found.push(format!("{path}:{}: {line}", number + 1));
            }
        }
    }
    if found.is_empty() {
        return rpc::tool_text(format!("nothing contains {text:?}"));
    }
    rpc::tool_text(found.join("\n"))
}

fn mime_type(path: &str) -> &'static str {
    if path.ends_with(".md") {
        "text/markdown"
    } else {
        "text/csv"
    }
}

fn resources() -> Vec<Value> {
    TREE.iter()
        .map(|(path, text)| {
            json!({
                "uri": format!("{SCHEME}{path}"),
                "name": path,
                "mimeType": mime_type(path),
                "size": text.len(),
            })
        })
        .collect()
}

fn read(params: &Params) -> Result<Value, RpcError> {
    let uri = rpc::text(params, "uri")?;
    let path = uri.strip_prefix(SCHEME).unwrap_or_default();
    let text = find(path).ok_or_else(|| {
        RpcError::new(RESOURCE_NOT_FOUND, "resource not found").with_data(json!({ "uri": uri }))
    })?;
    Ok(json!({ "contents": [{ "uri": uri, "mimeType": mime_type(path), "text": text }] }))
}

#[cfg(test)]
mod tests;
