//! Whole documents as a tree, for what is walked off the hot path: tool schemas and definitions.
//!
//! The text goes through our own scanner first, so grammar, depth and number length are those of
//! every other message; simd-json then builds the tree from a copy. Numbers too large for 64 bits
//! lose precision here, which is why nothing is ever forwarded from a tree. Of members with one key
//! the last counts, as for the clients that read the same text (the feature `value-no-dup-keys`).

use simd_json::{OwnedValue, StaticNode};

use crate::agree::{Annotated, ValueKind};
use crate::error::FrameError;
use crate::{Limits, json};

/// The keyword that asks for a header (XMH rows).
pub const ANNOTATION: &str = "x-mcp-header";

/// A parsed document.
#[derive(Clone, Debug)]
pub struct Dom(OwnedValue);

/// Why a text is no document.
#[derive(Debug, thiserror::Error)]
pub enum DomError {
    /// Not JSON within the limits.
    #[error(transparent)]
    Text(#[from] FrameError),
    /// A value that a tree cannot hold: half of a surrogate pair, or a number beyond every double.
    #[error("a number or a string cannot be represented")]
    Unrepresentable,
}

/// One value of a document.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a>(&'a OwnedValue);

impl Dom {
    /// Parses one JSON text with the default limits.
    ///
    /// # Errors
    /// When it is not JSON, nested too deeply, or holds what a tree cannot.
    pub fn parse(text: &[u8]) -> Result<Dom, DomError> {
        Dom::parse_within(text, &Limits::default())
    }

    /// Parses one JSON text within given limits.
    ///
    /// # Errors
    /// As [`Dom::parse`].
    pub fn parse_within(text: &[u8], limits: &Limits) -> Result<Dom, DomError> {
        json::validate(text, limits)?;
        let mut copy = text.to_vec();
        simd_json::to_owned_value(&mut copy)
            .map(Dom)
            .map_err(|_| DomError::Unrepresentable)
    }

    /// The value that is the whole document.
    pub fn root(&self) -> Node<'_> {
        Node(&self.0)
    }
}

impl<'a> Node<'a> {
    /// The member of an object.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        match self.0 {
            OwnedValue::Object(members) => members.get(key).map(Node),
            OwnedValue::Static(_) | OwnedValue::String(_) | OwnedValue::Array(_) => None,
        }
    }

    /// The value at a path of keys.
    pub fn at(self, path: &[&str]) -> Option<Node<'a>> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The text of a string.
    pub fn as_str(self) -> Option<&'a str> {
        match self.0 {
            OwnedValue::String(text) => Some(text),
            OwnedValue::Static(_) | OwnedValue::Object(_) | OwnedValue::Array(_) => None,
        }
    }

    /// A boolean.
    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            OwnedValue::Static(StaticNode::Bool(value)) => Some(*value),
            OwnedValue::Static(_)
            | OwnedValue::String(_)
            | OwnedValue::Object(_)
            | OwnedValue::Array(_) => None,
        }
    }

    /// An integer of 64 bits.
    pub fn as_i64(self) -> Option<i64> {
        match self.0 {
            OwnedValue::Static(StaticNode::I64(value)) => Some(*value),
            OwnedValue::Static(StaticNode::U64(value)) => i64::try_from(*value).ok(),
            OwnedValue::Static(_)
            | OwnedValue::String(_)
            | OwnedValue::Object(_)
            | OwnedValue::Array(_) => None,
        }
    }

    /// Any number, as near as a double comes.
    #[allow(
        clippy::cast_precision_loss,
        reason = "the nearest double is what is asked for"
    )]
    pub fn as_f64(self) -> Option<f64> {
        match self.0 {
            OwnedValue::Static(StaticNode::I64(value)) => Some(*value as f64),
            OwnedValue::Static(StaticNode::U64(value)) => Some(*value as f64),
            OwnedValue::Static(StaticNode::F64(value)) => Some(*value),
            OwnedValue::Static(_)
            | OwnedValue::String(_)
            | OwnedValue::Object(_)
            | OwnedValue::Array(_) => None,
        }
    }

    /// The members of an object, in no particular order.
    pub fn as_object(self) -> Option<impl Iterator<Item = (&'a str, Node<'a>)>> {
        match self.0 {
            OwnedValue::Object(members) => Some(
                members
                    .iter()
                    .map(|(key, value)| (key.as_str(), Node(value))),
            ),
            OwnedValue::Static(_) | OwnedValue::String(_) | OwnedValue::Array(_) => None,
        }
    }

    /// The values of an array.
    pub fn as_array(self) -> Option<impl Iterator<Item = Node<'a>>> {
        match self.0 {
            OwnedValue::Array(values) => Some(values.iter().map(Node)),
            OwnedValue::Static(_) | OwnedValue::String(_) | OwnedValue::Object(_) => None,
        }
    }

    /// True for an object.
    pub fn is_object(self) -> bool {
        matches!(self.0, OwnedValue::Object(_))
    }

    /// True for an array.
    pub fn is_array(self) -> bool {
        matches!(self.0, OwnedValue::Array(_))
    }

    /// True for a string.
    pub fn is_str(self) -> bool {
        matches!(self.0, OwnedValue::String(_))
    }

    /// True for a boolean.
    pub fn is_bool(self) -> bool {
        self.as_bool().is_some()
    }

    /// True for a number.
    pub fn is_number(self) -> bool {
        self.as_f64().is_some()
    }

    /// True for null.
    pub fn is_null(self) -> bool {
        matches!(self.0, OwnedValue::Static(StaticNode::Null))
    }
}

mod schema;

pub use schema::{AnnotationError, SchemaError, annotations, object_schema};
