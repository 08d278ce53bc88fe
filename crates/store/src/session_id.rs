//! Session ids that authenticate themselves (EL-29, HDR-06): 16 random bytes and 16 bytes of MAC
//! over them and the tenant, server, principal and revision the session was opened with.
//!
//! Whether the session is alive is the store's to say; whether the id was ever this caller's is
//! said here, without a look-up, also while the store is away.
//!
//! A session over HTTP+SSE has its id before a revision is negotiated, and in an address instead of
//! a header (HSE-02): its tag is of another purpose and says nothing of a revision, so neither kind
//! passes as the other.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use vestibule_terms::{Era, Revision, ServerId, SessionId, TenantId};

use crate::seal::{Purpose, Sealer, random, same_prefix};

const RANDOM_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
const TEXT_LENGTH: usize = 43;

impl Sealer {
    /// A new, unguessable id for a session of this caller on this server. `principal` is the
    /// caller's [binding](vestibule_terms::Principal::binding).
    pub fn mint_session_id(
        &self,
        tenant: &TenantId,
        server: &ServerId,
        principal: &str,
        revision: Revision,
    ) -> SessionId {
        let random = random::<RANDOM_BYTES>();
        let parts = parts(&random, tenant, server, principal, revision.as_str());
        let tag = self.mac(Purpose::SESSION_ID, tenant, &parts);
        joined(&random, &tag)
    }

    /// A new, unguessable id for a session of this caller over HTTP+SSE (HSE-06).
    pub fn mint_sse_session_id(
        &self,
        tenant: &TenantId,
        server: &ServerId,
        principal: &str,
    ) -> SessionId {
        let random = random::<RANDOM_BYTES>();
        let parts = parts(&random, tenant, server, principal, "");
        let tag = self.mac(Purpose::SSE_SESSION_ID, tenant, &parts);
        joined(&random, &tag)
    }

    /// The revision the id was minted for, if it was minted for this caller on this server under
    /// any configured key. Every key and every revision is tried whatever matches, so that the
    /// time taken tells nothing.
    pub fn check_session_id(
        &self,
        text: &str,
        tenant: &TenantId,
        server: &ServerId,
        principal: &str,
    ) -> Option<Revision> {
        let (random, tag) = taken_apart(text)?;
        let mut found = None;
        for key in self.mac_keys(Purpose::SESSION_ID, tenant) {
            for revision in Revision::ALL {
                if revision.era() != Era::Legacy {
                    continue;
                }
                let parts = parts(&random, tenant, server, principal, revision.as_str());
                if same_prefix(&key.mac(&parts), &tag) {
                    found = Some(revision);
                }
            }
        }
        found
    }

    /// Whether the id was minted for a session of this caller over HTTP+SSE, under any configured
    /// key. Every key is tried whatever matches.
    pub fn check_sse_session_id(
        &self,
        text: &str,
        tenant: &TenantId,
        server: &ServerId,
        principal: &str,
    ) -> bool {
        let Some((random, tag)) = taken_apart(text) else {
            return false;
        };
        let parts = parts(&random, tenant, server, principal, "");
        let mut found = false;
        for key in self.mac_keys(Purpose::SSE_SESSION_ID, tenant) {
            found |= same_prefix(&key.mac(&parts), &tag);
        }
        found
    }
}

fn joined(random: &[u8; RANDOM_BYTES], tag: &[u8]) -> SessionId {
    let bytes = [&random[..], &tag[..TAG_BYTES]].concat();
    SessionId::new(&URL_SAFE_NO_PAD.encode(bytes))
}

/// The random part and the tag of an id.
fn taken_apart(text: &str) -> Option<([u8; RANDOM_BYTES], [u8; TAG_BYTES])> {
    if text.len() != TEXT_LENGTH {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (random, tag) = bytes.split_first_chunk()?;
    Some((*random, tag.try_into().ok()?))
}

fn parts<'a>(
    random: &'a [u8; RANDOM_BYTES],
    tenant: &'a TenantId,
    server: &'a ServerId,
    principal: &'a str,
    revision: &'a str,
) -> [&'a [u8]; 5] {
    [
        random,
        tenant.as_str().as_bytes(),
        server.as_str().as_bytes(),
        principal.as_bytes(),
        revision.as_bytes(),
    ]
}

#[cfg(test)]
mod tests {
    use vestibule_terms::Secret;

    use super::*;
    use crate::seal::Keyring;

    fn tenant(text: &str) -> TenantId {
        TenantId::new(text).unwrap()
    }

    fn server(text: &str) -> ServerId {
        ServerId::new(text).unwrap()
    }

    fn keyring(keys: &[(&str, u8)]) -> Keyring {
        let keys = keys
            .iter()
            .map(|(id, byte)| ((*id).to_owned(), Secret::new(vec![*byte; 32])))
            .collect();
        Keyring::new(keys).unwrap()
    }

    /// HDR-06: 43 visible ASCII characters, every one different.
    #[test]
    fn hdr_06_ids_are_43_visible_characters_and_carry_their_revision() {
        let sealer = Sealer::new(Keyring::generate());
        let (t, s) = (tenant("acme"), server("tools"));
        let mut seen = std::collections::HashSet::new();
        for revision in Revision::ALL.into_iter().filter(|r| !r.is_modern()) {
            let id = sealer.mint_session_id(&t, &s, "alice", revision);
            assert_eq!(id.expose().len(), 43);
            assert!(id.expose().bytes().all(|b| (0x21..=0x7E).contains(&b)));
            assert_eq!(
                sealer.check_session_id(id.expose(), &t, &s, "alice"),
                Some(revision)
            );
            assert!(seen.insert(id));
        }
    }

    /// T38, T39: another principal, server or tenant does not pass, nor does any changed bit.
    #[test]
    fn t38_ids_pass_only_for_the_caller_and_server_they_were_minted_for() {
        let sealer = Sealer::new(Keyring::generate());
        let (t, s) = (tenant("acme"), server("tools"));
        let id = sealer.mint_session_id(&t, &s, "alice", Revision::R2025_11_25);
        let text = id.expose();
        assert_eq!(sealer.check_session_id(text, &t, &s, "bob"), None);
        assert_eq!(
            sealer.check_session_id(text, &t, &server("other"), "alice"),
            None
        );
        assert_eq!(
            sealer.check_session_id(text, &tenant("evil"), &s, "alice"),
            None
        );
        for (index, bit) in (0..text.len()).flat_map(|i| (0..7).map(move |b| (i, b))) {
            let mut changed = text.as_bytes().to_vec();
            changed[index] ^= 1 << bit;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(
                sealer.check_session_id(&changed, &t, &s, "alice"),
                None,
                "{index} {bit}"
            );
        }
        for bad in [
            "",
            "x",
            text.get(..42).unwrap(),
            &format!("{text}A"),
            &format!("{text}="),
        ] {
            assert_eq!(sealer.check_session_id(bad, &t, &s, "alice"), None);
        }
    }

    /// EL-29, XT-046: every configured key is tried; a key that is gone takes its ids with it.
    #[test]
    fn xt_046_ids_live_as_long_as_their_key_is_configured() {
        let sealer = Sealer::new(keyring(&[("a", 1)]));
        let (t, s) = (tenant("acme"), server("tools"));
        let id = sealer.mint_session_id(&t, &s, "alice", Revision::R2025_06_18);
        sealer.rotate(keyring(&[("c", 3), ("b", 2), ("a", 1)]));
        let checked = sealer.check_session_id(id.expose(), &t, &s, "alice");
        assert_eq!(checked, Some(Revision::R2025_06_18));
        sealer.rotate(keyring(&[("c", 3), ("b", 2)]));
        assert_eq!(sealer.check_session_id(id.expose(), &t, &s, "alice"), None);
    }

    /// HSE-06: 43 characters for the address, bound as the others are, and of no use as one of them.
    #[test]
    fn hse_06_an_sse_session_id_is_bound_and_is_no_other_id() {
        let sealer = Sealer::new(Keyring::generate());
        let (t, s) = (tenant("acme"), server("tools"));
        let id = sealer.mint_sse_session_id(&t, &s, "alice");
        let text = id.expose();
        assert_eq!(text.len(), 43);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        assert!(text.bytes().all(plain), "needs no escapes in a query");
        assert!(sealer.check_sse_session_id(text, &t, &s, "alice"));
        assert!(!sealer.check_sse_session_id(text, &t, &s, "bob"));
        assert!(!sealer.check_sse_session_id(text, &t, &server("other"), "alice"));
        assert!(!sealer.check_sse_session_id(text, &tenant("evil"), &s, "alice"));
        assert_eq!(sealer.check_session_id(text, &t, &s, "alice"), None);
        for revision in Revision::ALL {
            let other = sealer.mint_session_id(&t, &s, "alice", revision);
            assert!(!sealer.check_sse_session_id(other.expose(), &t, &s, "alice"));
        }
        for index in 0..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[index] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(!sealer.check_sse_session_id(&changed, &t, &s, "alice"));
        }
    }

    /// EL-29: under every configured key, and under no other.
    #[test]
    fn el_29_an_sse_session_id_lives_as_long_as_its_key_is_configured() {
        let sealer = Sealer::new(keyring(&[("a", 1)]));
        let (t, s) = (tenant("acme"), server("tools"));
        let id = sealer.mint_sse_session_id(&t, &s, "alice");
        sealer.rotate(keyring(&[("a", 1), ("c", 3)]));
        assert!(sealer.check_sse_session_id(id.expose(), &t, &s, "alice"));
        sealer.rotate(keyring(&[("c", 3), ("a", 1)]));
        assert!(sealer.check_sse_session_id(id.expose(), &t, &s, "alice"));
        sealer.rotate(keyring(&[("c", 3)]));
        assert!(!sealer.check_sse_session_id(id.expose(), &t, &s, "alice"));
    }
}
