//! What belongs to a session besides its record: small records of other rooms, by kind and name,
//! that end with it. Pure bookkeeping.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::StoreError;

/// How many a session may have.
pub(crate) const MOST: usize = 256;
/// How many bytes they may be, names and records together.
pub(crate) const MOST_BYTES: usize = 256 << 10;

/// What a belonging is. The letters are part of what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A session with an upstream.
    Upstream,
    /// A question to the client that waits for its answer.
    Question,
    /// A call that waits between two rounds at its upstream.
    Round,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Upstream, Kind::Question, Kind::Round];

    /// How it is written down.
    pub(crate) const fn letter(self) -> u8 {
        match self {
            Kind::Upstream => b'u',
            Kind::Question => b'q',
            Kind::Round => b'r',
        }
    }

    /// Reads what [`Kind::letter`] wrote.
    pub(crate) fn of(letter: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.letter() == letter)
    }

    /// The label of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Upstream => "upstream",
            Kind::Question => "question",
            Kind::Round => "round",
        }
    }
}

/// What is there now under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The record.
    pub record: Bytes,
    /// Whether it is the caller's, stored by this call.
    pub mine: bool,
}

/// One belonging, of a session that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Belonging {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The record.
    pub record: Bytes,
}

/// All of one session.
#[derive(Debug, Default, Clone)]
pub(crate) struct Belongings {
    records: BTreeMap<(Kind, String), Bytes>,
    bytes: usize,
}

impl Belongings {
    pub(crate) fn keep(
        &mut self,
        kind: Kind,
        name: &str,
        record: Bytes,
    ) -> Result<Kept, StoreError> {
        if let Some(there) = self.get(kind, name) {
            return Ok(Kept {
                record: there,
                mine: false,
            });
        }
        if self.records.len() >= MOST || self.bytes + name.len() + record.len() > MOST_BYTES {
            return Err(StoreError::NoRoom(kind.as_str()));
        }
        self.put(kind, name, record.clone());
        Ok(Kept { record, mine: true })
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<Bytes> {
        self.records.get(&(kind, name.to_owned())).cloned()
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> Vec<(String, Bytes)> {
        let of_kind = self.records.range((kind, String::new())..);
        of_kind
            .take_while(|((of, _), _)| *of == kind)
            .map(|((_, name), record)| (name.clone(), record.clone()))
            .collect()
    }

    pub(crate) fn swap(
        &mut self,
        kind: Kind,
        name: &str,
        expected: &[u8],
        record: Option<Bytes>,
    ) -> Result<bool, StoreError> {
        let Some(there) = self.get(kind, name).filter(|there| there == expected) else {
            return Ok(false);
        };
        let Some(record) = record else {
            self.bytes -= name.len() + there.len();
            self.records.remove(&(kind, name.to_owned()));
            return Ok(true);
        };
        if self.bytes - there.len() + record.len() > MOST_BYTES {
            return Err(StoreError::NoRoom(kind.as_str()));
        }
        self.put(kind, name, record);
        Ok(true)
    }

    /// Takes back a record of an earlier process.
    pub(crate) fn put(&mut self, kind: Kind, name: &str, record: Bytes) {
        let length = record.len();
        let before = self.records.insert((kind, name.to_owned()), record);
        self.bytes += length;
        self.bytes -= before.map_or(0, |before| before.len() + name.len());
        self.bytes += name.len();
    }

    pub(crate) fn into_all(self) -> Vec<Belonging> {
        let all = self.records.into_iter();
        all.map(|((kind, name), record)| Belonging { kind, name, record })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_through_every_change() {
        let mut belongings = Belongings::default();
        let record = |length| Bytes::from(vec![7; length]);
        belongings.keep(Kind::Question, "a", record(10)).unwrap();
        assert_eq!(belongings.bytes, 11);
        belongings.keep(Kind::Question, "a", record(50)).unwrap();
        assert_eq!(belongings.bytes, 11, "what is there stays");
        let swap = |belongings: &mut Belongings, expected, record| {
            belongings
                .swap(Kind::Question, "a", &vec![7; expected], record)
                .unwrap()
        };
        assert!(!swap(&mut belongings, 9, None));
        assert!(swap(&mut belongings, 10, Some(record(4))));
        assert_eq!(belongings.bytes, 5);
        assert!(swap(&mut belongings, 4, None));
        assert_eq!(belongings.bytes, 0);
        assert!(!swap(&mut belongings, 4, None));
    }

    #[test]
    fn kinds_are_read_from_their_letters() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.letter()), Some(kind));
        }
        assert_eq!(Kind::of(b'x'), None);
    }
}
