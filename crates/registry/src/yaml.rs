//! A YAML 1.2 document as a tree whose every node knows its line and column.
//!
//! Scalars stay text: what a scalar means is decided by the key it stands under. Aliases are
//! resolved, within a budget; several documents, custom tags and keys that are not scalars are
//! mistakes. Duplicate keys are kept, for the reader of the mapping to report.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span};

/// Deepest nesting: the configuration itself needs nine levels.
const MAX_DEPTH: usize = 32;
/// Most nodes after aliases are resolved; a bomb of aliases ends here.
const MAX_NODES: usize = 500_000;

/// Line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
}

/// A node and where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where it begins.
    pub at: Place,
    /// What it is.
    pub value: Value,
}

/// The three kinds of node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text, and whether it stood without quotes.
    Scalar {
        /// The text after YAML's own escapes.
        text: String,
        /// Whether it stood without quotes (only then `~` and nothing mean "no value").
        plain: bool,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping, in the order of the document.
    Mapping(Vec<(Key, Node)>),
}

/// A key of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Where it stands.
    pub at: Place,
    /// Its text.
    pub text: String,
}

impl Node {
    /// Whether the node is absent in effect: nothing, `~` or `null`, without quotes.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// What kind of node this is, in words.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } => "a single value",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    fn weight(&self) -> usize {
        1 + match &self.value {
            Value::Scalar { .. } => 0,
            Value::Sequence(items) => items.iter().map(Node::weight).sum(),
            Value::Mapping(entries) => entries.iter().map(|(_, node)| 1 + node.weight()).sum(),
        }
    }
}

/// Why a text is not a document we read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where.
    pub at: Place,
    /// Keys on the way there, joined by dots.
    pub key_path: String,
    /// What.
    pub what: String,
}

/// Parses one document; an empty one is an empty mapping.
pub fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        match next {
            Ok((event, span)) => builder.event(event, span)?,
            Err(error) => {
                let at = Place {
                    line: error.marker().line(),
                    column: error.marker().col() + 1,
                };
                return Err(builder.error(at, error.info()));
            }
        }
    }
    let empty = Node {
        at: Place { line: 1, column: 1 },
        value: Value::Mapping(Vec::new()),
    };
    Ok(builder.root.unwrap_or(empty))
}

enum Open {
    Sequence(Vec<Node>),
    Mapping(Vec<(Key, Node)>, Option<Key>),
}

struct Frame {
    at: Place,
    anchor: usize,
    open: Open,
}

#[derive(Default)]
struct Builder {
    stack: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    documents: usize,
    root: Option<Node>,
}

fn place(span: &Span) -> Place {
    Place {
        line: span.start.line(),
        column: span.start.col() + 1,
    }
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        let at = place(&span);
        if let Some(tag) = event.tag().filter(|tag| !tag.is_yaml_core_schema()) {
            return Err(self.error(at, format!("the tag {} is not known", tag.original())));
        }
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let value = Value::Scalar {
                    text: text.into_owned(),
                    plain: style == ScalarStyle::Plain,
                };
                self.finish(Node { at, value }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.open(at, anchor, Open::Sequence(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                self.open(at, anchor, Open::Mapping(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(id) => match self.anchors.get(&id) {
                Some(node) => {
                    self.nodes += node.weight();
                    let node = Node { at, ..node.clone() };
                    self.finish(node, 0)
                }
                None => Err(self.error(at, "the alias refers to itself".to_owned())),
            },
            Event::UnresolvedAlias(name) => {
                Err(self.error(at, format!("the alias *{name} has no anchor")))
            }
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    let what = "a second document begins here; the configuration is one";
                    return Err(self.error(at, what.to_owned()));
                }
                Ok(())
            }
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentEnd
            | Event::Anchor(..)
            | Event::Comment(..) => Ok(()),
            _ => Err(self.error(at, "is not understood".to_owned())),
        }
    }

    fn open(&mut self, at: Place, anchor: usize, open: Open) -> Result<(), SyntaxError> {
        if self.key_is_due() {
            return Err(self.error(at, "a key is a single value, not a collection".to_owned()));
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err(self.error(at, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.stack.push(Frame { at, anchor, open });
        Ok(())
    }

    fn close(&mut self) -> Result<(), SyntaxError> {
        let Some(Frame { at, anchor, open }) = self.stack.pop() else {
            return Ok(());
        };
        let value = match open {
            Open::Sequence(items) => Value::Sequence(items),
            Open::Mapping(entries, _) => Value::Mapping(entries),
        };
        self.finish(Node { at, value }, anchor)
    }

    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.error(node.at, format!("more than {MAX_NODES} values")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        if self.key_is_due() && !matches!(node.value, Value::Scalar { .. }) {
            let what = "a key is a single value, not a collection".to_owned();
            return Err(self.error(node.at, what));
        }
        match self.stack.last_mut().map(|frame| &mut frame.open) {
            None => self.root = Some(node),
            Some(Open::Sequence(items)) => items.push(node),
            Some(Open::Mapping(entries, due)) => match (due.take(), node.value) {
                (Some(key), value) => entries.push((key, Node { at: node.at, value })),
                (None, Value::Scalar { text, .. }) => *due = Some(Key { at: node.at, text }),
                (None, Value::Sequence(_) | Value::Mapping(_)) => {}
            },
        }
        Ok(())
    }

    fn key_is_due(&self) -> bool {
        matches!(
            self.stack.last().map(|frame| &frame.open),
            Some(Open::Mapping(_, None))
        )
    }

    fn error(&self, at: Place, what: String) -> SyntaxError {
        let keys = self.stack.iter().filter_map(|frame| match &frame.open {
            Open::Mapping(_, Some(key)) => Some(key.text.as_str()),
            Open::Mapping(_, None) | Open::Sequence(_) => None,
        });
        SyntaxError {
            at,
            key_path: keys.collect::<Vec<_>>().join("."),
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_keys_know_their_place() {
        let node = parse("a:\n  b: [1, \"2\"]\n").unwrap();
        let Value::Mapping(top) = node.value else {
            panic!("a mapping")
        };
        assert_eq!(top[0].0.at, Place { line: 1, column: 1 });
        let Value::Mapping(inner) = &top[0].1.value else {
            panic!("a mapping")
        };
        assert_eq!(inner[0].0.at, Place { line: 2, column: 3 });
        let Value::Sequence(items) = &inner[0].1.value else {
            panic!("a list")
        };
        assert_eq!(
            items[1].at,
            Place {
                line: 2,
                column: 10
            }
        );
        assert!(matches!(
            &items[1].value,
            Value::Scalar { text, plain: false } if text == "2"
        ));
    }

    #[test]
    fn what_is_not_one_plain_document_is_refused_with_its_line() {
        for (text, line) in [
            ("a: b\n---\nc: d\n", 2),
            ("a: [b\nc: d\n", 2),
            ("a: *nobody\n", 1),
            ("a: !include other.yaml\n", 1),
            ("? [a]\n: b\n", 1),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.at.line, line, "{text}: {error:?}");
        }
        let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
        assert!(parse(&deep).unwrap_err().what.contains("deep"));
    }

    #[test]
    fn aliases_are_resolved_and_a_bomb_of_them_is_refused() {
        let node = parse("a: &x [1, 2]\nb: *x\n").unwrap();
        let Value::Mapping(top) = node.value else {
            panic!("a mapping")
        };
        assert_eq!(top[0].1.value, top[1].1.value);
        let mut bomb = String::from("a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
        for level in 1..12 {
            let refer = format!("*a{}", level - 1);
            let refers = [refer.as_str(); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{refers}]\n"));
        }
        assert!(parse(&bomb).unwrap_err().what.contains("more than"));
    }
}
