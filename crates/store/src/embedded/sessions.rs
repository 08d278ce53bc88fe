//! Sessions that survive their process: in memory as [`MemorySessions`](crate::MemorySessions) has
//! them, and every change of a record on disk.
//!
//! A change is submitted under the same lock under which it is made, so that the disk sees the
//! changes of a session in their order. What tells a caller something he may rely on after a
//! restart waits for the disk: [`Sessions::update`], [`Sessions::keep`] and
//! [`Sessions::swap_kept`] themselves; for [`Sessions::create`] and
//! [`Sessions::end`], which hand out what must not be dropped half way, the log's
//! `begin_session` and `forget_session` do. When a session was last used is written down once a
//! minute.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use vestibule_terms::{Clock, TenantId};

use super::change::{Change, Contents, Space};
use super::record;
use super::{Disk, Source};
use crate::sessions::done;
use crate::tables::Tables;
use crate::{
    Caps, Created, Ended, Kept, Kind, Lifetimes, Opening, Pending, SessionKey, Sessions, State,
    Stored, Update,
};

/// How often it is written down when sessions were last used.
const SEEN_EVERY: Duration = Duration::from_secs(60);

/// What a restart adds to the number of a session's next question: more than can have been asked
/// since the record was last written, should the disk have failed before the process did.
const QUESTIONS_SKIPPED: u64 = 1 << 20;

/// The on-disk [`Sessions`].
pub struct EmbeddedSessions {
    tables: Tables,
    disk: Arc<Disk>,
    noted: Mutex<Instant>,
}

impl EmbeddedSessions {
    /// The sessions that are on the disk, with the time they have left.
    pub fn open(
        disk: &Arc<Disk>,
        contents: &mut Contents,
        lifetimes: Lifetimes,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let sessions = Arc::new(Self {
            tables: Tables::new(lifetimes, clock),
            disk: Arc::clone(disk),
            noted: Mutex::new(Instant::now()),
        });
        sessions.restore(contents);
        let source: Arc<dyn Source> = Arc::clone(&sessions) as Arc<dyn Source>;
        disk.register(Arc::downgrade(&source));
        sessions
    }

    /// Every session, also one whose time is over and that nobody has swept yet.
    pub fn all(&self) -> Vec<Stored> {
        let tables = self.tables.tenants.iter();
        tables.flat_map(|table| table.all()).collect()
    }

    fn restore(&self, contents: &mut Contents) {
        let seen = record::seen_times(contents.take(Space::Seen));
        let mut tenants: HashMap<TenantId, Vec<Stored>> = HashMap::new();
        for (name, record) in contents.take(Space::Sessions) {
            let Some(mut stored) = record::session_of(record) else {
                self.disk
                    .submit(vec![record::delete(Space::Sessions, name)]);
                continue;
            };
            let seen = seen.get(&name).copied().unwrap_or(stored.opening.created);
            let mut state = State::clone(&stored.state);
            state.next_question += QUESTIONS_SKIPPED;
            stored.state = Arc::new(state);
            stored.last_seen = seen;
            let tenant = stored.key.tenant().clone();
            tenants.entry(tenant).or_default().push(stored);
        }
        for (tenant, stored) in tenants {
            let mut table = self.tables.tenants.entry(tenant).or_default();
            table.restore(stored, self.tables.now());
        }
        self.restore_belongings(contents);
    }

    /// Those of sessions that are no more go.
    fn restore_belongings(&self, contents: &mut Contents) {
        for (name, record) in contents.take(Space::Belongings) {
            let kept = record::belonging_of(name.clone(), record).and_then(|(key, one)| {
                let mut table = self.tables.tenants.get_mut(key.tenant())?;
                table.restore_belonging(&key, one)
            });
            if kept.is_none() {
                self.disk
                    .submit(vec![record::delete(Space::Belongings, name)]);
            }
        }
    }

    /// Writes down when sessions were last used, if it is time to.
    fn note_seen(&self) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.elapsed() < SEEN_EVERY {
            return;
        }
        *noted = Instant::now();
        drop(noted);
        for mut table in self.tables.tenants.iter_mut() {
            let seen = table.take_seen(self.tables.clock.unix_millis());
            let changes: Vec<Change> = seen.iter().map(record::seen).collect();
            if !changes.is_empty() {
                self.disk.submit(changes);
            }
        }
    }
}

fn removed(ended: &[Ended]) -> Vec<Change> {
    ended
        .iter()
        .flat_map(|ended| record::removed(&ended.session.key))
        .collect()
}

impl Sessions for EmbeddedSessions {
    fn create(&self, key: SessionKey, opening: Opening, caps: Caps) -> Pending<'_, Created> {
        done(self.tables.create(key, opening, caps, |created| {
            let mut changes = removed(&created.evicted);
            changes.extend(record::created(&created.session));
            self.disk.submit(changes);
        }))
    }

    fn get<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(Ok(self.tables.get(key)))
    }

    fn touch<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(Ok(self.tables.touch(key)))
    }

    fn update<'a>(
        &'a self,
        key: &'a SessionKey,
        version: u64,
        state: State,
    ) -> Pending<'a, Update> {
        let mut mark = 0;
        let update = self.tables.update(key, version, state, |update| {
            if let Update::Done(stored) = update {
                mark = self.disk.submit(vec![record::session(stored)]);
            }
        });
        Box::pin(async move {
            self.disk.settle(mark).await;
            Ok(update)
        })
    }

    fn stream_opened<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(Ok(self.tables.stream_opened(key)))
    }

    fn stream_closed(&self, key: &SessionKey) {
        self.tables.stream_closed(key);
    }

    fn keep<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        record: Bytes,
    ) -> Pending<'a, Option<Kept>> {
        let mut mark = 0;
        let kept = self.tables.belongings(key, |all| {
            let kept = all.keep(kind, name, record)?;
            if kept.mine {
                let put = record::belonging(key, kind, name, Some(&kept.record));
                mark = self.disk.submit(vec![put]);
            }
            Ok(kept)
        });
        Box::pin(async move {
            self.disk.settle(mark).await;
            kept.transpose()
        })
    }

    fn kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
    ) -> Pending<'a, Option<Bytes>> {
        let found = self.tables.belongings(key, |all| all.get(kind, name));
        done(Ok(found.flatten()))
    }

    fn all_kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
    ) -> Pending<'a, Vec<(String, Bytes)>> {
        let found = self.tables.belongings(key, |all| all.of_kind(kind));
        done(Ok(found.unwrap_or_default()))
    }

    fn swap_kept<'a>(
        &'a self,
        key: &'a SessionKey,
        kind: Kind,
        name: &'a str,
        expected: &'a [u8],
        record: Option<Bytes>,
    ) -> Pending<'a, bool> {
        let mut mark = 0;
        let swapped = self.tables.belongings(key, |all| {
            let swapped = all.swap(kind, name, expected, record.clone())?;
            if swapped {
                let change = record::belonging(key, kind, name, record.as_deref());
                mark = self.disk.submit(vec![change]);
            }
            Ok(swapped)
        });
        Box::pin(async move {
            self.disk.settle(mark).await;
            swapped.unwrap_or(Ok(false))
        })
    }

    fn end<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Ended>> {
        done(Ok(self.tables.end(key, |_| {
            self.disk.submit(record::removed(key).into());
        })))
    }

    fn sweep(&self) -> Pending<'_, Vec<Ended>> {
        let ended = self.tables.sweep(|over| {
            self.disk.submit(removed(over));
        });
        self.note_seen();
        done(Ok(ended))
    }

    fn count<'a>(&'a self, tenant: &'a TenantId, principal: Option<&'a str>) -> Pending<'a, usize> {
        done(Ok(self.tables.count(tenant, principal)))
    }

    fn list<'a>(&'a self, tenant: &'a TenantId, max: usize) -> Pending<'a, Vec<Stored>> {
        done(Ok(self.tables.list(tenant, max)))
    }
}

impl Source for EmbeddedSessions {
    fn dump(&self, put: &mut dyn FnMut(Vec<Change>)) {
        let tenants = self.tables.tenants.iter();
        let all: Vec<_> = tenants.flat_map(|table| table.everything()).collect();
        for (stored, belongings) in all {
            let mut changes: Vec<Change> = record::created(&stored).into();
            let belongings = belongings.into_all();
            changes.extend(
                belongings.iter().map(|one| {
                    record::belonging(&stored.key, one.kind, &one.name, Some(&one.record))
                }),
            );
            put(changes); // no table is locked while the disk works
        }
    }
}

impl fmt::Debug for EmbeddedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedSessions")
            .field("tables", &self.tables)
            .finish_non_exhaustive()
    }
}
