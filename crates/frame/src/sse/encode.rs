//! The events that the gateway writes.
//!
//! One JSON-RPC message is one `message` event with one `data:` line. CR and LF are legal whitespace
//! in JSON and line ends in an event stream, so they are left out between tokens (SSE-01, T13);
//! inside JSON strings they cannot occur.

use bytes::Bytes;

use crate::encode::push_line;

/// A `message` event with a JSON payload, given in slices, and an event id.
pub fn message(id: Option<&str>, payload: &[Bytes]) -> Bytes {
    let size: usize = payload.iter().map(Bytes::len).sum();
    let mut out = Vec::with_capacity(size + id.map_or(0, str::len) + 32);
    push_id(&mut out, id);
    out.extend_from_slice(b"event: message\ndata: ");
    payload.iter().for_each(|chunk| push_line(&mut out, chunk));
    out.extend_from_slice(b"\n\n");
    Bytes::from(out)
}

/// An event that only sets the event id (SSE-04).
pub fn priming(id: &str) -> Bytes {
    let mut out = Vec::with_capacity(id.len() + 16);
    push_id(&mut out, Some(id));
    out.extend_from_slice(b"data: \n\n");
    Bytes::from(out)
}

/// Tells the client how long to wait before it reconnects.
pub fn retry(milliseconds: u64) -> Bytes {
    Bytes::from(format!("retry: {milliseconds}\n\n"))
}

/// A comment, which keeps connections open and which clients ignore (SSE-15).
pub fn comment() -> Bytes {
    Bytes::from_static(b": \n\n")
}

/// The first event of the HTTP+SSE transport: where to POST (HSE rows).
pub fn endpoint(uri: &str) -> Bytes {
    let mut out = Vec::with_capacity(uri.len() + 32);
    out.extend_from_slice(b"event: endpoint\ndata: ");
    push_line(&mut out, uri.as_bytes());
    out.extend_from_slice(b"\n\n");
    Bytes::from(out)
}

/// The id line. Ids are ours and contain no line ends; whatever could break the line is left out.
fn push_id(out: &mut Vec<u8>, id: Option<&str>) {
    let Some(id) = id else { return };
    debug_assert!(!id.contains(['\r', '\n', '\0']), "an event id of one line");
    out.extend_from_slice(b"id: ");
    out.extend(id.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
    out.push(b'\n');
}
