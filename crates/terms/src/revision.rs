//! The published revisions of the protocol and the two eras they fall into.
//!
//! Versions are date strings; they are compared by table look-up and never ordered by string
//! comparison against unknown values (VER-15).

use std::fmt;

/// One published revision of the Model Context Protocol, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Revision {
    /// 2024-11-05: HTTP+SSE.
    R2024_11_05,
    /// 2025-03-26: Streamable HTTP, batches.
    R2025_03_26,
    /// 2025-06-18: elicitation, structured output, version header.
    R2025_06_18,
    /// 2025-11-25: polling streams, tasks, url elicitation.
    R2025_11_25,
    /// 2026-07-28: stateless.
    R2026_07_28,
}

/// How a revision opens: with an `initialize` handshake, or with metadata on every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25.
    Legacy,
    /// 2026-07-28 and later.
    Modern,
}

impl Revision {
    /// Every revision, oldest first.
    pub const ALL: [Revision; 5] = [
        Revision::R2024_11_05,
        Revision::R2025_03_26,
        Revision::R2025_06_18,
        Revision::R2025_11_25,
        Revision::R2026_07_28,
    ];

    /// The newest revision with a handshake: what we offer to, and ask of, legacy peers.
    pub const NEWEST_LEGACY: Revision = Revision::R2025_11_25;

    /// The newest stateless revision.
    pub const NEWEST_MODERN: Revision = Revision::R2026_07_28;

    /// The revision of that exact name, if it is published.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == text)
    }

    /// The date string of the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Revision::R2024_11_05 => "2024-11-05",
            Revision::R2025_03_26 => "2025-03-26",
            Revision::R2025_06_18 => "2025-06-18",
            Revision::R2025_11_25 => "2025-11-25",
            Revision::R2026_07_28 => "2026-07-28",
        }
    }

    /// The era of this revision.
    pub const fn era(self) -> Era {
        match self {
            Revision::R2024_11_05
            | Revision::R2025_03_26
            | Revision::R2025_06_18
            | Revision::R2025_11_25 => Era::Legacy,
            Revision::R2026_07_28 => Era::Modern,
        }
    }

    /// Whether this is a stateless revision.
    pub const fn is_modern(self) -> bool {
        matches!(self.era(), Era::Modern)
    }

    /// Whether a body may be an array of messages (BAT-01: 2025-03-26 alone).
    pub const fn has_batches(self) -> bool {
        matches!(self, Revision::R2025_03_26)
    }

    /// Whether a stream opens with an event that has an id and no data (SSE-04).
    pub const fn has_priming(self) -> bool {
        matches!(self, Revision::R2025_11_25)
    }

    /// Whether SSE events carry ids and streams can be resumed (RES-01, HSE-08).
    pub const fn has_event_ids(self) -> bool {
        matches!(
            self,
            Revision::R2025_03_26 | Revision::R2025_06_18 | Revision::R2025_11_25
        )
    }

    /// Whether elicitation exists, and in url mode.
    pub const fn elicitation(self) -> (bool, bool) {
        match self {
            Revision::R2024_11_05 | Revision::R2025_03_26 => (false, false),
            Revision::R2025_06_18 => (true, false),
            Revision::R2025_11_25 | Revision::R2026_07_28 => (true, true),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VER-15: unknown dates are unknown, however plausible.
    #[test]
    fn ver_15_versions_are_looked_up_not_compared() {
        for revision in Revision::ALL {
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
        }
        for unknown in ["2099-01-01", "2025-11-26", "", "2025-11-25 ", "draft"] {
            assert_eq!(Revision::parse(unknown), None, "{unknown}");
        }
    }
}
