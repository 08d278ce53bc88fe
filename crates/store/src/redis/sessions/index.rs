//! Which sessions a tenant has: for the caps, for the order of use, to find those whose time is over.
//!
//! The index is beside the sessions, in a slot of the tenant, and is changed by scripts of its own: in
//! it first when a session begins, out of it last when one has ended. So it may name sessions that are
//! not there, never the other way round for long: who finds such a name removes it, and a session that
//! is used finds that its name is missing.
//!
//! A session's *use* is the moment it was used last, or one still to come, until which it is in use,
//! because it has an open stream.

use bytes::Bytes;
use vestibule_terms::{Revision, TenantId};

use super::super::names::{TAG_LENGTH, short_name};
use super::super::{Key, Redis, Reply, Slot};
use super::scripts;
use crate::{Caps, SessionKey, StoreError};

/// Where a session is: its slot, and the principal whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: Slot,
    principal: String,
}

impl Place {
    fn text(&self) -> Bytes {
        Bytes::from(format!("{}{}", self.slot.tag(), self.principal))
    }

    /// Reads that; what comes after it is the session's revision.
    fn parse(text: &str) -> Option<Self> {
        let (slot, more) = text.split_at_checked(TAG_LENGTH)?;
        let (principal, _revision) = more.split_at_checked(TAG_LENGTH)?;
        Some(Self {
            slot: Slot::from_tag(slot)?,
            principal: principal.to_owned(),
        })
    }
}

/// One session in the index. Its name says nothing of its principal, so that an id is there once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    name: String,
    pub(super) place: Place,
}

impl Entry {
    pub(super) fn of(key: &SessionKey) -> Self {
        let (tenant, id) = (key.tenant().as_str(), key.id().expose());
        Self {
            name: short_name(&[b"id", tenant.as_bytes(), id.as_bytes()]),
            place: Place {
                slot: Slot::of(key),
                principal: principal(key.tenant(), key.principal()),
            },
        }
    }

    /// The same name, for what is elsewhere.
    pub(super) fn at(&self, place: Place) -> Self {
        Self {
            name: self.name.clone(),
            place,
        }
    }

    fn name(&self) -> Bytes {
        Bytes::copy_from_slice(self.name.as_bytes())
    }

    /// Names and places in turn.
    fn several(found: &[Reply]) -> Vec<Self> {
        let pairs = found.chunks_exact(2);
        pairs
            .filter_map(|pair| Self::one(&pair[0], &pair[1]))
            .collect()
    }

    fn one(name: &Reply, place: &Reply) -> Option<Self> {
        Some(Self {
            name: name.text()?.to_owned(),
            place: Place::parse(place.text()?)?,
        })
    }
}

fn principal(tenant: &TenantId, principal: &str) -> String {
    short_name(&[
        b"principal",
        tenant.as_str().as_bytes(),
        principal.as_bytes(),
    ])
}

/// Sessions of which some must make room, the first of them that can, and when the index heard last of
/// a use of each.
#[derive(Debug)]
pub(super) struct Victims {
    pub(super) needed: usize,
    pub(super) sessions: Vec<(Entry, u64)>,
}

impl Victims {
    fn read(needed: &Reply, found: &Reply) -> Option<Self> {
        let session = |three: &[Reply]| {
            let [name, place, used] = three else {
                return None;
            };
            let entry = Entry::one(name, place)?;
            Some((entry, used.text()?.parse().ok()?))
        };
        let sessions = found.list().chunks_exact(3).filter_map(session);
        Some(Self {
            needed: needed.count()?.try_into().ok()?,
            sessions: sessions.collect(),
        })
    }
}

/// Whether a session may begin.
#[derive(Debug)]
pub(super) enum Entered {
    /// It may, and is in the index.
    Yes,
    /// One of that id is there.
    Exists(Place),
    /// So many of these must end before; nothing has been changed.
    Over([Victims; 2]),
    /// It may not.
    Full(StoreError),
}

/// The index of one tenant.
pub(super) struct Index<'a> {
    redis: &'a Redis,
    slot: Slot,
    /// What nobody renews runs out.
    net: Bytes,
}

impl<'a> Index<'a> {
    pub(super) fn of(redis: &'a Redis, tenant: &TenantId, net: Bytes) -> Self {
        Self {
            redis,
            slot: Slot::of_tenant(tenant),
            net,
        }
    }

    fn uses_of(&self, principal: &str) -> Key {
        self.slot.key(&format!("uses:{principal}"))
    }

    /// Places, ages, uses, the uses of the principal, and how many there are of each revision.
    fn keys(&self, place: &Place) -> [Key; 5] {
        let [places, ages, uses, revisions] =
            ["places", "ages", "uses", "revisions"].map(|suffix| self.slot.key(suffix));
        [
            places,
            ages,
            uses,
            self.uses_of(&place.principal),
            revisions,
        ]
    }

    /// Enters a session, within the caps. Without caps it is one that is there.
    pub(super) async fn enter(
        &self,
        entry: &Entry,
        revision: Revision,
        now: u64,
        caps: Option<Caps>,
    ) -> Result<Entered, StoreError> {
        let within = caps.unwrap_or_default();
        let args = vec![
            entry.name(),
            entry.place.text(),
            number(now),
            number(within.per_principal),
            number(within.per_tenant),
            self.net.clone(),
            number(u8::from(caps.is_none())),
            Bytes::from_static(revision.as_str().as_bytes()),
        ];
        let keys = self.keys(&entry.place);
        let reply = self
            .redis
            .run(&scripts::ENTER, &self.slot, &keys, args)
            .await?;
        let [what, more @ ..] = reply.list() else {
            return Err(unreadable());
        };
        let count = || more.first()?.count()?.try_into().ok();
        Ok(match (what.text(), more) {
            (Some("OK"), _) => Entered::Yes,
            (Some("EXISTS"), [place]) => {
                let place = place.text().and_then(Place::parse);
                Entered::Exists(place.ok_or_else(unreadable)?)
            }
            (Some("EVICT"), [mine, my_victims, all, victims]) => {
                let victims = [(mine, my_victims), (all, victims)];
                let [mine, all] = victims.map(|(needed, found)| Victims::read(needed, found));
                Entered::Over([mine.ok_or_else(unreadable)?, all.ok_or_else(unreadable)?])
            }
            (Some("PRINCIPAL"), _) => {
                Entered::Full(StoreError::PrincipalFull(count().ok_or_else(unreadable)?))
            }
            (Some("TENANT"), _) => {
                Entered::Full(StoreError::TenantFull(count().ok_or_else(unreadable)?))
            }
            _ => return Err(unreadable()),
        })
    }

    /// Notes a use; `false` when the session is not in the index.
    pub(super) async fn used(&self, entry: &Entry, at: u64) -> Result<bool, StoreError> {
        let [places, ages, uses, mine, revisions] = self.keys(&entry.place);
        let keys = [places, uses, mine, ages, revisions];
        let args = vec![entry.name(), number(at), self.net.clone()];
        let reply = self.redis.run(&scripts::USED, &self.slot, &keys, args);
        Ok(reply.await?.int() == Some(1))
    }

    /// Removes a session that has ended.
    pub(super) async fn leave(&self, entry: &Entry) -> Result<(), StoreError> {
        let keys = self.keys(&entry.place);
        let args = vec![entry.name(), entry.place.text()];
        let reply = self.redis.run(&scripts::LEAVE, &self.slot, &keys, args);
        reply.await.map(drop)
    }

    /// How many sessions of each revision there are, and some that were not used since the one
    /// moment or were born before the other.
    pub(super) async fn over(
        &self,
        used: Option<u64>,
        born: Option<u64>,
        most: usize,
    ) -> Result<(Vec<(Revision, usize)>, Vec<Entry>), StoreError> {
        let keys = ["places", "ages", "uses", "revisions"].map(|suffix| self.slot.key(suffix));
        let moment = |at: Option<u64>| at.map_or(Bytes::from_static(b"-inf"), number);
        let args = vec![moment(used), moment(born), number(most)];
        let reply = self
            .redis
            .run(&scripts::OVER, &self.slot, &keys, args)
            .await?;
        match reply.list() {
            [counts, found] => Ok((revisions(counts.list()), Entry::several(found.list()))),
            _ => Err(unreadable()),
        }
    }

    /// Some sessions by their age, from that one on.
    pub(super) async fn oldest(&self, from: usize, most: usize) -> Result<Vec<Entry>, StoreError> {
        let keys = ["places", "ages"].map(|suffix| self.slot.key(suffix));
        let args = vec![number(from), number(from + most - 1)];
        let reply = self.redis.run(&scripts::OLDEST, &self.slot, &keys, args);
        Ok(Entry::several(reply.await?.list()))
    }

    /// How many sessions the tenant has, or the principal.
    pub(super) async fn count(
        &self,
        tenant: &TenantId,
        whose: Option<&str>,
    ) -> Result<usize, StoreError> {
        let key = match whose {
            Some(whose) => self.uses_of(&principal(tenant, whose)),
            None => self.slot.key("ages"),
        };
        let keys = [key];
        let reply = self.redis.run(&scripts::COUNT, &self.slot, &keys, vec![]);
        let count = reply.await?.count().ok_or_else(unreadable)?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }
}

/// Revisions and their numbers in turn.
fn revisions(counts: &[Reply]) -> Vec<(Revision, usize)> {
    let one = |pair: &[Reply]| {
        let count = pair[1].count()?.try_into().ok()?;
        Some((Revision::parse(pair[0].text()?)?, count))
    };
    counts.chunks_exact(2).filter_map(one).collect()
}

pub(super) fn number(number: impl ToString) -> Bytes {
    Bytes::from(number.to_string())
}

/// Somebody else has written what is there.
pub(super) fn unreadable() -> StoreError {
    StoreError::Refused("what it holds: it cannot be read".to_owned())
}
