//! What a virtual server offers, computed from the catalog and encoded by the session room, and
//! one page of a list.

use bytes::Bytes;

/// Who may keep a result (CCH-05, CCH-06).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheScope {
    /// Anyone.
    Public,
    /// The same authorization context only.
    Private,
}

impl CacheScope {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            CacheScope::Public => "public",
            CacheScope::Private => "private",
        }
    }
}

/// The one description of a virtual server behind both `initialize` and `server/discover`
/// (translation rules, section 2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerView {
    /// `tools`
    pub tools: bool,
    /// `prompts`
    pub prompts: bool,
    /// `resources`
    pub resources: bool,
    /// `resources.subscribe`
    pub subscribe: bool,
    /// `completions`
    pub completions: bool,
    /// `logging`
    pub logging: bool,
    /// `extensions`: identifiers with their raw JSON values, relayable ones only.
    pub extensions: Vec<(String, Bytes)>,
    /// Merged instructions; none is no member.
    pub instructions: Option<String>,
    /// Lifetime of a discover result in milliseconds; 0 while an upstream is still unknown.
    pub ttl_ms: u64,
    /// Who may keep it.
    pub scope: CacheScope,
}

/// One page of a merged list. Items are raw JSON objects in exposed form, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage {
    /// The member the items stand under: `tools`, `prompts`, `resources`, `resourceTemplates`.
    pub member: &'static str,
    /// The items.
    pub items: Vec<Bytes>,
    /// Cursor of the next page; none on the last.
    pub next_cursor: Option<String>,
    /// Remaining lifetime in milliseconds.
    pub ttl_ms: u64,
    /// Who may keep it: the same on all pages of a list (CCH-09).
    pub scope: CacheScope,
}
