//! Secrets: a plain string, `{ from_env: NAME }` or `{ from_file: PATH }`. No message shows one.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use vestibule_terms::Secret;
use zeroize::Zeroizing;

use super::{Item, Reader, Section};
use crate::object::Key;
use crate::yaml::Value;

const SECRET: &[Key] = &[
    Key {
        name: "from_env",
        default: "",
        about: "Name of an environment variable.",
        served: true,
    },
    Key {
        name: "from_file",
        default: "",
        about: "Path of a file; one newline at its end is left out.",
        served: true,
    },
    Key {
        name: "from_secret",
        default: "",
        about: "A sealed secret of the tenant.",
        served: false,
    },
];

impl Reader<'_> {
    /// The secret at `item`; empty ones are a mistake.
    pub(crate) fn secret(&mut self, item: &Item<'_>) -> Option<Secret<String>> {
        let value = match &item.node.value {
            Value::Mapping(_) => {
                let section = self.section(item, SECRET);
                self.secret_from(&section)?
            }
            Value::Scalar { .. } | Value::Sequence(_) => self.text(item)?,
        };
        if value.is_empty() {
            self.mistake(item.node.at, &item.path, "the secret is empty");
            return None;
        }
        Some(Secret::new(value))
    }

    fn secret_from(&mut self, section: &Section<'_>) -> Option<String> {
        match (section.get("from_env"), section.get("from_file")) {
            (Some(item), None) => {
                let name = self.text(&item)?;
                let value = (self.env)(&name);
                if value.is_none() {
                    let what = format!("the environment variable {name} is not set");
                    self.mistake(item.node.at, &item.path, what);
                }
                value
            }
            (None, Some(item)) => {
                let path = self.path(&item)?;
                match std::fs::read_to_string(&path) {
                    Ok(text) => {
                        let text = Zeroizing::new(text);
                        let line = text.strip_suffix('\n').unwrap_or(&text);
                        Some(line.strip_suffix('\r').unwrap_or(line).to_owned())
                    }
                    Err(error) => {
                        let what = format!("{} cannot be read: {error}", path.display());
                        self.mistake(item.node.at, &item.path, what);
                        None
                    }
                }
            }
            (Some(_), Some(_)) | (None, None) => {
                let what = "a secret is a string or exactly one of these";
                let one_of = ["from_env", "from_file"];
                self.mistake_of(section.at, &section.path, what, &one_of);
                None
            }
        }
    }

    /// 32 bytes in base64, as a secret.
    pub(crate) fn secret_32(&mut self, item: &Item<'_>) -> Option<Secret<[u8; 32]>> {
        let text = self.secret(item)?;
        let text = text.expose().trim();
        let decoded = STANDARD
            .decode(text)
            .or_else(|_error| STANDARD_NO_PAD.decode(text))
            .map(Zeroizing::new);
        let bytes = decoded
            .ok()
            .and_then(|bytes| bytes.as_slice().try_into().ok());
        if bytes.is_none() {
            let what = "must be 32 random bytes in base64 (openssl rand -base64 32)";
            self.mistake(item.node.at, &item.path, what);
        }
        bytes.map(Secret::new)
    }
}
