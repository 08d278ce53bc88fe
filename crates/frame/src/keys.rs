//! The keys of envelope objects: which are reserved, which only look like it, which occur twice.
//!
//! Reserved keys are told apart by exact bytes. A key that becomes a reserved one when letter case
//! is folded is refused, U+017F and U+212A included, because a lenient parser behind the gateway may
//! read it as the reserved one (CVE-2026-27896).

use crate::meta;

/// An object whose keys the gateway judges.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// The message itself.
    Message,
    /// `params`.
    Params,
    /// `params._meta`.
    Meta,
    /// `params.ref` of a completion, which names what policy decides about.
    Ref,
}

/// Keys that are told by their exact bytes: those with a slot in the layout, and the hop keys.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Known {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    Name,
    Uri,
    Arguments,
    Meta,
    Ref,
    ProgressToken,
    ProtocolVersion,
    ClientInfo,
    ClientCapabilities,
    LogLevel,
    ServerInfo,
    SubscriptionId,
    RelatedTask,
}

impl Level {
    /// How many objects are open inside an object of this level, itself included.
    pub(crate) fn depth(self) -> usize {
        match self {
            Level::Message => 1,
            Level::Params => 2,
            Level::Meta | Level::Ref => 3,
        }
    }

    #[inline(always)]
    pub(crate) fn known(self, key: &[u8]) -> Option<Known> {
        match self {
            Level::Message => match key {
                b"jsonrpc" => Some(Known::Jsonrpc),
                b"id" => Some(Known::Id),
                b"method" => Some(Known::Method),
                b"params" => Some(Known::Params),
                b"result" => Some(Known::Result),
                b"error" => Some(Known::Error),
                _ => None,
            },
            Level::Params => match key {
                b"name" => Some(Known::Name),
                b"uri" => Some(Known::Uri),
                b"arguments" => Some(Known::Arguments),
                b"_meta" => Some(Known::Meta),
                b"ref" => Some(Known::Ref),
                _ => None,
            },
            Level::Meta => known_meta(key),
            Level::Ref => None,
        }
    }

    /// A known key that stands at the start of `rest`, quotes and all, and the length of its token.
    ///
    /// The shortcut for nearly every key there is: one load of eight bytes and a few comparisons,
    /// instead of finding the end of the string first. What it does not tell, [`Level::known`] does.
    #[inline(always)]
    pub(crate) fn at_start(self, rest: &[u8]) -> Option<(Known, usize)> {
        let word = u64::from_le_bytes(*rest.first_chunk::<8>()?);
        let table: &[(Known, &[u8])] = match self {
            Level::Message => &[
                (Known::Jsonrpc, b"\"jsonrpc\""),
                (Known::Id, b"\"id\""),
                (Known::Method, b"\"method\""),
                (Known::Params, b"\"params\""),
                (Known::Result, b"\"result\""),
            ],
            Level::Params => &[
                (Known::Name, b"\"name\""),
                (Known::Arguments, b"\"arguments\""),
                (Known::Meta, b"\"_meta\""),
                (Known::Uri, b"\"uri\""),
            ],
            Level::Meta => &[
                (Known::ProgressToken, b"\"progressToken\""),
                (
                    Known::ProtocolVersion,
                    b"\"io.modelcontextprotocol/protocolVersion\"",
                ),
                (Known::ClientInfo, b"\"io.modelcontextprotocol/clientInfo\""),
                (
                    Known::ClientCapabilities,
                    b"\"io.modelcontextprotocol/clientCapabilities\"",
                ),
            ],
            Level::Ref => &[],
        };
        let hit = |(_, token): &&(Known, &[u8])| {
            let mask = if token.len() >= 8 {
                u64::MAX
            } else {
                (1 << (8 * token.len())) - 1
            };
            word & mask == start_of(token) && (token.len() <= 8 || rest.starts_with(token))
        };
        table
            .iter()
            .find(hit)
            .map(|(known, token)| (*known, token.len()))
    }

    fn reserved(self) -> &'static [&'static str] {
        match self {
            Level::Message => &["jsonrpc", "id", "method", "params", "result", "error"],
            Level::Params => &[
                "name",
                "uri",
                "arguments",
                "_meta",
                "ref",
                "argument",
                "cursor",
                "task",
                "taskId",
                "requestId",
                "requestState",
                "inputResponses",
                "progressToken",
                "protocolVersion",
                "capabilities",
            ],
            Level::Meta => meta::HOP_KEYS,
            Level::Ref => &["type", "name", "uri"],
        }
    }

    /// True when `key` is not a reserved key of this level but folds to one.
    pub(crate) fn looks_reserved(self, key: &[u8]) -> bool {
        let names = self.reserved().iter().map(|name| name.as_bytes());
        if key.is_ascii() {
            // Lengths differ for nearly all, so this is a walk over a few words.
            names
                .filter(|name| name.len() == key.len())
                .any(|name| key.eq_ignore_ascii_case(name) && key != name)
        } else {
            names
                .filter(|name| name.len() < key.len())
                .any(|name| folds_to(key, name))
        }
    }
}

/// The first eight bytes of a token as a little-endian word, zeros behind a shorter one.
const fn start_of(token: &[u8]) -> u64 {
    let mut word = 0u64;
    let mut at = 0;
    while at < token.len() && at < 8 {
        word |= (token[at] as u64) << (8 * at);
        at += 1;
    }
    word
}

fn known_meta(key: &[u8]) -> Option<Known> {
    let Some(name) = key.strip_prefix(meta::PREFIX.as_bytes()) else {
        return (key == b"progressToken").then_some(Known::ProgressToken);
    };
    match name {
        b"protocolVersion" => Some(Known::ProtocolVersion),
        b"clientInfo" => Some(Known::ClientInfo),
        b"clientCapabilities" => Some(Known::ClientCapabilities),
        b"logLevel" => Some(Known::LogLevel),
        b"serverInfo" => Some(Known::ServerInfo),
        b"subscriptionId" => Some(Known::SubscriptionId),
        b"related-task" => Some(Known::RelatedTask),
        _ => None,
    }
}

/// Compares under ASCII case folding plus the two letters outside ASCII that fold into it.
fn folds_to(key: &[u8], name: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(key) else {
        return false;
    };
    let folded = text.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(name
        .iter()
        .map(|byte| char::from(byte.to_ascii_lowercase())))
}

/// A key seen before. Keys with escapes are kept decoded in an arena behind the message, so an
/// offset beyond the message means the arena.
#[derive(Clone, Copy, Default)]
struct Mark {
    start: u32,
    len: u32,
}

const INLINE: usize = 16;

/// The unreserved keys of the envelope objects that are open, innermost last.
///
/// The first sixteen need no allocation. Keys are compared one by one: their number and length are
/// bounded, so the worst a sender can ask for is a few milliseconds for a body of many kilobytes.
pub(crate) struct Seen {
    inline: [Mark; INLINE],
    spill: Vec<Mark>,
    len: usize,
    arena: Vec<u8>,
}

impl Seen {
    pub(crate) fn new() -> Seen {
        Seen {
            inline: [Mark::default(); INLINE],
            spill: Vec::new(),
            len: 0,
            arena: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Forgets what an object held that has ended.
    #[inline(always)]
    pub(crate) fn truncate(&mut self, len: usize) {
        if self.len > len {
            self.len = len;
            self.spill.truncate(len.saturating_sub(INLINE));
        }
    }

    /// Remembers a key of the object whose keys begin at `base`; false when it was there already.
    /// `at` is where its bytes are in the message; none when they had to be decoded.
    pub(crate) fn insert(
        &mut self,
        base: usize,
        bytes: &[u8],
        at: Option<usize>,
        key: &[u8],
    ) -> bool {
        let inline = self
            .inline
            .get(base..self.len.min(INLINE))
            .unwrap_or_default();
        let spilled = self
            .spill
            .get(base.saturating_sub(INLINE)..)
            .unwrap_or_default();
        let same = |mark: &Mark| mark.len as usize == key.len() && self.key(bytes, mark) == key;
        if inline.iter().chain(spilled).any(same) {
            return false;
        }
        let start = at.unwrap_or_else(|| {
            let start = bytes.len() + self.arena.len();
            self.arena.extend_from_slice(key);
            start
        });
        let mark = Mark {
            start: crate::saturate(start),
            len: crate::saturate(key.len()),
        };
        match self.inline.get_mut(self.len) {
            Some(free) => *free = mark,
            None => self.spill.push(mark),
        }
        self.len += 1;
        true
    }

    fn key<'a>(&'a self, bytes: &'a [u8], mark: &Mark) -> &'a [u8] {
        let (start, len) = (mark.start as usize, mark.len as usize);
        match start.checked_sub(bytes.len()) {
            None => bytes.get(start..start + len),
            Some(start) => self.arena.get(start..start + len),
        }
        .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, Seen};

    #[test]
    fn t03_case_and_the_two_folding_letters_are_look_alikes() {
        for key in ["Method", "METHOD", "param\u{17f}", "re\u{17f}ult"] {
            assert!(Level::Message.looks_reserved(key.as_bytes()), "{key}");
        }
        assert!(Level::Meta.looks_reserved("progre\u{17f}sTo\u{212a}en".as_bytes()));
        for key in ["method", "methods", "x-method", "\u{e9}", "meth\u{f8}d"] {
            assert!(!Level::Message.looks_reserved(key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn met_07_every_hop_key_is_known_by_its_bytes() {
        for key in crate::meta::HOP_KEYS {
            assert!(Level::Meta.known(key.as_bytes()).is_some(), "{key}");
            let shouted = key.to_ascii_uppercase();
            assert!(Level::Meta.looks_reserved(shouted.as_bytes()), "{shouted}");
        }
    }

    #[test]
    fn keys_beyond_the_inline_room_are_remembered_and_forgotten() {
        let mut seen = Seen::new();
        let names: Vec<String> = (0..40).map(|n| format!("key{n:02}")).collect();
        let all = names.concat().into_bytes();
        // Every third key is one that had escapes.
        let at = |n: usize| (!n.is_multiple_of(3)).then_some(n * 5);
        for (n, name) in names.iter().enumerate() {
            assert!(
                seen.insert(0, &all, at(n), name.as_bytes()),
                "{name} is new"
            );
        }
        for (n, name) in names.iter().enumerate() {
            assert!(
                !seen.insert(0, &all, at(n + 1), name.as_bytes()),
                "{name} was there"
            );
        }
        assert!(
            seen.insert(40, &all, at(4), b"key04"),
            "another object may have it"
        );
        seen.truncate(20);
        assert!(
            seen.insert(0, &all, at(31), b"key31"),
            "forgotten with its object"
        );
        assert!(!seen.insert(0, &all, at(19), b"key19"));
    }
}
