//! Who the gateway says it is, in `serverInfo` of every era (MET-03).

use bytes::Bytes;
use serde_json::json;

/// The gateway's own name and version. It is never an upstream's, and nothing decides by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    info: Bytes,
}

impl Identity {
    /// An identity; `title` is for display.
    pub fn new(name: &str, version: &str, title: Option<&str>) -> Self {
        let mut info = json!({ "name": name, "version": version });
        if let Some(title) = title {
            info["title"] = json!(title);
        }
        Self {
            info: Bytes::from(info.to_string()),
        }
    }

    /// The `Implementation` object as JSON text.
    pub(crate) fn json(&self) -> &Bytes {
        &self.info
    }
}
