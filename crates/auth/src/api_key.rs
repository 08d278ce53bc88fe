//! API keys: `vsk_<id>_<secret>`, of which only a SHA-256 of the whole is kept.
//!
//! The id finds the record, the hash decides. A key whose id is unknown is hashed and compared all
//! the same, so that time tells nothing about which ids exist.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;
use subtle::ConstantTimeEq;
use vestibule_terms::{Clock, ServerId};

const PREFIX: &str = "vsk_";
/// Prefix of the admin plane's keys, which open nothing here.
pub(crate) const ADMIN_PREFIX: &str = "vsa_";
/// 32 random bytes in base64url.
const SECRET_LENGTH: usize = 43;

/// SHA-256 of a whole key.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a whole key.
    pub fn of(key: &str) -> Self {
        let hash = digest::digest(&digest::SHA256, key.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.as_ref());
        Self(bytes)
    }

    /// A hash that was computed elsewhere.
    pub const fn from_sha256(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash itself; kept out of sight like the key.
    pub(crate) const fn bytes(self) -> [u8; 32] {
        self.0
    }

    /// Equality whose time does not depend on where the two differ.
    fn matches(&self, other: &KeyHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// What is known of one API key.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// Hash of the whole key.
    pub hash: KeyHash,
    /// The key before the last rotation, and until when (milliseconds) it is accepted.
    pub previous: Option<(KeyHash, u64)>,
    /// From when (milliseconds since the epoch) the key is refused.
    pub expires: Option<u64>,
    /// Who the caller is.
    pub subject: Arc<str>,
    /// Groups of the caller.
    pub groups: Arc<[String]>,
    /// Scopes of the caller.
    pub scopes: Arc<[String]>,
    /// The only servers this key opens; empty: all of its tenant.
    pub servers: Arc<[ServerId]>,
}

/// Why a key does not open a server; the bounded reason of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not of the form of a key.
    Malformed,
    /// A key of the admin plane.
    AdminKey,
    /// No such key in this tenant.
    Unknown,
    /// It was valid once.
    Expired,
    /// Valid, for other servers of the tenant.
    OtherServer,
}

impl Refusal {
    /// The reason's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::AdminKey => "admin_key",
            Refusal::Unknown => "unknown_key",
            Refusal::Expired => "expired",
            Refusal::OtherServer => "other_server",
        }
    }
}

/// The id inside a key of the right form.
pub fn id_of(key: &str) -> Result<&str, Refusal> {
    if key.starts_with(ADMIN_PREFIX) {
        return Err(Refusal::AdminKey);
    }
    let rest = key.strip_prefix(PREFIX).ok_or(Refusal::Malformed)?;
    let (id, secret) = rest.split_once('_').ok_or(Refusal::Malformed)?;
    let is_id = (1..=63).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let is_secret = secret.len() == SECRET_LENGTH
        && secret
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if is_id && is_secret {
        Ok(id)
    } else {
        Err(Refusal::Malformed)
    }
}

/// Decides whether the key of that hash is the one that `record` describes and opens `server` now.
pub(crate) fn accept_hash(
    presented: KeyHash,
    record: Option<&ApiKey>,
    server: &ServerId,
    clock: &dyn Clock,
) -> Result<(), Refusal> {
    let nobody = KeyHash([0; 32]);
    let current = record.map_or(&nobody, |record| &record.hash);
    let is_current = presented.matches(current);
    let Some(record) = record else {
        return Err(Refusal::Unknown);
    };
    let now = clock.unix_millis();
    let is_previous = record
        .previous
        .as_ref()
        .is_some_and(|(hash, _)| presented.matches(hash));
    if !is_current && !is_previous {
        return Err(Refusal::Unknown);
    }
    let rotated_out = |(_, until): &(KeyHash, u64)| !is_current && now >= *until;
    let expired = record.expires.is_some_and(|expires| now >= expires)
        || record.previous.as_ref().is_some_and(rotated_out);
    if expired {
        return Err(Refusal::Expired);
    }
    if !record.servers.is_empty() && !record.servers.contains(server) {
        return Err(Refusal::OtherServer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_key_is_exact() {
        let secret = "A_-9".repeat(10) + "abc";
        assert_eq!(id_of(&format!("vsk_ci-1_{secret}")), Ok("ci-1"));
        for bad in [
            String::new(),
            "vsk_".to_owned(),
            format!("vsk_ci{secret}"),
            format!("vsk__{secret}"),
            format!("VSK_ci_{secret}"),
            format!("vsk_Ci_{secret}"),
            format!("vsk_ci_{secret}x"),
            format!("vsk_ci_{}", "é".repeat(21) + "a"),
            format!("vsk_{}_{secret}", "a".repeat(64)),
        ] {
            assert_eq!(id_of(&bad), Err(Refusal::Malformed), "{bad}");
        }
        assert_eq!(id_of(&format!("vsa_ci_{secret}")), Err(Refusal::AdminKey));
    }

    #[test]
    fn a_hash_is_sha256_of_the_whole_key_and_never_shown() {
        let expected: [u8; 32] = [
            0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae,
            0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61,
            0xf2, 0x00, 0x15, 0xad,
        ];
        assert!(KeyHash::of("abc").matches(&KeyHash::from_sha256(expected)));
        assert!(!KeyHash::of("abd").matches(&KeyHash::from_sha256(expected)));
        assert_eq!(format!("{:?}", KeyHash::of("abc")), "KeyHash(…)");
    }
}
