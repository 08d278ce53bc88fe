//! Tool schemas: whether an input schema is one at all, and which arguments it asks to be mirrored
//! in headers.
//!
//! Validation of instances is not done here, and no reference is followed.

use super::{ANNOTATION, Annotated, Dom, DomError, Node, ValueKind};

/// Keywords whose values are objects of name to schema.
const SCHEMA_MAPS: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];

/// Keywords whose values are data, not schemas.
const DATA: [&str; 4] = ["default", "const", "enum", "examples"];

/// The type names of JSON Schema.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// Why the annotations of a schema make its tool unusable over HTTP (XMH-01 to XMH-03).
#[derive(Debug, thiserror::Error)]
pub enum AnnotationError {
    /// The schema is no JSON.
    #[error(transparent)]
    Dom(#[from] DomError),
    /// The annotation is not a header name.
    #[error("x-mcp-header at {path} is not a header name")]
    Name {
        /// Where, as a JSON pointer.
        path: String,
    },
    /// Two arguments ask for one header.
    #[error("x-mcp-header at {path} repeats the name of another one")]
    Repeated {
        /// Where, as a JSON pointer.
        path: String,
    },
    /// The argument is not a string, an integer or a boolean.
    #[error("x-mcp-header at {path} is on a property that is not string, integer or boolean")]
    Type {
        /// Where, as a JSON pointer.
        path: String,
    },
    /// The argument cannot be reached by property names alone.
    #[error("x-mcp-header at {path} is not on a property that is reached by properties alone")]
    Unreachable {
        /// Where, as a JSON pointer.
        path: String,
    },
}

/// Why a schema does not describe the arguments of a tool (TOL-01).
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The schema is no JSON.
    #[error(transparent)]
    Dom(#[from] DomError),
    /// It is no object, or its type is not `object`.
    #[error("an input schema must be an object with \"type\": \"object\"")]
    NotAnObjectSchema,
    /// A keyword has a value that no schema has there.
    #[error("the schema is malformed at {path}")]
    Malformed {
        /// Where, as a JSON pointer.
        path: String,
    },
}

/// The `x-mcp-header` annotations of an input schema, in the order of their header names.
///
/// # Errors
/// When any annotation is not allowed: then none counts.
pub fn annotations(schema: &[u8]) -> Result<Vec<Annotated>, AnnotationError> {
    let dom = Dom::parse(schema)?;
    let mut found = Found { list: Vec::new() };
    found.schema(dom.root(), &mut Place::default(), true)?;
    found.list.sort_by(|a, b| {
        a.header
            .to_ascii_lowercase()
            .cmp(&b.header.to_ascii_lowercase())
    });
    Ok(found.list)
}

/// TOL-01, case 26: checks that a text is a schema for an object, with nothing in it that cannot be
/// a schema: unknown type names, properties that are no schemas, required names that are no strings.
///
/// # Errors
/// The first thing that is wrong.
pub fn object_schema(schema: &[u8]) -> Result<(), SchemaError> {
    let dom = Dom::parse(schema)?;
    if dom.root().get("type").and_then(Node::as_str) != Some("object") {
        return Err(SchemaError::NotAnObjectSchema);
    }
    well_formed(dom.root(), &mut Place::default()).map_err(|path| SchemaError::Malformed { path })
}

/// Where a walk is, as pointer segments from the root schema.
#[derive(Default)]
struct Place {
    segments: Vec<String>,
}

impl Place {
    fn pointer(&self) -> String {
        let escaped =
            |segment: &String| format!("/{}", segment.replace('~', "~0").replace('/', "~1"));
        self.segments.iter().map(escaped).collect()
    }

    fn within<T>(&mut self, segment: &str, walk: impl FnOnce(&mut Place) -> T) -> T {
        self.segments.push(segment.to_owned());
        let out = walk(self);
        self.segments.pop();
        out
    }

    /// The property names, when the way here is `properties` and a name, over and over.
    fn properties(&self) -> Vec<String> {
        self.segments.iter().skip(1).step_by(2).cloned().collect()
    }
}

struct Found {
    list: Vec<Annotated>,
}

impl Found {
    /// One schema. `reachable`: the way here is by property names alone.
    fn schema(
        &mut self,
        node: Node<'_>,
        place: &mut Place,
        reachable: bool,
    ) -> Result<(), AnnotationError> {
        if let Some(values) = node.as_array() {
            for (at, value) in values.enumerate() {
                place.within(&at.to_string(), |place| self.schema(value, place, false))?;
            }
            return Ok(());
        }
        let Some(members) = node.as_object() else {
            return Ok(());
        };
        if let Some(annotation) = node.get(ANNOTATION) {
            self.annotation(node, annotation, place, reachable)?;
        }
        for (keyword, value) in members {
            if keyword == ANNOTATION || DATA.contains(&keyword) {
                continue;
            }
            let onward = reachable && keyword == "properties";
            place.within(keyword, |place| match value.as_object() {
                Some(_) if SCHEMA_MAPS.contains(&keyword) => self.map(value, place, onward),
                _ => self.schema(value, place, false),
            })?;
        }
        Ok(())
    }

    /// An object of name to schema: its keys are names, never keywords.
    fn map(
        &mut self,
        node: Node<'_>,
        place: &mut Place,
        onward: bool,
    ) -> Result<(), AnnotationError> {
        for (name, schema) in node.as_object().into_iter().flatten() {
            place.within(name, |place| self.schema(schema, place, onward))?;
        }
        Ok(())
    }

    fn annotation(
        &mut self,
        property: Node<'_>,
        annotation: Node<'_>,
        place: &Place,
        reachable: bool,
    ) -> Result<(), AnnotationError> {
        let path = || place.pointer();
        let path_to_value = place.properties();
        if !reachable || path_to_value.is_empty() {
            return Err(AnnotationError::Unreachable { path: path() });
        }
        let header = annotation.as_str().filter(|name| is_token(name));
        let Some(header) = header else {
            return Err(AnnotationError::Name { path: path() });
        };
        let Some(kind) = property.get("type").and_then(kind_of) else {
            return Err(AnnotationError::Type { path: path() });
        };
        if self
            .list
            .iter()
            .any(|other| other.header.eq_ignore_ascii_case(header))
        {
            return Err(AnnotationError::Repeated { path: path() });
        }
        self.list.push(Annotated {
            path: path_to_value,
            header: header.to_owned(),
            kind,
        });
        Ok(())
    }
}

/// XMH-02, AMB-09: one of three types, or a union of one of them with null.
fn kind_of(type_keyword: Node<'_>) -> Option<ValueKind> {
    let mut kind = None;
    let single = type_keyword.as_str().map(|_| type_keyword);
    let union = type_keyword.as_array().into_iter().flatten();
    for name in single.into_iter().chain(union) {
        let one = match name.as_str()? {
            "string" => ValueKind::Str,
            "integer" => ValueKind::Int,
            "boolean" => ValueKind::Bool,
            "null" if single.is_none() => continue,
            _ => return None,
        };
        if kind.replace(one).is_some() {
            return None;
        }
    }
    kind
}

/// A token by RFC 9110.
fn is_token(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(allowed)
}

/// Checks the keywords that hold schemas, types and names; gives the place of the first bad one.
fn well_formed(node: Node<'_>, place: &mut Place) -> Result<(), String> {
    if node.is_bool() {
        return Ok(());
    }
    let Some(members) = node.as_object() else {
        return Err(place.pointer());
    };
    for (keyword, value) in members {
        place.within(keyword, |place| keyword_well_formed(keyword, value, place))?;
    }
    Ok(())
}

fn keyword_well_formed(keyword: &str, value: Node<'_>, place: &mut Place) -> Result<(), String> {
    match keyword {
        "type" if is_type(value) => Ok(()),
        "required" if is_list(value, |node| node.is_str()) => Ok(()),
        "enum" if value.is_array() => Ok(()),
        "type" | "required" | "enum" => Err(place.pointer()),
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => match value.as_array() {
            Some(schemas) => each(
                schemas.enumerate().map(|(at, n)| (at.to_string(), n)),
                place,
            ),
            None => Err(place.pointer()),
        },
        "items" if value.is_array() => {
            let schemas = value.as_array().into_iter().flatten().enumerate();
            each(schemas.map(|(at, n)| (at.to_string(), n)), place)
        }
        "items"
        | "additionalProperties"
        | "not"
        | "if"
        | "then"
        | "else"
        | "contains"
        | "propertyNames"
        | "unevaluatedItems"
        | "unevaluatedProperties" => well_formed(value, place),
        map if SCHEMA_MAPS.contains(&map) => match value.as_object() {
            Some(schemas) => each(schemas.map(|(name, n)| (name.to_owned(), n)), place),
            None => Err(place.pointer()),
        },
        _ => Ok(()),
    }
}

fn each<'a>(
    schemas: impl Iterator<Item = (String, Node<'a>)>,
    place: &mut Place,
) -> Result<(), String> {
    for (name, schema) in schemas {
        place.within(&name, |place| well_formed(schema, place))?;
    }
    Ok(())
}

fn is_type(value: Node<'_>) -> bool {
    let named = |node: Node<'_>| node.as_str().is_some_and(|name| TYPES.contains(&name));
    named(value) || is_list(value, named)
}

fn is_list(value: Node<'_>, all: impl Fn(Node<'_>) -> bool) -> bool {
    value.as_array().is_some_and(|mut values| values.all(all))
}

#[cfg(test)]
mod tests;
