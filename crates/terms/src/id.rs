//! Validated identifiers. Every one is cheap to clone, and none can be built from text that its
//! grammar refuses, so that a key, a label or a path made of them needs no further check.

use std::fmt;
use std::sync::Arc;

/// Why a text is not an identifier of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind}: {rule}")]
pub struct InvalidId {
    kind: &'static str,
    rule: &'static str,
    text: String,
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Accepts `text` when it follows the grammar of this kind.
            pub fn new(text: &str) -> Result<Self, InvalidId> {
                if $check(text) {
                    Ok(Self(Arc::from(text)))
                } else {
                    let text = text.chars().take(80).collect();
                    Err(InvalidId { kind: $kind, rule: $rule, text })
                }
            }

            /// The text as configured.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// First tokens of well-known compound URI schemes (`git+ssh`, `coap+tcp`, …): an upstream of that
/// name would capture foreign URIs on a federated server (translation rules, section 12.2).
const COMPOUND_SCHEMES: [&str; 8] = ["git", "svn", "hg", "coap", "view", "http", "https", "ssh"];

fn is_upstream(text: &str) -> bool {
    (1..=24).contains(&text.len())
        && text.as_bytes()[0].is_ascii_lowercase()
        && is_label(text)
        && !COMPOUND_SCHEMES.contains(&text)
}

identifier! {
    /// A tenant: `[a-z0-9-]{1,63}`.
    TenantId, "a tenant id", "1 to 63 characters of a-z, 0-9 and -", is_label
}
identifier! {
    /// A virtual server of a tenant: `[a-z0-9-]{1,63}`.
    ServerId, "a server id", "1 to 63 characters of a-z, 0-9 and -", is_label
}
identifier! {
    /// An upstream of a tenant: `[a-z][a-z0-9-]{0,23}`, and not the first token of a well-known
    /// compound URI scheme. It is the prefix of exposed names and URIs.
    UpstreamId, "an upstream id",
    "1 to 24 characters of a-z, 0-9 and -, beginning with a letter, and not git, svn, hg, coap, view, http, https or ssh",
    is_upstream
}

/// The id of a legacy client's session, as sent in `Mcp-Session-Id`. A capability: never printed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Wraps an id that was minted or authenticated by the session room.
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The id as it travels in the header. Not for logs: see [`fmt::Debug`].
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_ids_that_would_capture_foreign_schemes_are_refused() {
        for bad in [
            "git",
            "https",
            "",
            "9a",
            "a_b",
            "A",
            "-a",
            "a".repeat(25).as_str(),
        ] {
            assert!(UpstreamId::new(bad).is_err(), "{bad}");
        }
        for good in ["a", "github", "git-hub", "a9-"] {
            assert_eq!(UpstreamId::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn tenant_ids_are_dns_like_labels() {
        assert!(TenantId::new("acme-1").is_ok());
        for bad in ["", "Acme", "a}:{b", "a/b", "ä"] {
            assert!(TenantId::new(bad).is_err(), "{bad}");
        }
    }

    /// SES-06: a session id is never shown in clear.
    #[test]
    fn ses_06_debug_of_a_session_id_hides_it() {
        assert_eq!(format!("{:?}", SessionId::new("abcdef")), "SessionId(…)");
    }
}
