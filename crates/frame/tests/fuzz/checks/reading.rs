//! T02, T03, case 98: what policy reads of a message (method, name, uri, id, progress token) is what
//! any other reader behind the gateway reads, or the message is refused.

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use vestibule_frame::{Frame, Kind, Limits, Span};

/// One thing that policy reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    /// Not there, or null.
    Absent,
    /// A string, decoded.
    Text(String),
    /// Another value, as its token.
    Token(String),
}

/// Method, name, uri, id and progress token, in this order.
pub(crate) type Reading = [Field; 5];

/// Which of several members of one name a reader goes by.
#[derive(Clone, Copy, Debug)]
enum Taste {
    First,
    Last,
    /// The last one whose name is the same but for letter case, as Go reads.
    Folded,
}

/// `data` as a body: whatever we take, others read as we do.
pub(crate) fn check(data: &[u8]) {
    let Some(ours) = ours(data) else { return };
    for taste in [Taste::First, Taste::Last, Taste::Folded] {
        assert_eq!(serdes(data, taste), ours, "{taste:?}");
    }
}

/// What we read of a body; none when it is refused.
pub(crate) fn ours(data: &[u8]) -> Option<Reading> {
    let frame = Frame::parse(Bytes::copy_from_slice(data), &Limits::default()).ok()?;
    let field = |span: Option<Span>| match span {
        None => Field::Absent,
        Some(span) => match frame.string(span) {
            Some(text) => Field::Text(text.into_owned()),
            None => token(frame.text(span)),
        },
    };
    let id = match frame.id() {
        None => Field::Absent,
        Some(id) => match id.as_str() {
            Some(text) => Field::Text(text.into_owned()),
            None => token(id.as_bytes()),
        },
    };
    if let Some(method) = frame.method() {
        assert_eq!(field(frame.method_span()), Field::Text(method.into_owned()));
    }
    Some([
        field(frame.method_span()),
        field(frame.name()),
        field(frame.uri()),
        id,
        field(frame.progress_token()),
    ])
}

fn token(text: &[u8]) -> Field {
    Field::Token(String::from_utf8(text.to_vec()).expect("a body is UTF-8"))
}

fn serdes(data: &[u8], taste: Taste) -> Reading {
    let root: Pairs<'_> = serde_json::from_slice(data).expect("what is taken is an object");
    let method = root.get("method", taste);
    let id = root.get("id", taste);
    let kind = Frame::parse(Bytes::copy_from_slice(data), &Limits::default())
        .expect("it was taken")
        .kind();
    let params = match kind {
        Kind::Response => Pairs(Vec::new()),
        Kind::Request | Kind::Notification => root.object("params", taste),
    };
    let meta = params.object("_meta", taste);
    [
        method,
        params.get("name", taste),
        params.get("uri", taste),
        id,
        meta.get("progressToken", taste),
    ]
}

/// The members of an object, all of them, in order.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Pairs<'a> {
    fn raw(&self, name: &str, taste: Taste) -> Option<&'a str> {
        let hit = |(key, _): &&(String, &'a RawValue)| match taste {
            Taste::First | Taste::Last => key == name,
            Taste::Folded => folded(key) == folded(name),
        };
        let found = match taste {
            Taste::First => self.0.iter().find(hit),
            Taste::Last | Taste::Folded => self.0.iter().rev().find(hit),
        };
        found
            .map(|(_, value)| value.get())
            .filter(|text| *text != "null")
    }

    fn get(&self, name: &str, taste: Taste) -> Field {
        match self.raw(name, taste) {
            None => Field::Absent,
            Some(text) if text.starts_with('"') => {
                Field::Text(serde_json::from_str(text).expect("a string that policy reads"))
            }
            Some(text) => Field::Token(text.to_owned()),
        }
    }

    fn object(&self, name: &str, taste: Taste) -> Pairs<'a> {
        let text = self.raw(name, taste).unwrap_or("{}");
        serde_json::from_str(text).expect("params and _meta are objects")
    }
}

fn folded(key: &str) -> String {
    let fold = |letter: char| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key.chars().map(fold).collect()
}

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}
