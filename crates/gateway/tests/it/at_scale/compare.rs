//! The comparison of bytes, and hops that are not faithful, to show that it is sharp.

use super::exchange::OWN_ID;

/// Compares a message with what it must be; gives the id that stands where [`OWN_ID`] does, or, where
/// the expectation has none, nothing.
pub(super) fn compare(expected: &str, got: &str) -> Result<String, String> {
    let Some((before, _)) = expected.split_once(OWN_ID) else {
        return same(expected, got).map(|()| String::new());
    };
    let Some(rest) = got.strip_prefix(before) else {
        same(expected, got)?;
        return Err("equal to a placeholder".to_owned());
    };
    let own = rest.split('"').next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if own.is_empty() || own.len() > 64 || !own.bytes().all(plain) {
        return Err(format!("no id of the hop: {own:?}"));
    }
    same(&expected.replace(OWN_ID, own), got)?;
    Ok(own.to_owned())
}

fn same(expected: &str, got: &str) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    let pairs = expected.bytes().zip(got.bytes());
    let at = pairs.take_while(|(one, other)| one == other).count();
    let around = |text: &str| {
        let bytes = text.as_bytes();
        let shown = &bytes[at.saturating_sub(40)..bytes.len().min(at + 60)];
        String::from_utf8_lossy(shown).into_owned()
    };
    let (wanted, found) = (around(expected), around(got));
    Err(format!("byte {at}: expected {wanted:?}, got {found:?}"))
}

/// A message on one line. Strings hold no raw line ends, so these stand between tokens.
pub(super) fn without_line_ends(text: &str) -> String {
    text.replace(['\r', '\n'], "")
}

/// A hop that is not faithful: what it makes of what a faithful one hands on.
pub(super) struct Broken {
    pub(super) how: &'static str,
    pub(super) hop: fn(&str) -> String,
}

/// What goes wrong in splicers and in proxies that write messages anew.
pub(super) const BROKEN: [Broken; 12] = [
    Broken {
        how: "writes every message anew",
        hop: |text| match serde_json::from_str::<serde_json::Value>(text) {
            Ok(value) => value.to_string(),
            // half a surrogate pair: such a hop would refuse the message
            Err(_) => String::new(),
        },
    },
    Broken {
        how: "splices one byte too far",
        hop: |text| behind_id(text, |rest| rest.chars().skip(1).collect()),
    },
    Broken {
        how: "splices one byte too short",
        hop: |text| behind_id(text, |rest| format!("\"{rest}")),
    },
    Broken {
        how: "loses the last byte",
        hop: |text| text.chars().take(text.chars().count() - 1).collect(),
    },
    Broken {
        how: "adds a byte at the end",
        hop: |text| format!("{text} "),
    },
    Broken {
        how: "flips a bit in the middle",
        hop: |text| {
            let mut bytes = text.as_bytes().to_vec();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            String::from_utf8_lossy(&bytes).into_owned()
        },
    },
    Broken {
        how: "decodes an escaped slash",
        hop: |text| text.replace("\\/", "/"),
    },
    Broken {
        how: "spells escapes in capitals",
        hop: |text| text.replace("\\ud8", "\\uD8").replace("\\udc", "\\uDC"),
    },
    Broken {
        how: "rounds numbers",
        hop: |text| {
            text.replace("9007199254740993", "9007199254740992")
                .replace("1e400", "null")
                .replace("1.0", "1")
        },
    },
    Broken {
        how: "forgets the sign of zero",
        hop: |text| text.replace("-0", "0"),
    },
    Broken {
        how: "drops blanks",
        hop: |text| text.replace(' ', ""),
    },
    Broken {
        how: "composes letters",
        hop: |text| text.replace("e\u{301}", "\u{e9}"),
    },
];

fn behind_id(text: &str, change: impl Fn(&str) -> String) -> String {
    // an escaped spelling of the key is not found: such a message passes as it is
    let Some((before, rest)) = text.split_once("\"id\"") else {
        return text.to_owned();
    };
    let end = rest.find([',', '}']).unwrap_or(rest.len());
    let (value, behind) = rest.split_at(end);
    format!("{before}\"id\"{value}{}", change(behind))
}
