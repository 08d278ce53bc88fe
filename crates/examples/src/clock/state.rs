//! The state of a call that waits for its user. This server keeps none: it travels to the client
//! and back, so it is sealed against change (MRT-05) and says until when it holds.

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign, verify};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// How long a user may take, in seconds.
const LIFETIME: u64 = 600;

/// The key of this process.
#[derive(Debug)]
pub(super) struct Seal(Key);

impl Seal {
    /// A random key. `None` where the system has no randomness.
    pub(super) fn new() -> Option<Self> {
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).ok()?;
        Some(Self(Key::new(HMAC_SHA256, &secret)))
    }

    /// The state of a call with this argument, from `now` on.
    pub(super) fn state(&self, argument: &str, now: u64) -> String {
        let expires = now + LIFETIME;
        let tag = sign(&self.0, bound(argument, expires).as_bytes());
        format!("{expires}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Whether `state` is ours, of a call with this argument, and still holds.
    pub(super) fn holds(&self, state: &str, argument: &str, now: u64) -> bool {
        let Some((expires, tag)) = state.split_once('.') else {
            return false;
        };
        let (Ok(expires), Ok(tag)) = (expires.parse::<u64>(), URL_SAFE_NO_PAD.decode(tag)) else {
            return false;
        };
        now <= expires && verify(&self.0, bound(argument, expires).as_bytes(), &tag).is_ok()
    }
}

fn bound(argument: &str, expires: u64) -> String {
    format!("remind {expires} {argument}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MRT-05: a state that was changed, moved to another call or kept too long is refused.
    #[test]
    fn mrt_05_a_state_holds_for_its_call_alone() {
        let seal = Seal::new().unwrap();
        let state = seal.state("10:00", 1_000);
        assert!(seal.holds(&state, "10:00", 1_600));
        assert!(!seal.holds(&state, "10:01", 1_000));
        assert!(!seal.holds(&state, "10:00", 1_601));
        assert!(!seal.holds(&state.replacen("1600", "9999", 1), "10:00", 1_000));
        assert!(!seal.holds("", "10:00", 1_000));
        assert!(!Seal::new().unwrap().holds(&state, "10:00", 1_000));
    }
}
