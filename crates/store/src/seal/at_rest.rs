//! Payloads in a store that others can read (T53): of tenants who want that, they are sealed with a key
//! of the tenant.
//!
//! A sealed payload is the byte 255, the length of the key's id, the id, and what was sealed under it,
//! bound to the session it belongs to. No message begins with that byte, which is in no UTF-8, and no
//! record of ours, which begins with its format's number: what was written before a tenant's payloads
//! were sealed is read as it is.

use std::fmt;

use bytes::Bytes;
use vestibule_terms::TenantId;

use super::{Purpose, Sealer, encrypt_bytes, random};

const SEALED: u8 = 255;

/// Seals and opens the payloads of one tenant.
#[derive(Clone, Copy)]
pub struct AtRest<'a> {
    sealer: &'a Sealer,
    tenant: &'a TenantId,
    seals: bool,
}

impl<'a> AtRest<'a> {
    pub(super) fn new(sealer: &'a Sealer, tenant: &'a TenantId, seals: bool) -> Self {
        Self {
            sealer,
            tenant,
            seals,
        }
    }

    /// The payload as it is stored; `place` is what it belongs to.
    pub fn seal(&self, place: &str, payload: &Bytes) -> Bytes {
        if !self.seals || payload.is_empty() {
            return payload.clone();
        }
        let ring = self.sealer.ring();
        let (keys, id) = (
            ring.derived(0, Purpose::AT_REST, self.tenant),
            ring.roots[0].id.as_bytes(),
        );
        // ids have at most eight characters
        let mut stored = vec![SEALED, u8::try_from(id.len()).unwrap_or_default()];
        stored.extend_from_slice(id);
        stored.append(&mut encrypt_bytes(
            &keys,
            random(),
            place.as_bytes(),
            payload,
        ));
        Bytes::from(stored)
    }

    /// The payload that was stored so; none when its key is gone, or when it was altered or moved.
    pub fn open(&self, place: &str, stored: Bytes) -> Option<Bytes> {
        let Some((&SEALED, rest)) = stored.split_first() else {
            return Some(stored);
        };
        let (&length, rest) = rest.split_first()?;
        let (id, sealed) = rest.split_at_checked(usize::from(length))?;
        let id = std::str::from_utf8(id).ok()?;
        let (tenant, place) = (self.tenant, place.as_bytes());
        let opened = self
            .sealer
            .open_bytes(Purpose::AT_REST, tenant, place, id, sealed.to_vec());
        opened.ok().map(Bytes::from)
    }
}

impl fmt::Debug for AtRest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtRest")
            .field("tenant", self.tenant)
            .field("seals", &self.seals)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use vestibule_terms::Secret;

    use super::*;
    use crate::{Encoder, Keyring};

    const MESSAGE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"secret":"plans"}}"#;

    fn sealer(keys: &[(&str, u8)]) -> Sealer {
        let keys = keys.iter();
        let keys = keys.map(|(id, byte)| ((*id).to_owned(), Secret::new(vec![*byte; 32])));
        let tenants = HashSet::from([tenant("acme"), tenant("other")]);
        let sealer = Sealer::new(Keyring::new(keys.collect()).unwrap());
        sealer.seal_payloads_of(tenants);
        sealer
    }

    fn tenant(text: &str) -> TenantId {
        TenantId::new(text).unwrap()
    }

    #[test]
    fn t53_payloads_are_sealed_and_belong_to_their_tenant_and_place() {
        let (acme, other) = (tenant("acme"), tenant("other"));
        let before = sealer(&[("k1", 7)]);
        let message = Bytes::from_static(MESSAGE.as_bytes());
        let stored = before.at_rest(&acme).seal("s", &message);
        assert!(!stored.windows(5).any(|part| part == b"plans"));
        assert_ne!(stored, before.at_rest(&acme).seal("s", &message));
        // a key that seals no more still opens
        let after = sealer(&[("k2", 8), ("k1", 7)]);
        for sealer in [&before, &after] {
            let opened = sealer.at_rest(&acme).open("s", stored.clone());
            assert_eq!(opened.as_ref(), Some(&message));
        }
        let gone = sealer(&[("k2", 8)]);
        assert_eq!(gone.at_rest(&acme).open("s", stored.clone()), None);
        assert_eq!(before.at_rest(&acme).open("t", stored.clone()), None);
        assert_eq!(before.at_rest(&other).open("s", stored.clone()), None);
        for cut in 1..stored.len() {
            let part = stored.slice(..cut);
            assert_eq!(before.at_rest(&acme).open("s", part), None, "{cut}");
            let mut altered = stored.to_vec();
            altered[cut] ^= 1;
            let altered = Bytes::from(altered);
            assert_eq!(before.at_rest(&acme).open("s", altered), None, "{cut}");
        }
    }

    /// T53: what was stored before is read; nothing of other tenants is sealed.
    #[test]
    fn t53_what_is_not_sealed_is_as_it_was() {
        let (acme, plain) = (tenant("acme"), tenant("plain"));
        let sealer = sealer(&[("k1", 7)]);
        let record = Bytes::from(Encoder::new(1).bytes(b"of ours").finish());
        let messages = [MESSAGE, "[]", ""].map(|text| Bytes::from_static(text.as_bytes()));
        for message in messages.into_iter().chain([record]) {
            assert_eq!(sealer.at_rest(&plain).seal("s", &message), message);
            let opened = sealer.at_rest(&acme).open("s", message.clone());
            assert_eq!(opened, Some(message));
        }
    }
}
