//! The keyring and the one sealing scheme for every handle that leaves the gateway.
//!
//! From each configured key HKDF-SHA-256 derives keys per (tenant, purpose): what one tenant holds
//! means nothing under another, and a cursor is never a request state (XT-536). Sealing is
//! AES-256-GCM-SIV, which forgives a repeated nonce; deterministic sealing takes the nonce from a
//! MAC of the content, so that equal content is equal text. Sealed text is `1` key-id `.`
//! base64url, so that the right key is found at once and rotation needs no clock.
//!
//! What is sealed, for how long it is valid and what its bytes mean is the caller's.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::{hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dashmap::DashMap;
use vestibule_terms::{Secret, TenantId};

pub use self::at_rest::AtRest;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
const KEY_ID_MAX: usize = 8;
const FORMAT: char = '1';
const SALT: &[u8] = b"vestibule sealing 1";

/// Derived keys kept at hand. Tenants and purposes are few and configured; the bound only keeps a
/// long life with many renamed tenants from growing.
const DERIVED_MAX: usize = 16_384;

/// What a key is for. Two purposes never share a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Purpose(&'static str);

impl Purpose {
    /// Cursors of list methods.
    pub const CURSOR: Purpose = Purpose("cursor");
    /// `requestState` of stateless clients.
    pub const REQUEST_STATE: Purpose = Purpose("request-state");
    /// Ids of events on resumable streams.
    pub const EVENT_ID: Purpose = Purpose("event-id");
    /// The chain over the events of a stream.
    pub const EVENT_CHAIN: Purpose = Purpose("event-chain");
    /// Tags of session ids.
    pub const SESSION_ID: Purpose = Purpose("session-id");
    /// Tags of the ids of sessions over HTTP+SSE.
    pub const SSE_SESSION_ID: Purpose = Purpose("sse-session-id");
    /// Payloads in a shared store.
    pub(crate) const AT_REST: Purpose = Purpose("at-rest");

    /// A purpose of its own; the name must be unlike every other.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }
}

/// Why configured keys are no keyring. Never contains key material.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// There is no key.
    #[error("at least one sealing key is needed")]
    Empty,
    /// An id is not one to eight letters or digits.
    #[error("key id `{0}`: 1 to 8 characters of A-Z, a-z and 0-9")]
    Id(String),
    /// Two keys have one id.
    #[error("key id `{0}` is used twice")]
    Repeated(String),
    /// A key is not 32 bytes long.
    #[error("key `{id}` is {actual} bytes long; 32 random bytes are needed")]
    Length {
        /// The key.
        id: String,
        /// Its length.
        actual: usize,
    },
}

/// It does not open. The cause is not told: wrong tenant, wrong purpose, wrong associated data,
/// forged, truncated or sealed with a key that is gone look all the same (T71).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a handle of this gateway")]
pub struct SealError;

/// What is known of a tag that names its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Made by this gateway over exactly these parts.
    Valid,
    /// Not made over these parts.
    Forged,
    /// The key of that name is not configured (any more), so nothing can be said.
    UnknownKey,
}

struct Root {
    id: Arc<str>,
    prk: Prk,
}

/// The configured sealing keys, in order: the first seals, all open.
pub struct Keyring {
    roots: Vec<Root>,
}

impl Keyring {
    /// Checks and takes over configured keys.
    pub fn new(keys: Vec<(String, Secret<Vec<u8>>)>) -> Result<Self, KeyringError> {
        if keys.is_empty() {
            return Err(KeyringError::Empty);
        }
        let mut roots: Vec<Root> = Vec::with_capacity(keys.len());
        for (id, secret) in keys {
            if !is_key_id(&id) {
                return Err(KeyringError::Id(id.chars().take(40).collect()));
            }
            if roots.iter().any(|root| *root.id == *id) {
                return Err(KeyringError::Repeated(id));
            }
            let actual = secret.expose().len();
            if actual != KEY_BYTES {
                return Err(KeyringError::Length { id, actual });
            }
            roots.push(Root {
                id: Arc::from(id),
                prk: extract(secret.expose()),
            });
        }
        Ok(Self { roots })
    }

    /// One random key that lives as long as the process: handles do not survive a restart.
    pub fn generate() -> Self {
        let secret = Secret::new(random::<KEY_BYTES>());
        let root = Root {
            id: Arc::from("m"),
            prk: extract(secret.expose()),
        };
        Self { roots: vec![root] }
    }

    /// The ids, the sealing one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().map(|root| &*root.id)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

/// Whether `text` can name a root key: 1 to 8 letters and digits, since it stands in every handle.
pub fn is_key_id(text: &str) -> bool {
    (1..=KEY_ID_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn extract(secret: &[u8]) -> Prk {
    Salt::new(HKDF_SHA256, SALT).extract(secret)
}

/// `N` unpredictable bytes, fit for keys and capabilities.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the operating system has a random generator");
    bytes
}

/// The same as lower-case hexadecimal digits, for names that nobody else gives.
pub fn random_digits<const N: usize>() -> String {
    let bytes = random::<N>();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The keys of one (tenant, purpose).
struct Derived {
    aead: LessSafeKey,
    nonce: hmac::Key,
    mac: MacKey,
}

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl Derived {
    fn new(prk: &Prk, purpose: Purpose, tenant: &TenantId) -> Self {
        let expand = |use_: &[u8]| {
            let purpose_len = [u8::try_from(purpose.0.len()).expect("purposes are short names")];
            let info = [
                &purpose_len[..],
                purpose.0.as_bytes(),
                tenant.as_str().as_bytes(),
                b"\0",
                use_,
            ];
            let mut key = [0; KEY_BYTES];
            prk.expand(&info, Length)
                .and_then(|okm| okm.fill(&mut key))
                .expect("32 bytes are within what HKDF-SHA-256 expands to");
            Secret::new(key)
        };
        let aead = UnboundKey::new(&AES_256_GCM_SIV, expand(b"aead").expose())
            .expect("the key has the length of the algorithm");
        Self {
            aead: LessSafeKey::new(aead),
            nonce: hmac::Key::new(hmac::HMAC_SHA256, expand(b"nonce").expose()),
            mac: MacKey(Arc::new(hmac::Key::new(
                hmac::HMAC_SHA256,
                expand(b"mac").expose(),
            ))),
        }
    }
}

/// A key for MACs of one (tenant, purpose), for those who make many.
#[derive(Clone)]
pub struct MacKey(Arc<hmac::Key>);

impl MacKey {
    /// HMAC-SHA-256 over the parts, each with its length before it: where one part ends and the
    /// next begins is part of what is authenticated.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        mac(&self.0, parts)
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(…)")
    }
}

/// Parts up to this size are put together first: one call into the library instead of two a part.
const TOGETHER: usize = 512;

fn mac(key: &hmac::Key, parts: &[&[u8]]) -> [u8; 32] {
    let length: usize = parts.iter().map(|part| part.len() + 8).sum();
    let tag = if length <= TOGETHER {
        let mut whole = Vec::with_capacity(length);
        for part in parts {
            whole.extend_from_slice(&(part.len() as u64).to_be_bytes());
            whole.extend_from_slice(part);
        }
        hmac::sign(key, &whole)
    } else {
        let mut context = hmac::Context::with_key(key);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign()
    };
    tag.as_ref()
        .try_into()
        .expect("HMAC-SHA-256 is 32 bytes long")
}

struct Ring {
    roots: Vec<Root>,
    derived: DashMap<(usize, Purpose, TenantId), Arc<Derived>>,
}

impl Ring {
    fn new(keyring: Keyring) -> Arc<Self> {
        Arc::new(Self {
            roots: keyring.roots,
            derived: DashMap::new(),
        })
    }

    fn derived(&self, index: usize, purpose: Purpose, tenant: &TenantId) -> Arc<Derived> {
        let name = (index, purpose, tenant.clone());
        if let Some(found) = self.derived.get(&name) {
            return Arc::clone(&found);
        }
        if self.derived.len() >= DERIVED_MAX {
            self.derived.clear();
        }
        let made = Arc::new(Derived::new(&self.roots[index].prk, purpose, tenant));
        self.derived.insert(name, Arc::clone(&made));
        made
    }

    fn index_of(&self, id: &str) -> Option<usize> {
        self.roots.iter().position(|root| *root.id == *id)
    }
}

/// Seals, opens and authenticates with the keyring of the moment. Cheap to clone; clones share
/// the keyring.
#[derive(Clone)]
pub struct Sealer {
    ring: Arc<RwLock<Arc<Ring>>>,
    /// Whose payloads are sealed in the store.
    at_rest: Arc<RwLock<HashSet<TenantId>>>,
}

impl Sealer {
    /// Seals with this keyring.
    pub fn new(keyring: Keyring) -> Self {
        Self {
            ring: Arc::new(RwLock::new(Ring::new(keyring))),
            at_rest: Arc::default(),
        }
    }

    /// From now on the payloads of these tenants are sealed in the store, and of no others (T53).
    pub fn seal_payloads_of(&self, tenants: HashSet<TenantId>) {
        *self.at_rest.write().unwrap_or_else(PoisonError::into_inner) = tenants;
    }

    /// What seals and opens payloads of that tenant in the store.
    pub fn at_rest<'a>(&'a self, tenant: &'a TenantId) -> AtRest<'a> {
        let tenants = self.at_rest.read().unwrap_or_else(PoisonError::into_inner);
        AtRest::new(self, tenant, tenants.contains(tenant))
    }

    /// Goes over to another keyring; what only the old one can open no longer opens.
    pub fn rotate(&self, keyring: Keyring) {
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Ring::new(keyring);
    }

    fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Seals under a random nonce: equal content gives unlike texts.
    pub fn seal(
        &self,
        purpose: Purpose,
        tenant: &TenantId,
        aad: &[u8],
        plaintext: &[u8],
    ) -> String {
        let ring = self.ring();
        let keys = ring.derived(0, purpose, tenant);
        encrypt(&ring.roots[0].id, &keys, random(), aad, plaintext)
    }

    /// Seals so that equal content, under an equal key, gives equal text: for cursors, which
    /// caches compare. It tells an observer that two contents are equal, and nothing else.
    pub fn seal_deterministic(
        &self,
        purpose: Purpose,
        tenant: &TenantId,
        aad: &[u8],
        plaintext: &[u8],
    ) -> String {
        let ring = self.ring();
        let keys = ring.derived(0, purpose, tenant);
        let tag = mac(&keys.nonce, &[aad, plaintext]);
        let nonce = *tag
            .first_chunk::<NONCE_BYTES>()
            .expect("a MAC is longer than a nonce");
        encrypt(&ring.roots[0].id, &keys, nonce, aad, plaintext)
    }

    /// Opens what either way of sealing made, under any configured key.
    pub fn open(
        &self,
        purpose: Purpose,
        tenant: &TenantId,
        aad: &[u8],
        text: &str,
    ) -> Result<Vec<u8>, SealError> {
        let (key_id, body) = split_named(text).ok_or(SealError)?;
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| SealError)?;
        self.open_bytes(purpose, tenant, aad, key_id, bytes)
    }

    /// The same without the text around it: the nonce and what was sealed under the key of that id.
    fn open_bytes(
        &self,
        purpose: Purpose,
        tenant: &TenantId,
        aad: &[u8],
        key_id: &str,
        mut bytes: Vec<u8>,
    ) -> Result<Vec<u8>, SealError> {
        let ring = self.ring();
        let index = ring.index_of(key_id).ok_or(SealError)?;
        let (nonce, _) = bytes.split_first_chunk::<NONCE_BYTES>().ok_or(SealError)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        bytes.drain(..NONCE_BYTES);
        let keys = ring.derived(index, purpose, tenant);
        let length = keys
            .aead
            .open_in_place(nonce, Aad::from(aad), &mut bytes)
            .map_err(|_| SealError)?
            .len();
        bytes.truncate(length);
        Ok(bytes)
    }

    /// HMAC-SHA-256 over the parts under the sealing key.
    pub fn mac(&self, purpose: Purpose, tenant: &TenantId, parts: &[&[u8]]) -> [u8; 32] {
        self.mac_key(purpose, tenant).mac(parts)
    }

    /// The sealing key's MAC key of (tenant, purpose), for those who make many MACs with one key
    /// whatever rotates meanwhile.
    pub fn mac_key(&self, purpose: Purpose, tenant: &TenantId) -> MacKey {
        self.ring().derived(0, purpose, tenant).mac.clone()
    }

    /// The same with the id of the key, for what outlives the process.
    pub fn named_mac_key(&self, purpose: Purpose, tenant: &TenantId) -> (Arc<str>, MacKey) {
        let ring = self.ring();
        let key = ring.derived(0, purpose, tenant).mac.clone();
        (Arc::clone(&ring.roots[0].id), key)
    }

    /// The MAC key of (tenant, purpose) under the configured key of that id.
    pub fn mac_key_of(&self, key_id: &str, purpose: Purpose, tenant: &TenantId) -> Option<MacKey> {
        let ring = self.ring();
        let index = ring.index_of(key_id)?;
        Some(ring.derived(index, purpose, tenant).mac.clone())
    }

    /// The sealing key's id and its MAC over the parts: for handles that name their key.
    pub fn sign(
        &self,
        purpose: Purpose,
        tenant: &TenantId,
        parts: &[&[u8]],
    ) -> (Arc<str>, [u8; 32]) {
        let ring = self.ring();
        let tag = ring.derived(0, purpose, tenant).mac.mac(parts);
        (Arc::clone(&ring.roots[0].id), tag)
    }

    /// Compares, in constant time, a tag (or its first bytes, at least twelve) that names its key.
    pub fn verify(
        &self,
        purpose: Purpose,
        tenant: &TenantId,
        key_id: &str,
        parts: &[&[u8]],
        tag: &[u8],
    ) -> Verdict {
        let ring = self.ring();
        let Some(index) = ring.index_of(key_id) else {
            return Verdict::UnknownKey;
        };
        let whole = ring.derived(index, purpose, tenant).mac.mac(parts);
        if same_prefix(&whole, tag) {
            Verdict::Valid
        } else {
            Verdict::Forged
        }
    }

    /// Every configured key's MAC key of (tenant, purpose), the sealing one first: for handles
    /// that do not name their key.
    pub(crate) fn mac_keys(&self, purpose: Purpose, tenant: &TenantId) -> Vec<MacKey> {
        let ring = self.ring();
        (0..ring.roots.len())
            .map(|index| ring.derived(index, purpose, tenant).mac.clone())
            .collect()
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.ring();
        let ids: Vec<&str> = ring.roots.iter().map(|root| &*root.id).collect();
        f.debug_struct("Sealer").field("keys", &ids).finish()
    }
}

/// Whether `tag` is the beginning of `whole`, in constant time; shorter than 96 bits never is.
pub(crate) fn same_prefix(whole: &[u8; 32], tag: &[u8]) -> bool {
    tag.len() >= 12
        && whole
            .get(..tag.len())
            .is_some_and(|prefix| verify_slices_are_equal(prefix, tag).is_ok())
}

fn encrypt(
    key_id: &str,
    keys: &Derived,
    nonce: [u8; NONCE_BYTES],
    aad: &[u8],
    plaintext: &[u8],
) -> String {
    let bytes = encrypt_bytes(keys, nonce, aad, plaintext);
    format!("{FORMAT}{key_id}.{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// The nonce and what is sealed under it.
fn encrypt_bytes(
    keys: &Derived,
    nonce: [u8; NONCE_BYTES],
    aad: &[u8],
    plaintext: &[u8],
) -> Vec<u8> {
    let mut sealed = plaintext.to_vec();
    keys.aead
        .seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(aad),
            &mut sealed,
        )
        .expect("handles and messages are far below the size that AES-GCM-SIV can seal");
    let mut bytes = nonce.to_vec();
    bytes.append(&mut sealed);
    bytes
}

/// The key id and the rest of `1` key-id `.` rest.
fn split_named(text: &str) -> Option<(&str, &str)> {
    let (key_id, body) = text.strip_prefix(FORMAT)?.split_once('.')?;
    is_key_id(key_id).then_some((key_id, body))
}

mod at_rest;
#[cfg(test)]
mod tests;
