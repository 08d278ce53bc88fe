//! The oracle: what a hop may change in a message, by requirement. All else arrives as it was sent.

use super::exchange::{Era, Exchange, OWN_ID};
use crate::generate::Edit;

pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(super) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(super) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
pub(super) const LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(super) const SERVER: &str = "io.modelcontextprotocol/serverInfo";
pub(super) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
pub(super) const TOKEN: &str = "progressToken";
/// Keys of the protocol that mean nothing here, and go all the same.
pub(super) const UNKNOWN: [&str; 2] = ["io.modelcontextprotocol/other", "dev.mcp/x"];

/// What the gateway says of itself.
const OWN_CLIENT: &str = concat!(
    r#"{"name":"vestibule","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}"#
);
const OWN_SERVER: &str = concat!(
    r#"{"name":"vestibule","title":"Vestibule","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}"#
);

/// Edits at paths of a message.
pub(super) type Edits = Vec<(Vec<&'static str>, Edit)>;

/// Spans that belong to a hop.
pub(crate) struct Owned {
    /// The requirement that gives them to the hop.
    pub(crate) by: &'static str,
    /// What stands there behind the gateway.
    pub(super) edits: fn(&Exchange) -> Edits,
}

/// Everything that may change in a call on its way to the upstream.
pub(crate) const OF_CALLS: [Owned; 6] = [
    Owned {
        by: "FRM-25: the id",
        edits: |_| vec![(vec!["id"], Edit::Set(format!("\"{OWN_ID}\"")))],
    },
    Owned {
        by: "MET-07: reserved keys of the client's hop end here",
        edits: |_| {
            let known = [VERSION, CAPABILITIES, CLIENT, LEVEL, SERVER, SUBSCRIPTION];
            let keys = known.into_iter().chain(UNKNOWN).chain([TOKEN]);
            keys.map(|key| (meta_of_call(key), Edit::Remove)).collect()
        },
    },
    Owned {
        by: "MET-02: the version and who calls",
        edits: |exchange| {
            exchange.of_stateless(&[(VERSION, "\"2026-07-28\""), (CLIENT, OWN_CLIENT)])
        },
    },
    Owned {
        by: "MET-02: what the client can do",
        edits: |exchange| exchange.of_stateless(&[(CAPABILITIES, exchange.capabilities)]),
    },
    Owned {
        by: "MET-07: the log level is written anew",
        edits: |exchange| match exchange.level {
            true => exchange.of_stateless(&[(LEVEL, "\"info\"")]),
            false => Vec::new(),
        },
    },
    Owned {
        by: "MET-07: the progress token is the hop's own",
        edits: |exchange| match exchange.token {
            true => vec![(meta_of_call(TOKEN), Edit::Set(format!("\"{OWN_ID}\"")))],
            false => Vec::new(),
        },
    },
];

/// Everything that may change in an answer on its way to the client.
pub(crate) const OF_ANSWERS: [Owned; 4] = [
    Owned {
        by: "FRM-04: the id is the client's, byte for byte",
        edits: |exchange| vec![(vec!["id"], Edit::Set(exchange.id.clone()))],
    },
    Owned {
        by: "FRM-22: stateless results have a type, others have none",
        edits: |exchange| match (exchange.era, exchange.typed) {
            (Era::Stateless, true) => Vec::new(),
            (Era::Stateless, false) => {
                let complete = Edit::Set("\"complete\"".to_owned());
                vec![(vec!["result", "resultType"], complete)]
            }
            (Era::Sessions, _) => vec![(vec!["result", "resultType"], Edit::Remove)],
        },
    },
    Owned {
        by: "MET-07: reserved keys of the upstream's hop end here",
        edits: |_| {
            [VERSION, CLIENT, SERVER, SUBSCRIPTION, TOKEN]
                .map(|key| (meta_of_answer(key), Edit::Remove))
                .into()
        },
    },
    Owned {
        by: "MET-03: the server is the gateway",
        edits: |exchange| match exchange.era {
            Era::Stateless => {
                vec![(meta_of_answer(SERVER), Edit::Set(OWN_SERVER.to_owned()))]
            }
            Era::Sessions => Vec::new(),
        },
    },
];

pub(super) fn meta_of_call(key: &'static str) -> Vec<&'static str> {
    vec!["params", "_meta", key]
}

fn meta_of_answer(key: &'static str) -> Vec<&'static str> {
    vec!["result", "_meta", key]
}
