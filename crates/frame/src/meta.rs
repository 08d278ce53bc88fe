//! The reserved keys of `_meta`: those that belong to one hop, and the rule that reserves prefixes.
//!
//! Hop keys are consumed on the way in and written anew on the way out (MET-07); everything else in
//! `_meta` passes byte for byte (MET-08).

use crate::message::Frame;
use crate::{Span, json};

/// What the protocol's own keys begin with.
pub const PREFIX: &str = "io.modelcontextprotocol/";
/// The revision of a request (2026-07-28).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Name and version of the client.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// What the client can do, for this request.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The least severe log level that the client wants.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Name and version of the server, in results.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The subscription that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The task that a message belongs to (2025-11-25).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// The token under which progress is reported.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// W3C trace context (MET-09).
pub const TRACEPARENT: &str = "traceparent";
/// W3C trace state (MET-09).
pub const TRACESTATE: &str = "tracestate";
/// W3C baggage (MET-09).
pub const BAGGAGE: &str = "baggage";

/// The keys that never cross a hop (MET-07).
pub const HOP_KEYS: &[&str] = &[
    PROTOCOL_VERSION,
    CLIENT_INFO,
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    SERVER_INFO,
    SUBSCRIPTION_ID,
    RELATED_TASK,
    PROGRESS_TOKEN,
];

/// True for the keys that never cross a hop.
pub fn is_hop_key(key: &str) -> bool {
    HOP_KEYS.contains(&key)
}

/// MET-06 as of 2025-11-25: the second label of the prefix is `mcp` or `modelcontextprotocol`.
pub fn is_reserved(key: &str) -> bool {
    labels(key).nth(1).is_some_and(is_protocol_label)
}

/// MET-06 as of 2025-06-18: such a label anywhere in the prefix with another one behind it.
pub fn is_reserved_2025_06_18(key: &str) -> bool {
    let labels: Vec<&str> = labels(key).collect();
    labels
        .iter()
        .rev()
        .skip(1)
        .any(|label| is_protocol_label(label))
}

fn is_protocol_label(label: &str) -> bool {
    matches!(label, "mcp" | "modelcontextprotocol")
}

/// The labels of a key's prefix; none without a prefix.
fn labels(key: &str) -> impl Iterator<Item = &str> {
    key.split_once('/')
        .into_iter()
        .flat_map(|(prefix, _)| prefix.split('.'))
}

/// The hop keys of one `_meta` object: the spans of their values. Null counts as absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reserved {
    /// [`PROTOCOL_VERSION`].
    pub protocol_version: Option<Span>,
    /// [`CLIENT_INFO`].
    pub client_info: Option<Span>,
    /// [`CLIENT_CAPABILITIES`].
    pub client_capabilities: Option<Span>,
    /// [`LOG_LEVEL`].
    pub log_level: Option<Span>,
    /// [`SERVER_INFO`].
    pub server_info: Option<Span>,
    /// [`SUBSCRIPTION_ID`].
    pub subscription_id: Option<Span>,
    /// [`RELATED_TASK`].
    pub related_task: Option<Span>,
    /// [`PROGRESS_TOKEN`].
    pub progress_token: Option<Span>,
}

impl Reserved {
    /// The hop keys of `params._meta`; all absent without it.
    pub fn of(frame: &Frame) -> Reserved {
        frame
            .meta()
            .map_or_else(Reserved::default, |meta| Reserved::of_object(frame, meta))
    }

    /// The hop keys of any `_meta` object of a message.
    pub fn of_object(frame: &Frame, meta: Span) -> Reserved {
        let mut found = Reserved::default();
        for member in frame.members(meta) {
            let Some(key) = json::string(frame.text(member.key)) else {
                continue;
            };
            if let Some(slot) = found.slot(&key) {
                *slot = Some(member.value).filter(|value| frame.text(*value) != b"null");
            }
        }
        found
    }

    fn slot(&mut self, key: &str) -> Option<&mut Option<Span>> {
        match key {
            PROTOCOL_VERSION => Some(&mut self.protocol_version),
            CLIENT_INFO => Some(&mut self.client_info),
            CLIENT_CAPABILITIES => Some(&mut self.client_capabilities),
            LOG_LEVEL => Some(&mut self.log_level),
            SERVER_INFO => Some(&mut self.server_info),
            SUBSCRIPTION_ID => Some(&mut self.subscription_id),
            RELATED_TASK => Some(&mut self.related_task),
            PROGRESS_TOKEN => Some(&mut self.progress_token),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PROTOCOL_VERSION, Reserved, is_hop_key, is_reserved, is_reserved_2025_06_18};
    use crate::{Frame, Limits};
    use bytes::Bytes;

    #[test]
    fn met_06_prefixes_are_reserved_by_the_rule_of_the_revision() {
        for key in [
            "io.modelcontextprotocol/x",
            "dev.mcp/",
            "com.mcp.tools/a",
            "a.mcp.b.c/x",
        ] {
            assert!(is_reserved(key), "{key}");
        }
        for key in [
            "mcp.dev/x",
            "com.example.mcp/x",
            "progressToken",
            "mcp/x",
            "a/b.mcp.c",
        ] {
            assert!(!is_reserved(key), "{key}");
        }
        for key in [
            "modelcontextprotocol.io/x",
            "mcp.dev/",
            "tools.mcp.com/a",
            "a.b.mcp.c/x",
        ] {
            assert!(is_reserved_2025_06_18(key), "{key}");
        }
        for key in [
            "com.example.mcp/x",
            "mcp/x",
            "io.modelcontextprotocol/x",
            "mcp",
        ] {
            assert!(!is_reserved_2025_06_18(key), "{key}");
        }
    }

    #[test]
    fn met_07_hop_keys_are_found_whatever_their_spelling() {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"_meta":{{"a/b":1,"progress\u0054oken":"t","{PROTOCOL_VERSION}":"2026-07-28","io.modelcontextprotocol/logLevel":null}}}}}}"#
        );
        let frame = Frame::parse(Bytes::from(text), &Limits::default()).expect("a good message");
        let reserved = Reserved::of(&frame);
        assert_eq!(
            reserved.progress_token.map(|span| frame.text(span)),
            Some(&b"\"t\""[..])
        );
        assert_eq!(reserved.progress_token, frame.progress_token());
        let version = reserved.protocol_version.expect("a version");
        assert_eq!(frame.string(version).as_deref(), Some("2026-07-28"));
        assert_eq!(reserved.log_level, None);
        assert!(is_hop_key("progressToken") && !is_hop_key("a/b"));
    }
}
