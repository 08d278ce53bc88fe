//! What rooms put on disk: named records in a few spaces, changed in order.

use std::collections::HashMap;

use aws_lc_rs::digest;
use bytes::Bytes;

/// The length of a record's checksum.
const SUM: usize = 8;

/// A kind of records. The names are part of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// What the store remembers of itself.
    Meta,
    /// Sessions.
    Sessions,
    /// When each was last used.
    Seen,
    /// What belongs to them.
    Belongings,
    /// Streams.
    Streams,
    /// Their events.
    Events,
    /// Events that wait for a standalone stream.
    Waiting,
}

impl Space {
    pub(super) const ALL: [Space; 7] = [
        Space::Meta,
        Space::Sessions,
        Space::Seen,
        Space::Belongings,
        Space::Streams,
        Space::Events,
        Space::Waiting,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Space::Meta => "meta",
            Space::Sessions => "sessions",
            Space::Seen => "seen",
            Space::Belongings => "belongings",
            Space::Streams => "streams",
            Space::Events => "events",
            Space::Waiting => "waiting",
        }
    }
}

/// One change of what is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writes a record, over an older one of that name.
    Put {
        /// Where.
        space: Space,
        /// Its name.
        key: Vec<u8>,
        /// What it says.
        record: Vec<u8>,
    },
    /// Removes a record, if there is one.
    Delete {
        /// Where.
        space: Space,
        /// Its name.
        key: Vec<u8>,
    },
    /// Removes the records of these names.
    DeleteRange {
        /// Where.
        space: Space,
        /// The first name.
        from: Vec<u8>,
        /// The name after the last.
        to: Vec<u8>,
    },
}

impl Change {
    /// What it takes in memory, about.
    pub(super) fn size(&self) -> usize {
        match self {
            Change::Put { key, record, .. } => key.len() + record.len(),
            Change::Delete { key, .. } => key.len(),
            Change::DeleteRange { from, to, .. } => from.len() + to.len(),
        }
    }
}

/// A record's checksum, which covers its place: a record that turns up under another name is as
/// bad as a changed one.
fn sum(space: Space, key: &[u8], record: &[u8]) -> [u8; SUM] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(space.name().as_bytes());
    context.update(&(key.len() as u64).to_be_bytes());
    context.update(key);
    context.update(record);
    let whole = context.finish();
    *whole
        .as_ref()
        .first_chunk()
        .expect("SHA-256 is longer than a checksum")
}

/// The record as it stands in the file.
pub(super) fn with_sum(space: Space, key: &[u8], record: &[u8]) -> Vec<u8> {
    [&sum(space, key, record)[..], record].concat()
}

/// The record, if it is what was written under that name.
pub(super) fn without_sum(space: Space, key: &[u8], stored: &[u8]) -> Option<Bytes> {
    let (written, record) = stored.split_first_chunk::<SUM>()?;
    (*written == sum(space, key, record)).then(|| Bytes::copy_from_slice(record))
}

/// What was on disk when it was opened. Each room takes its own.
#[derive(Debug, Default)]
pub struct Contents {
    pub(super) spaces: HashMap<Space, Vec<(Vec<u8>, Bytes)>>,
    /// Records that were there and were not what had been written.
    pub(super) bad: usize,
}

impl Contents {
    /// The good records of a space, ordered by name; none the second time.
    pub fn take(&mut self, space: Space) -> Vec<(Vec<u8>, Bytes)> {
        self.spaces.remove(&space).unwrap_or_default()
    }

    pub(super) fn records(&self) -> usize {
        self.spaces.values().map(Vec::len).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        let records = self.spaces.values().flatten();
        records
            .map(|(key, record)| (key.len() + record.len()) as u64)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_good_only_as_it_was_written_where_it_was_written() {
        let stored = with_sum(Space::Events, b"k", b"record");
        let read = |space, key: &[u8], stored: &[u8]| without_sum(space, key, stored);
        assert_eq!(read(Space::Events, b"k", &stored).unwrap(), "record");
        assert_eq!(read(Space::Streams, b"k", &stored), None);
        assert_eq!(read(Space::Events, b"l", &stored), None);
        for (index, bit) in (0..stored.len()).flat_map(|i| (0..8).map(move |b| (i, b))) {
            let mut changed = stored.clone();
            changed[index] ^= 1 << bit;
            assert_eq!(read(Space::Events, b"k", &changed), None, "{index} {bit}");
        }
        assert_eq!(read(Space::Events, b"k", b"short"), None);
    }
}
