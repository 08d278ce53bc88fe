//! What replicas tell each other. A hint may be lost: what it says is found by polling, or with
//! the next answer of the store, as well (EL-10).

use std::sync::Arc;

use bytes::Bytes;
use vestibule_store::ReplicaId;
use vestibule_store::redis::Slot;

use super::keys;
use crate::event_id::StreamId;

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A stream that you follow has more.
    Appended,
    /// You own a stream no longer; its readers are to be closed.
    Fenced,
    /// A newer reader of a stream has come; yours is to be closed.
    Superseded,
    /// Your readers of a stream are closed.
    Closed,
    /// A standalone reader of yours is one too many.
    Evicted,
    /// Something waits for a standalone reader of yours.
    Waiting,
    /// A question of yours will not be delivered.
    LostQuestion,
    /// The store may have lost something of a stream that you own.
    Repair,
    /// A stream is to be closed for now by whoever reads it.
    Pause,
    /// A session has ended.
    Gone,
}

const LETTERS: [(Kind, &str); 10] = [
    (Kind::Appended, "A"),
    (Kind::Fenced, "F"),
    (Kind::Superseded, "S"),
    (Kind::Closed, "C"),
    (Kind::Evicted, "E"),
    (Kind::Waiting, "W"),
    (Kind::LostQuestion, "Q"),
    (Kind::Repair, "R"),
    (Kind::Pause, "P"),
    (Kind::Gone, "G"),
];

/// One hint: `kind tag stream number rest`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hint {
    pub(super) kind: Kind,
    /// The tag of the session's slot.
    pub(super) tag: Arc<str>,
    pub(super) stream: Option<StreamId>,
    pub(super) number: u64,
    /// Who says it, or the question.
    pub(super) rest: Arc<str>,
}

impl Hint {
    /// A hint of this replica about a stream.
    pub(super) fn new(kind: Kind, slot: &Slot, id: StreamId, me: &ReplicaId) -> Self {
        Self {
            kind,
            tag: Arc::from(slot.tag()),
            stream: Some(id),
            number: 0,
            rest: Arc::from(me.as_str()),
        }
    }

    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut parts = text.splitn(5, ' ');
        let letter = parts.next()?;
        let (kind, _) = LETTERS.iter().find(|(_, known)| *known == letter)?;
        Some(Self {
            kind: *kind,
            tag: Arc::from(parts.next()?),
            stream: keys::stream_of(parts.next()?),
            number: parts.next()?.parse().ok()?,
            rest: Arc::from(parts.next()?),
        })
    }

    pub(super) fn text(&self) -> Bytes {
        let known = LETTERS.iter().find(|(kind, _)| *kind == self.kind);
        let letter = known.map_or("", |(_, letter)| letter);
        let stream = self.stream.map_or_else(|| "-".to_owned(), keys::name_of);
        let Self {
            tag, number, rest, ..
        } = self;
        Bytes::from(format!("{letter} {tag} {stream} {number} {rest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for (kind, _) in LETTERS {
            for stream in [None, Some(StreamId::mint(true))] {
                let hint = Hint {
                    kind,
                    tag: Arc::from("tag"),
                    stream,
                    number: 7,
                    rest: Arc::from("a question with blanks"),
                };
                assert_eq!(Hint::parse(&hint.text()), Some(hint));
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        for bad in [
            "",
            "A",
            "A tag",
            "A tag - x me",
            "Z tag - 1 me",
            "A tag - 1",
            "\u{0}",
        ] {
            assert_eq!(Hint::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Hint::parse(&[0xFF, 0xFE]), None);
    }
}
