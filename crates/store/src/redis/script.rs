//! Scripts: the only commands there are.

use std::sync::OnceLock;

use aws_lc_rs::digest;

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
}

impl Script {
    /// The script of that text. The name is for errors and metrics.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            digest: OnceLock::new(),
        }
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
}
