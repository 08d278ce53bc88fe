//! One listed item: checked at ingestion, kept as the bytes that came, exposed by splice.
//!
//! A flawed item is dropped alone (case 26); nothing is repaired, except that an upstream that does
//! not mirror arguments in headers loses annotations it got wrong (XMH-04).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use vestibule_frame::agree::Annotated;
use vestibule_frame::dom::{self, AnnotationError, DomError, SchemaError};
use vestibule_frame::json;
use vestibule_terms::UpstreamId;

use crate::kind::Kind;
use crate::splice::{Edits, cut_members, find, find_at};
use crate::uri;

/// Members of a tool that name a resource of its upstream (APP-01).
const RESOURCE_LINKS: [&[&str]; 3] = [
    &["_meta", "ui", "resourceUri"],
    &["_meta", "ui/resourceUri"],
    &["_meta", "openai/outputTemplate"],
];

/// An item as its upstream defined it.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Its name, URI or template.
    pub key: Arc<str>,
    /// The whole object, byte for byte.
    pub raw: Bytes,
    /// The arguments that are mirrored in headers; tools only.
    pub annotated: Arc<[Annotated]>,
}

/// Whether annotations of a tool that break their rules take the tool with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirroring {
    /// The upstream reads the headers: the tool could not be called.
    Required,
    /// It does not: the annotations are taken out.
    Ignored,
}

/// Why an item is not listed.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    /// It is no object.
    #[error("not an object")]
    NotAnObject,
    /// A key occurs twice: readers would see different items.
    #[error("a key occurs twice")]
    Ambiguous,
    /// What identifies it is missing or no string.
    #[error("`{0}` is missing or not a string")]
    Key(&'static str),
    /// Its URI is too long or has control characters.
    #[error("the URI is too long or has control characters")]
    Uri,
    /// A tool without input schema.
    #[error("`inputSchema` is missing")]
    NoSchema,
    /// The input schema is not one.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Annotations break their rules.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
}

impl Definition {
    /// Reads one item of a list.
    ///
    /// # Errors
    /// When it must not be listed.
    pub fn read(kind: Kind, raw: Bytes, mirroring: Mirroring) -> Result<Self, Flaw> {
        if raw.first() != Some(&b'{') {
            return Err(Flaw::NotAnObject);
        }
        json::unique(&raw).map_err(|_| Flaw::Ambiguous)?;
        let key = json::member(&raw, kind.key())
            .and_then(json::string)
            .map(|key| Arc::<str>::from(key.as_ref()))
            .ok_or(Flaw::Key(kind.key()))?;
        if kind.is_uri() && !uri::is_acceptable(&key) {
            return Err(Flaw::Uri);
        }
        if kind != Kind::Tools {
            return Ok(Self {
                key,
                raw,
                annotated: Arc::new([]),
            });
        }
        let (raw, annotated) = read_schema(raw, mirroring)?;
        Ok(Self {
            key,
            raw,
            annotated,
        })
    }

    /// The item as a federated server shows it: under `name`, with its URIs exposed.
    pub fn expose(&self, kind: Kind, upstream: &UpstreamId, name: &str) -> Bytes {
        let mut edits = Edits::default();
        if let Some(range) = find_at(&self.raw, &[kind.key()]) {
            edits.replace(range, json::quote(name));
        }
        if kind == Kind::Tools {
            for path in RESOURCE_LINKS {
                self.expose_uri(&mut edits, upstream, path);
            }
        }
        edits.apply(&self.raw)
    }

    fn expose_uri(&self, edits: &mut Edits, upstream: &UpstreamId, path: &[&str]) {
        let Some(range) = find_at(&self.raw, path) else {
            return;
        };
        let text = self.raw.get(range.clone()).and_then(json::string);
        if let Some(text) = text {
            edits.replace(range, json::quote(&uri::expose(upstream, &text)));
        }
    }
}

fn read_schema(raw: Bytes, mirroring: Mirroring) -> Result<(Bytes, Arc<[Annotated]>), Flaw> {
    let at = find_at(&raw, &["inputSchema"]).ok_or(Flaw::NoSchema)?;
    let schema = raw.get(at.clone()).unwrap_or_default();
    match dom::object_schema(schema) {
        Ok(()) => {}
        // Numbers beyond every double and lone surrogates are JSON; the schema is relayed unread.
        Err(SchemaError::Dom(DomError::Unrepresentable)) => return Ok((raw, Arc::new([]))),
        Err(flaw) => return Err(flaw.into()),
    }
    match (dom::annotations(schema), mirroring) {
        (Ok(annotated), _) => Ok((raw, annotated.into())),
        (Err(flaw), Mirroring::Required) => Err(flaw.into()),
        (Err(_), Mirroring::Ignored) => Ok((without_annotations(&raw, at), Arc::new([]))),
    }
}

/// What a value inside a schema is, as far as annotations can stand in it.
#[derive(Clone, Copy)]
enum Part {
    Schema,
    /// An object of name to schema: its keys are names, never keywords.
    Map,
}

fn part_of(keyword: &str) -> Option<Part> {
    match keyword {
        "default" | "const" | "enum" | "examples" => None,
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
            Some(Part::Map)
        }
        _ => Some(Part::Schema),
    }
}

/// The item without any `x-mcp-header` in its schema.
fn without_annotations(raw: &Bytes, schema: Range<usize>) -> Bytes {
    let mut edits = Edits::default();
    // The schema was validated, so its depth is bounded; the walk needs no recursion all the same.
    let mut open = vec![(schema, Part::Schema)];
    while let Some((range, part)) = open.pop() {
        let text = raw.get(range.clone()).unwrap_or_default();
        for element in json::elements(text) {
            open.push((within(&range, element.range()), Part::Schema));
        }
        if matches!(part, Part::Schema) {
            cut_members(&mut edits, raw, &range, |key| key == dom::ANNOTATION);
        }
        for member in json::members(text) {
            let token = text.get(member.key.range()).unwrap_or_default();
            let key = json::string(token).unwrap_or_default();
            let inner = match part {
                Part::Map => Some(Part::Schema),
                Part::Schema if key == dom::ANNOTATION => None,
                Part::Schema => part_of(&key),
            };
            if let Some(inner) = inner {
                open.push((within(&range, member.value.range()), inner));
            }
        }
    }
    edits.apply(raw)
}

fn within(outer: &Range<usize>, inner: Range<usize>) -> Range<usize> {
    outer.start + inner.start..outer.start + inner.end
}

/// The elements of an array member of a result, as shared slices of the message; none when there
/// is no such array.
pub fn items(message: &Bytes, result: Range<usize>, member: &str) -> Option<Vec<Bytes>> {
    let array = find(message, &result, member)?;
    let text = message.get(array.clone())?;
    if text.first() != Some(&b'[') {
        return None;
    }
    let element = |span: vestibule_frame::Span| message.slice(within(&array, span.range()));
    Some(json::elements(text).map(element).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(text: &str, mirroring: Mirroring) -> Result<Definition, Flaw> {
        Definition::read(Kind::Tools, Bytes::from(text.to_owned()), mirroring)
    }

    const SCHEMA: &str = r#""inputSchema":{"type":"object"}"#;

    /// Cases 44, 45, 47: only name and URIs change; unknown members, numbers and order stay.
    #[test]
    fn case_44_an_exposed_tool_keeps_every_other_byte() {
        let text = r#"{"x-future":{"a":1e2},"name" : "s\u0065arch","title":"T","inputSchema":{"type":"object","$defs":{"d":{"const":null,"default":123456789012345678901234567890}}},"_meta":{"ui":{"resourceUri":"ui://p/r","k":1},"openai/outputTemplate":"ui://p/t","ui/resourceUri":"ui://p/f"}}"#;
        let definition = tool(text, Mirroring::Required).unwrap();
        assert_eq!(&*definition.key, "search");
        let up = UpstreamId::new("gh").unwrap();
        let exposed = definition.expose(Kind::Tools, &up, "gh__search");
        let expected = text
            .replace(r#""s\u0065arch""#, r#""gh__search""#)
            .replace("ui://p/", "ui://gh.p/");
        assert_eq!(exposed, expected);
    }

    /// TOL-01, case 26: a definition without name or object schema is refused.
    #[test]
    fn tol_01_flawed_tools_are_refused() {
        for bad in [
            "[]".to_owned(),
            format!("{{{SCHEMA}}}"),
            format!(r#"{{"name":1,{SCHEMA}}}"#),
            format!(r#"{{"name":"a","name":"b",{SCHEMA}}}"#),
            r#"{"name":"a"}"#.to_owned(),
            r#"{"name":"a","inputSchema":{"type":"int"}}"#.to_owned(),
            r#"{"name":"a","inputSchema":{"anyOf":[]}}"#.to_owned(),
        ] {
            assert!(tool(&bad, Mirroring::Ignored).is_err(), "{bad}");
        }
        assert!(tool(&format!(r#"{{"name":"a",{SCHEMA}}}"#), Mirroring::Required).is_ok());
    }

    /// XT-404, XMH-04: a bad annotation hides the tool of an upstream that reads the headers, and is
    /// taken out for another one; data that only looks like one stays.
    #[test]
    fn xt_404_bad_annotations_hide_or_go() {
        let text = r#"{"name":"a","inputSchema":{"type":"object","properties":{"x-mcp-header":{"type":"string"},"n":{"type":"number","x-mcp-header":"N","default":{"x-mcp-header":1}},"l":{"type":"array","items":[{"x-mcp-header":"L"}]}}}}"#;
        assert!(matches!(
            tool(text, Mirroring::Required),
            Err(Flaw::Annotation(_))
        ));
        let kept = tool(text, Mirroring::Ignored).unwrap();
        let expected = text
            .replace(r#","x-mcp-header":"N""#, "")
            .replace(r#""x-mcp-header":"L""#, "");
        assert_eq!(kept.raw, expected);
        assert!(kept.annotated.is_empty());
    }

    /// XT-405: a nested annotation reached by properties alone is read.
    #[test]
    fn xt_405_nested_annotations_are_read() {
        let text = r#"{"name":"a","inputSchema":{"type":"object","properties":{"o":{"type":"object","properties":{"r":{"type":["string","null"],"x-mcp-header":"Region"}}}}}}"#;
        let annotated = tool(text, Mirroring::Required).unwrap().annotated;
        assert_eq!(annotated[0].path, ["o", "r"]);
        assert_eq!(annotated[0].header, "Region");
    }

    #[test]
    fn resources_and_templates_need_a_usable_uri() {
        let read = |kind, text: &str| {
            Definition::read(kind, Bytes::from(text.to_owned()), Mirroring::Ignored)
        };
        assert!(read(Kind::Resources, r#"{"uri":"a:b"}"#).is_ok());
        assert!(read(Kind::Resources, r#"{"uri":"a:\u0000"}"#).is_err());
        assert!(read(Kind::Templates, r#"{"uri":"a:b"}"#).is_err());
        let template = read(Kind::Templates, r#"{"uriTemplate":"{+p}","uri":"k"}"#).unwrap();
        let up = UpstreamId::new("u").unwrap();
        let exposed = template.expose(Kind::Templates, &up, &uri::expose(&up, &template.key));
        assert_eq!(exposed, r#"{"uriTemplate":"u+{+p}","uri":"k"}"#);
    }
}
