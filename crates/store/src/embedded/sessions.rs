//! Sessions that survive their process: in memory as [`MemorySessions`](crate::MemorySessions) has
//! them, and every change of a record on disk.
//!
//! A change is submitted under the same lock under which it is made, so that the disk sees the
//! changes of a session in their order. What tells a caller something he may rely on after a
//! restart waits for the disk: [`Sessions::update`] itself; for [`Sessions::create`] and
//! [`Sessions::end`], which hand out what must not be dropped half way, the log's
//! `begin_session` and `forget_session` do. When a session was last used is written down once a
//! minute.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;
use vestibule_terms::{Clock, TenantId};

use super::change::{Change, Contents, Space};
use super::record;
use super::{Disk, Source};
use crate::table::{Now, Table};
use crate::{
    Caps, Created, Ended, Lifetimes, Opening, Pending, SessionKey, Sessions, State, Stored, Update,
};

/// How often it is written down when sessions were last used.
const SEEN_EVERY: Duration = Duration::from_secs(60);

/// What a restart adds to the number of a session's next question: more than can have been asked
/// since the record was last written, should the disk have failed before the process did.
const QUESTIONS_SKIPPED: u64 = 1 << 20;

/// The on-disk [`Sessions`].
pub struct EmbeddedSessions {
    tenants: DashMap<TenantId, Table>,
    lifetimes: Lifetimes,
    clock: Arc<dyn Clock>,
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
            tenants: DashMap::new(),
            lifetimes,
            clock,
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
        let tables = self.tenants.iter();
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
            let mut table = self.tenants.entry(tenant).or_default();
            table.restore(stored, self.now());
        }
    }

    fn now(&self) -> Now {
        Now {
            instant: Instant::now(),
            unix_millis: self.clock.unix_millis(),
        }
    }

    fn with<T>(&self, key: &SessionKey, act: impl FnOnce(&mut Table) -> Option<T>) -> Option<T> {
        self.tenants
            .get_mut(key.tenant())
            .and_then(|mut table| act(&mut table))
    }

    /// Writes down when sessions were last used, if it is time to.
    fn note_seen(&self) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.elapsed() < SEEN_EVERY {
            return;
        }
        *noted = Instant::now();
        drop(noted);
        for mut table in self.tenants.iter_mut() {
            let seen = table.take_seen(self.clock.unix_millis());
            let changes: Vec<Change> = seen.iter().map(record::seen).collect();
            if !changes.is_empty() {
                self.disk.submit(changes);
            }
        }
    }
}

/// Everything here is done when the call returns; the future only carries the result.
fn done<'a, T: Send + 'a>(value: T) -> Pending<'a, T> {
    Box::pin(ready(Ok(value)))
}

fn removed(ended: &[Ended]) -> Vec<Change> {
    ended
        .iter()
        .flat_map(|ended| record::removed(&ended.session.key))
        .collect()
}

impl Sessions for EmbeddedSessions {
    fn create(&self, key: SessionKey, opening: Opening, caps: Caps) -> Pending<'_, Created> {
        let mut table = self.tenants.entry(key.tenant().clone()).or_default();
        let created = table
            .create(key, opening, caps, self.now())
            .map(|(session, evicted)| Created { session, evicted });
        if let Ok(created) = &created {
            let mut changes = removed(&created.evicted);
            changes.extend(record::created(&created.session));
            self.disk.submit(changes);
        }
        Box::pin(ready(created))
    }

    fn get<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        let table = self.tenants.get(key.tenant());
        done(table.and_then(|table| table.get(key, &self.lifetimes, Instant::now())))
    }

    fn touch<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(self.with(key, |table| table.touch(key, &self.lifetimes, self.now())))
    }

    fn update<'a>(
        &'a self,
        key: &'a SessionKey,
        version: u64,
        state: State,
    ) -> Pending<'a, Update> {
        let live = (&self.lifetimes, Instant::now());
        let changed = self.with(key, |table| {
            let update = table.update(key, version, state, live);
            let mark = match &update {
                Update::Done(stored) => self.disk.submit(vec![record::session(stored)]),
                Update::Conflict(_) | Update::Gone => 0,
            };
            Some((update, mark))
        });
        let (update, mark) = changed.unwrap_or((Update::Gone, 0));
        Box::pin(async move {
            self.disk.settle(mark).await;
            Ok(update)
        })
    }

    fn stream_opened<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Stored>> {
        done(self.with(key, |table| {
            table.stream_opened(key, &self.lifetimes, self.now())
        }))
    }

    fn stream_closed(&self, key: &SessionKey) {
        self.with(key, |table| {
            table.stream_closed(key, self.now());
            Some(())
        });
    }

    fn end<'a>(&'a self, key: &'a SessionKey) -> Pending<'a, Option<Ended>> {
        done(self.with(key, |table| {
            let ended = table.end(key, &self.lifetimes, Instant::now())?;
            self.disk.submit(record::removed(key).into());
            Some(ended)
        }))
    }

    fn sweep(&self) -> Pending<'_, Vec<Ended>> {
        let now = Instant::now();
        let mut ended = Vec::new();
        self.tenants.retain(|_, table| {
            let over = table.sweep(&self.lifetimes, now);
            if !over.is_empty() {
                self.disk.submit(removed(&over));
            }
            ended.extend(over);
            !table.is_empty()
        });
        self.note_seen();
        done(ended)
    }

    fn count<'a>(&'a self, tenant: &'a TenantId, principal: Option<&'a str>) -> Pending<'a, usize> {
        done(
            self.tenants
                .get(tenant)
                .map_or(0, |table| table.count(principal)),
        )
    }

    fn list<'a>(&'a self, tenant: &'a TenantId, max: usize) -> Pending<'a, Vec<Stored>> {
        let table = self.tenants.get(tenant);
        done(table.map_or(vec![], |table| {
            table.list(max, &self.lifetimes, Instant::now())
        }))
    }
}

impl Source for EmbeddedSessions {
    fn dump(&self, put: &mut dyn FnMut(Vec<Change>)) {
        for stored in self.all() {
            put(record::created(&stored).into()); // no table is locked while the disk works
        }
    }
}

impl fmt::Debug for EmbeddedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedSessions")
            .field("tenants", &self.tenants.len())
            .field("lifetimes", &self.lifetimes)
            .finish_non_exhaustive()
    }
}
