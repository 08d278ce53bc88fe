//! Ids of our own requests: never reused, not even by another process on the same upstream session
//! (FRM-05, FRM-08). They serve as progress tokens too (PRG-01).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use vestibule_frame::Id;

/// Mints ids: a random incarnation of this process, and a counter.
#[derive(Debug)]
pub(crate) struct Ids {
    incarnation: u64,
    next: AtomicU64,
}

/// The id of one request to an upstream.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallId(Arc<str>);

// === impl Ids ===

impl Ids {
    /// A fresh incarnation.
    pub(crate) fn new() -> Self {
        let mut seed = [0_u8; 8];
        // Without randomness the start of the counter still differs from request to request; two
        // processes on one upstream session would then be told apart by nothing.
        if aws_lc_rs::rand::fill(&mut seed).is_err() {
            tracing::error!("no randomness for request ids");
        }
        Self {
            incarnation: u64::from_ne_bytes(seed),
            next: AtomicU64::new(1),
        }
    }

    /// The next id of a request.
    pub(crate) fn call(&self) -> CallId {
        CallId(Arc::from(self.mint("")))
    }

    /// The next id under which an upstream's question is handed out: unique over all upstream
    /// sessions, whose own ids are not.
    pub(crate) fn question(&self) -> Id {
        Id::string(&self.mint("q"))
    }

    /// `base` and up to a tenth of it, so that many waiters do not return at one instant.
    pub(crate) fn jitter(&self, base: std::time::Duration) -> std::time::Duration {
        let tick = self
            .next
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let share = u32::try_from((tick ^ self.incarnation) % 1000).unwrap_or(0);
        base + base * share / 10_000
    }

    fn mint(&self, kind: &str) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // written by hand: an id is minted for every call
        let mut text = String::with_capacity(kind.len() + 40);
        text.push_str(kind);
        for nibble in (0..16).rev() {
            push_hex(&mut text, self.incarnation >> (4 * nibble));
        }
        text.push('-');
        push_decimal(&mut text, number);
        text
    }
}

// === impl CallId ===

impl CallId {
    /// An id that this or another process has minted, as it was written down.
    pub(crate) fn written(text: &str) -> Option<Self> {
        let minted = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(minted);
        fits.then(|| Self(Arc::from(text)))
    }

    /// The text, which is also the progress token.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The JSON token: the text holds nothing that needs an escape.
    pub(crate) fn token(&self) -> Bytes {
        Bytes::from(["\"", &*self.0, "\""].concat())
    }

    /// The id as messages carry it.
    pub(crate) fn id(&self) -> Id {
        Id::from_token(self.token()).unwrap_or_else(|| Id::string(&self.0))
    }

    /// Whether `id` is this one.
    pub(crate) fn is(&self, id: &Id) -> bool {
        id.as_str().as_deref() == Some(&*self.0)
    }

    /// The text as a shared key.
    pub(crate) fn key(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

fn push_hex(text: &mut String, number: u64) {
    let digit = usize::try_from(number & 0xF).unwrap_or_default();
    text.push(char::from(b"0123456789abcdef"[digit]));
}

fn push_decimal(text: &mut String, number: u64) {
    if number >= 10 {
        push_decimal(text, number / 10);
    }
    push_hex(text, number % 10);
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FRM-05, FRM-08, T41, case 55: ids differ within a process and between two.
    #[test]
    fn frm_05_ids_are_never_reused_by_this_or_another_process() {
        let (one, two) = (Ids::new(), Ids::new());
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            assert!(seen.insert(one.call()));
            assert!(seen.insert(two.call()));
        }
        let id = one.call();
        let (incarnation, counter) = id.as_str().split_once('-').unwrap();
        assert_eq!(incarnation.len(), 16);
        assert!(incarnation.bytes().all(|b| b.is_ascii_hexdigit()));
        assert!(counter.parse::<u64>().is_ok());
        assert!(id.is(&id.id()) && !id.is(&Id::integer(1)));
    }

    #[test]
    fn jitter_adds_at_most_a_tenth() {
        let ids = Ids::new();
        let base = std::time::Duration::from_secs(10);
        for _ in 0..100 {
            let waited = ids.jitter(base);
            assert!(waited >= base && waited <= base + base / 10);
        }
    }
}
