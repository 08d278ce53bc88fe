//! Names in Redis. A name of a session cannot be written down without its tenant (T48), and what
//! belongs to one session has one hash tag, so one slot of a cluster (EL-24).

use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use vestibule_terms::{TenantId, mutation};

use crate::{ReplicaId, SessionKey};

/// So much of a digest is in a tag: 128 bits, 22 characters.
const TAG_BYTES: usize = 16;
pub(super) const TAG_LENGTH: usize = 22;

/// A name for several things together, of [`TAG_LENGTH`] characters.
pub(super) fn short_name(parts: &[&[u8]]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let sum = context.finish();
    URL_SAFE_NO_PAD.encode(&sum.as_ref()[..TAG_BYTES])
}

/// A name of one value. Only a [`Slot`] makes it.
///
/// ```compile_fail
/// # use vestibule_store::redis::Key;
/// let key = Key::from("vestibule:somewhere");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Bytes);

impl Key {
    /// The name as the server knows it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is_of(&self, slot: &Slot) -> bool {
        self.0.starts_with(slot.key("").as_bytes())
    }

    /// The same, to be passed on.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }
}

/// What is stored together: all of one session, all the indexes of one tenant, all of one replica.
/// Keys of one slot may be used in one script.
///
/// ```compile_fail
/// # use vestibule_store::redis::Slot;
/// # use vestibule_terms::SessionId;
/// let slot = Slot::of(&SessionId::new("no tenant, no principal"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(Arc<str>);

impl Slot {
    /// That of a session. Tenant, principal and id are in it, so who names another of them names
    /// another slot (SES-02), and the id itself, which is a capability, is not.
    pub fn of(key: &SessionKey) -> Self {
        let tenant = mutated(key.tenant());
        Self::hashed(&[
            b"session",
            tenant.as_str().as_bytes(),
            key.principal().as_bytes(),
            key.id().expose().as_bytes(),
        ])
    }

    /// That of a tenant.
    pub fn of_tenant(tenant: &TenantId) -> Self {
        Self::hashed(&[b"tenant", tenant.as_str().as_bytes()])
    }

    /// That of a replica. Nothing of a tenant is in it but what is on its way.
    pub(crate) fn of_replica(replica: &ReplicaId) -> Self {
        Self(Arc::from(format!("replica.{replica}")))
    }

    /// That of the whole fleet.
    pub(crate) fn of_fleet() -> Self {
        Self(Arc::from("fleet"))
    }

    /// The slot whose [tag](Slot::tag) it is: what an index names is found again by it.
    pub fn from_tag(tag: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(tag).ok()?;
        (bytes.len() == TAG_BYTES).then(|| Self(Arc::from(tag)))
    }

    fn hashed(parts: &[&[u8]]) -> Self {
        Self(Arc::from(short_name(parts)))
    }

    /// The hash tag, without its braces.
    pub fn tag(&self) -> &str {
        &self.0
    }

    /// The key of that suffix.
    pub fn key(&self, suffix: &str) -> Key {
        Key(Bytes::from(format!("vestibule:{{{}}}:{suffix}", self.0)))
    }
}

/// The tenant; with the seeded bug `swap-tenant`, the one that was named before.
fn mutated(tenant: &TenantId) -> TenantId {
    static BEFORE: Mutex<Option<TenantId>> = Mutex::new(None);
    if !mutation::on("swap-tenant") {
        return tenant.clone();
    }
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    let swapped = before.replace(tenant.clone());
    swapped.unwrap_or_else(|| tenant.clone())
}

/// The channel on which a replica hears hints.
pub fn channel_of(replica: &ReplicaId) -> Bytes {
    Bytes::from(format!("vestibule:r:{replica}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vestibule_terms::SessionId;

    use super::*;

    fn slot(tenant: &str, principal: &str, id: &str) -> Slot {
        let tenant = TenantId::new(tenant).unwrap();
        Slot::of(&SessionKey::new(&tenant, principal, &SessionId::new(id)))
    }

    #[test]
    fn t48_a_slot_depends_on_tenant_principal_and_id() {
        let mine = slot("acme", "alice", "s");
        assert_eq!(mine, slot("acme", "alice", "s"));
        for foreign in [
            slot("evil", "alice", "s"),
            slot("acme", "bob", "s"),
            slot("acme", "alice", "t"),
            slot("acme", "alices", ""),
        ] {
            assert_ne!(mine, foreign);
        }
        assert_ne!(Slot::of_tenant(&TenantId::new("acme").unwrap()), mine);
    }

    #[test]
    fn el_24_the_keys_of_a_session_have_one_hash_tag() {
        let slot = slot("acme", "alice", "secret-id");
        let tag = slot.tag().to_owned();
        assert_eq!(tag.len(), 22);
        assert_eq!(Slot::from_tag(&tag), Some(slot.clone()));
        assert_eq!(Slot::from_tag("fleet"), None);
        let key = slot.key("s");
        let text = std::str::from_utf8(key.as_bytes()).unwrap();
        assert_eq!(text, format!("vestibule:{{{tag}}}:s"));
        assert!(!text.contains("secret-id"));
    }

    proptest! {
        #[test]
        fn t48_no_two_callers_share_a_slot(
            a in ("[a-z][a-z0-9]{0,5}", ".{0,6}", ".{0,6}"),
            b in ("[a-z][a-z0-9]{0,5}", ".{0,6}", ".{0,6}"),
        ) {
            let same = a == b;
            prop_assert_eq!(slot(&a.0, &a.1, &a.2) == slot(&b.0, &b.1, &b.2), same);
        }
    }
}
