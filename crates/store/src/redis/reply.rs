//! What a script answers.

use bytes::Bytes;
use redis::Value;

/// An answer. Scripts return numbers, texts and lists of them; nothing else is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `nil` or `false`.
    Nil,
    /// A number.
    Int(i64),
    /// Bytes, or a status.
    Text(Bytes),
    /// Several.
    List(Vec<Reply>),
}

impl Reply {
    /// The number, also one that is written as text, as fields of hashes are.
    pub fn int(&self) -> Option<i64> {
        match self {
            Reply::Int(number) => Some(*number),
            Reply::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            Reply::Nil | Reply::List(_) => None,
        }
    }

    /// The number, if it is not negative.
    pub fn count(&self) -> Option<u64> {
        match self {
            Reply::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            Reply::Int(_) | Reply::Nil | Reply::List(_) => u64::try_from(self.int()?).ok(),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Reply::Text(text) => Some(text),
            Reply::Nil | Reply::Int(_) | Reply::List(_) => None,
        }
    }

    /// The bytes, if they are text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// Its parts; none of what is no list.
    pub fn list(&self) -> &[Reply] {
        match self {
            Reply::List(parts) => parts,
            Reply::Nil | Reply::Int(_) | Reply::Text(_) => &[],
        }
    }

    /// Its parts, to be taken apart.
    pub fn into_list(self) -> Vec<Reply> {
        match self {
            Reply::List(parts) => parts,
            Reply::Nil | Reply::Int(_) | Reply::Text(_) => vec![],
        }
    }

    /// Whether it is [`Reply::Nil`].
    pub fn is_nil(&self) -> bool {
        *self == Reply::Nil
    }

    /// Reads what came; the code of an error somewhere in it.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the protocol has more kinds than scripts can answer with"
    )]
    pub(super) fn of(value: Value) -> Result<Self, String> {
        Ok(match value {
            Value::Nil => Reply::Nil,
            Value::Int(number) => Reply::Int(number),
            Value::Boolean(truth) => Reply::Int(i64::from(truth)),
            Value::BulkString(bytes) => Reply::Text(Bytes::from(bytes)),
            Value::SimpleString(text) => Reply::Text(Bytes::from(text)),
            Value::Okay => Reply::Text(Bytes::from_static(b"OK")),
            Value::Array(values) | Value::Set(values) => Reply::List(
                values
                    .into_iter()
                    .map(Reply::of)
                    .collect::<Result<_, _>>()?,
            ),
            Value::ServerError(error) => return Err(error.code().to_owned()),
            _ => return Err("an answer of an unknown kind".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_numbers_and_from_text() {
        assert_eq!(Reply::Int(-3).int(), Some(-3));
        assert_eq!(Reply::Int(-3).count(), None);
        let text = |text: &'static str| Reply::Text(Bytes::from_static(text.as_bytes()));
        assert_eq!(text("12").int(), Some(12));
        assert_eq!(text("18446744073709551615").count(), Some(u64::MAX));
        assert_eq!(text("x").int(), None);
        assert_eq!(Reply::Nil.count(), None);
    }
}
