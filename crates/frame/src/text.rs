//! JSON string tokens: decoding them, telling lone surrogates, quoting text.

use std::borrow::Cow;

use crate::simd::string_stop;

/// Why a token has no decoded form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Undecodable {
    /// Not a string token.
    NotAString,
    /// An escape names half of a surrogate pair.
    LoneSurrogate,
}

/// True for one whole string token without escapes, whose text is what stands between the quotes.
pub(crate) fn is_plain(token: &[u8]) -> bool {
    let last = token.len().wrapping_sub(1);
    token.first() == Some(&b'"')
        && last > 0
        && string_stop(token, 1) == last
        && token.ends_with(b"\"")
}

/// The text of a validated string token, quotes included. Borrows unless there are escapes.
pub(crate) fn decode(token: &[u8]) -> Result<Cow<'_, str>, Undecodable> {
    let inner = token
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""))
        .ok_or(Undecodable::NotAString)?;
    decode_inner(inner)
}

/// The same for the bytes between the quotes.
pub(crate) fn decode_inner(inner: &[u8]) -> Result<Cow<'_, str>, Undecodable> {
    let text = simdutf8::basic::from_utf8(inner).map_err(|_| Undecodable::NotAString)?;
    match memchr::memchr(b'\\', inner) {
        None => Ok(Cow::Borrowed(text)),
        Some(_) => unescape(text).map(Cow::Owned),
    }
}

fn unescape(text: &str) -> Result<String, Undecodable> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut chars = escape.chars();
        let kind = chars.next().ok_or(Undecodable::NotAString)?;
        rest = chars.as_str();
        if kind == 'u' {
            let (decoded, behind) = unicode(rest)?;
            out.push(decoded);
            rest = behind;
        } else {
            out.push(short_escape(kind).ok_or(Undecodable::NotAString)?);
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn short_escape(kind: char) -> Option<char> {
    match kind {
        '"' | '\\' | '/' => Some(kind),
        'b' => Some('\u{8}'),
        'f' => Some('\u{c}'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        _ => None,
    }
}

/// The character of `\uXXXX`, or of a pair of them, with the text behind it.
fn unicode(digits: &str) -> Result<(char, &str), Undecodable> {
    let (first, rest) = hex(digits)?;
    if let Some(plain) = char::from_u32(first) {
        return Ok((plain, rest));
    }
    let low = rest.strip_prefix("\\u").ok_or(Undecodable::LoneSurrogate)?;
    let (second, behind) = hex(low)?;
    if first >= 0xdc00 || !(0xdc00..0xe000).contains(&second) {
        return Err(Undecodable::LoneSurrogate);
    }
    let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    let decoded = char::from_u32(code).ok_or(Undecodable::LoneSurrogate)?;
    Ok((decoded, behind))
}

fn hex(digits: &str) -> Result<(u32, &str), Undecodable> {
    let (four, rest) = digits.split_at_checked(4).ok_or(Undecodable::NotAString)?;
    let code = u32::from_str_radix(four, 16).map_err(|_| Undecodable::NotAString)?;
    Ok((code, rest))
}

/// Appends `text` as a string token. Everything but quotes, backslashes and controls stays as it is.
pub(crate) fn quote_into(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let Some(escape) = escape_of(byte) else {
            continue;
        };
        out.extend_from_slice(text.as_bytes().get(plain_from..at).unwrap_or_default());
        out.extend_from_slice(escape.as_bytes());
        if escape == "\\u00" {
            out.extend_from_slice(&[hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
        plain_from = at + 1;
    }
    out.extend_from_slice(text.as_bytes().get(plain_from..).unwrap_or_default());
    out.push(b'"');
}

fn escape_of(byte: u8) -> Option<&'static str> {
    match byte {
        b'"' => Some("\\\""),
        b'\\' => Some("\\\\"),
        b'\n' => Some("\\n"),
        b'\r' => Some("\\r"),
        b'\t' => Some("\\t"),
        0..=0x1f => Some("\\u00"),
        _ => None,
    }
}

fn hex_digit(nibble: u8) -> u8 {
    if nibble < 10 {
        b'0' + nibble
    } else {
        b'a' + nibble - 10
    }
}
