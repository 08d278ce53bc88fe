//! What belongs to a session.

use bytes::Bytes;

use super::super::Slot;
use super::index::{number, unreadable};
use super::record::{self, field};
use super::scripts;
use super::work::Work;
use crate::belongings::{MOST, MOST_BYTES};
use crate::{Kept, Kind, SessionKey, StoreError};

impl Work {
    pub(super) async fn keep(
        &self,
        key: &SessionKey,
        kind: Kind,
        name: &str,
        record: Bytes,
    ) -> Result<Option<Kept>, StoreError> {
        let more = vec![field(kind, name), record, number(MOST), number(MOST_BYTES)];
        let now = self.clock.unix_millis();
        let told = self.ask(&scripts::KEEP, &Slot::of(key), now, more).await?;
        match told.list() {
            [record, mine] => Ok(Some(Kept {
                record: record.bytes().ok_or_else(unreadable)?.clone(),
                mine: mine.int() == Some(1),
            })),
            _ if told.is_nil() => Ok(None),
            _ => Err(StoreError::NoRoom(kind.as_str())),
        }
    }

    pub(super) async fn kept(
        &self,
        key: &SessionKey,
        kind: Kind,
        name: &str,
    ) -> Result<Option<Bytes>, StoreError> {
        let (now, more) = (self.clock.unix_millis(), vec![field(kind, name)]);
        let told = self.ask(&scripts::KEPT, &Slot::of(key), now, more).await?;
        Ok(told.bytes().cloned())
    }

    pub(super) async fn all_kept(
        &self,
        key: &SessionKey,
        kind: Kind,
    ) -> Result<Vec<(String, Bytes)>, StoreError> {
        let (now, more) = (self.clock.unix_millis(), vec![field(kind, "")]);
        let told = self
            .ask(&scripts::ALL_KEPT, &Slot::of(key), now, more)
            .await?;
        let all = record::belongings(told.list()).into_iter();
        Ok(all.map(|one| (one.name, one.record)).collect())
    }

    pub(super) async fn swap_kept(
        &self,
        key: &SessionKey,
        (kind, name): (Kind, &str),
        expected: &[u8],
        record: Option<Bytes>,
    ) -> Result<bool, StoreError> {
        let mut more = vec![
            field(kind, name),
            Bytes::copy_from_slice(expected),
            number(MOST_BYTES),
        ];
        more.extend(record);
        let now = self.clock.unix_millis();
        let told = self.ask(&scripts::SWAP, &Slot::of(key), now, more).await?;
        match told.int() {
            Some(1) => Ok(true),
            Some(0) => Ok(false),
            _ => Err(StoreError::NoRoom(kind.as_str())),
        }
    }
}
