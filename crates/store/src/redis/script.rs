//! Scripts: the only commands there are.

use std::sync::OnceLock;
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;

/// What is sent and answered needs time: a slow network's.
const BYTES_A_MILLISECOND: usize = 16 << 10;
/// The largest answer that is reckoned with: one event of any legal size.
const LARGEST: usize = 16 << 20;

/// A script of Lua. The server keeps it after the first run and is then told its digest only.
///
/// ```
/// use vestibule_store::redis::Script;
/// static TOUCH: Script = Script::new("touch", "return redis.call('EXISTS', KEYS[1])");
/// ```
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    text: &'static str,
    digest: OnceLock<String>,
    large_answer: bool,
}

impl Script {
    /// The script of that text. The name is for errors and metrics.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            digest: OnceLock::new(),
            large_answer: false,
        }
    }

    /// The same, with an answer that may be some megabytes: it may take longer.
    #[must_use]
    pub const fn with_large_answer(mut self) -> Self {
        self.large_answer = true;
        self
    }

    /// How much longer it may take than others.
    pub(super) fn allowance(&self, args: &[Bytes]) -> Duration {
        let bytes: usize = args.iter().map(Bytes::len).sum();
        let answer = if self.large_answer { LARGEST } else { 0 };
        Duration::from_millis(((bytes + answer) / BYTES_A_MILLISECOND) as u64)
    }

    /// What it is called.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) const fn text(&self) -> &'static str {
        self.text
    }

    /// The name the server knows it by: its SHA-1 in hexadecimal digits.
    pub(super) fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            let sum = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.text.as_bytes());
            sum.as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_known_by_the_digest_that_servers_compute() {
        let script = Script::new("one", "return 1");
        assert_eq!(script.digest(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn what_is_large_may_take_longer() {
        let script = Script::new("one", "return 1");
        assert_eq!(
            script.allowance(&[Bytes::from_static(b"x")]),
            Duration::ZERO
        );
        let event = Bytes::from(vec![0; 16 << 20]);
        assert_eq!(
            script.allowance(&[event]),
            Duration::from_secs(1) + Duration::from_millis(24)
        );
        let large = script.with_large_answer();
        assert!(large.allowance(&[]) >= Duration::from_secs(1));
    }
}
