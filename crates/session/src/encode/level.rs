//! Content levels (translation rules, section 11): what an older client's parser would refuse is
//! put in a form it knows; everything else passes untouched.
//!
//! Messages that need nothing are not copied. One that needs something is put together with the
//! edits made so far before it is judged, so that names and URIs in it are the exposed ones.

use bytes::Bytes;
use serde_json::Value;
use vestibule_frame::{DEPTH_CEILING, Draft, Frame, Limits, Span, encode, json};
use vestibule_terms::{Method, Revision};

use super::strict;

/// What a revision's readers take.
#[derive(Debug)]
pub(crate) struct Level {
    pub(super) revision: Revision,
    /// Kinds of content blocks.
    pub(super) blocks: &'static [&'static str],
    pub(super) structured: Structured,
}

/// What a revision makes of `structuredContent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Structured {
    /// Nothing: an unknown member.
    Unknown,
    /// It must be an object.
    Object,
    /// Any JSON value.
    Anything,
}

/// The parts of a tool's result that are levelled.
#[derive(Default)]
struct ToolResult {
    content: Option<Span>,
    structured: Option<Span>,
}

/// Whether a tool's result says that the tool failed.
pub(crate) fn is_tool_error(frame: &Frame) -> bool {
    frame.result_is_error()
}

// === impl Level ===

impl Level {
    /// Levels the result of `method` in `draft`.
    pub(crate) fn apply(&self, draft: Draft, method: Method, strict: bool) -> Draft {
        if method == Method::ToolsCall {
            return self.tool_result(draft, strict);
        }
        if method == Method::PromptsGet {
            return self.prompt(draft);
        }
        draft
    }

    /// Levels one item of a list.
    pub(crate) fn item(&self, list: &str, item: Bytes, strict: bool) -> Bytes {
        let mut item = item;
        if list == "tools" && self.refuses_output_schema(&item) {
            item = without(&item, &["outputSchema"]);
        }
        if strict && !self.revision.is_modern() {
            let foreign = strict::foreign(list, self.revision);
            if !foreign.is_empty() {
                item = without(&item, foreign);
            }
        }
        item
    }

    /// TOL-11: readers of 2025-06-18 and 2025-11-25 refuse a whole list for one such schema.
    fn refuses_output_schema(&self, tool: &[u8]) -> bool {
        if self.structured != Structured::Object {
            return false;
        }
        json::member(tool, "outputSchema")
            .is_some_and(|schema| json::member(schema, "type") != Some(b"\"object\""))
    }

    fn tool_result(&self, draft: Draft, strict: bool) -> Draft {
        let parts = ToolResult::of(draft.frame());
        if !self.needs_work(draft.frame(), &parts, strict) {
            return draft;
        }
        let mut draft = rebase(draft);
        let frame = draft.frame().clone();
        let Some(result) = frame.result() else {
            return draft;
        };
        let parts = ToolResult::of(&frame);
        let mut blocks: Vec<Bytes> = Vec::new();
        for block in parts
            .content
            .iter()
            .flat_map(|content| frame.elements(*content))
        {
            blocks.push(self.block(&frame, block));
        }
        if let Some(structured) = parts.structured {
            let text = frame.text(structured);
            if self.lacks_text(&frame, &parts, structured) {
                blocks.push(text_block(&String::from_utf8_lossy(text)));
            }
            if self.drops_structured(text, strict) {
                draft.remove_member(result, "structuredContent");
            }
        }
        draft.set_member(result, "content", array(&blocks));
        draft
    }

    fn needs_work(&self, frame: &Frame, parts: &ToolResult, strict: bool) -> bool {
        let Some(result) = frame.result() else {
            return false;
        };
        if frame.text(result).first() != Some(&b'{') {
            return false;
        }
        let Some(content) = parts.content else {
            return true;
        };
        let foreign = match frame.only_block_type().and_then(|kind| frame.string(kind)) {
            Some(kind) => !self.knows(&kind),
            None => frame
                .elements(content)
                .any(|block| !self.takes(frame, block)),
        };
        foreign
            || parts.structured.is_some_and(|structured| {
                self.drops_structured(frame.text(structured), strict)
                    || self.lacks_text(frame, parts, structured)
            })
    }

    fn drops_structured(&self, text: &[u8], strict: bool) -> bool {
        let object = text.first() == Some(&b'{');
        match self.structured {
            Structured::Unknown => strict,
            Structured::Object => !object,
            Structured::Anything => false,
        }
    }

    /// TOL-10: whether a reader that cannot use the structured value finds no text of it.
    ///
    /// A reader that does understand it gets its text only when there is no text at all; for the
    /// others the text must say the same as the value.
    fn lacks_text(&self, frame: &Frame, parts: &ToolResult, structured: Span) -> bool {
        let value = frame.text(structured);
        let object = value.first() == Some(&b'{');
        let understood = match self.structured {
            Structured::Unknown => false,
            Structured::Object => object,
            Structured::Anything if object => return false,
            Structured::Anything => true,
        };
        let mut texts = parts
            .content
            .into_iter()
            .flat_map(|content| frame.elements(content))
            .filter(|block| kind_of(frame, *block).as_deref() == Some("text"));
        if understood {
            return texts.next().is_none();
        }
        let Ok(wanted) = serde_json::from_slice::<Value>(value) else {
            return false;
        };
        !texts.any(|block| says(frame, block, &wanted))
    }

    fn prompt(&self, draft: Draft) -> Draft {
        let foreign = |frame: &Frame| {
            message_blocks(frame)
                .into_iter()
                .any(|block| !self.takes(frame, block))
        };
        if !foreign(draft.frame()) {
            return draft;
        }
        let mut draft = rebase(draft);
        let frame = draft.frame().clone();
        for block in message_blocks(&frame) {
            if !self.takes(&frame, block) {
                draft.replace(block, self.block(&frame, block));
            }
        }
        draft
    }

    /// Whether a reader knows this kind of block; stateless clients get whatever there is (AMB-35).
    fn takes(&self, frame: &Frame, block: Span) -> bool {
        self.revision.is_modern() || kind_of(frame, block).is_some_and(|kind| self.knows(&kind))
    }

    fn knows(&self, kind: &str) -> bool {
        self.revision.is_modern() || self.blocks.contains(&kind)
    }

    /// A block in a form that the reader knows.
    fn block(&self, frame: &Frame, block: Span) -> Bytes {
        if self.takes(frame, block) {
            return frame.shared(block);
        }
        let text = |key: &str| {
            frame
                .member(block, key)
                .and_then(|span| frame.string(span))
                .map(|text| text.into_owned())
        };
        match kind_of(frame, block).as_deref() {
            Some("audio") => audio_as_resource(frame, block),
            Some("resource_link") => {
                let label = text("title").or_else(|| text("name")).unwrap_or_default();
                let uri = text("uri").unwrap_or_default();
                text_block(&format!("Resource: {label} {uri}"))
            }
            _ => text_block(&String::from_utf8_lossy(frame.text(block))),
        }
    }
}

// === impl ToolResult ===

impl ToolResult {
    fn of(frame: &Frame) -> Self {
        let is_array = |span: &Span| frame.text(*span).first() == Some(&b'[');
        Self {
            content: frame.result_content().filter(is_array),
            structured: frame.result_structured(),
        }
    }
}

/// The draft as a message of its own, so that what was edited can be read.
fn rebase(draft: Draft) -> Draft {
    if draft.is_unchanged() {
        return draft;
    }
    let limits = Limits {
        depth: DEPTH_CEILING,
        ..Limits::default()
    };
    match Frame::parse(draft.to_bytes(), &limits) {
        Ok(frame) => Draft::new(frame),
        Err(_) => draft,
    }
}

fn kind_of(frame: &Frame, block: Span) -> Option<std::borrow::Cow<'_, str>> {
    frame
        .member(block, "type")
        .and_then(|kind| frame.string(kind))
}

/// The content of the messages of a prompt, one block each.
fn message_blocks(frame: &Frame) -> Vec<Span> {
    let messages = frame
        .result()
        .and_then(|result| frame.member(result, "messages"));
    messages
        .into_iter()
        .flat_map(|messages| frame.elements(messages))
        .filter_map(|message| frame.member(message, "content"))
        .filter(|content| frame.text(*content).first() == Some(&b'{'))
        .collect()
}

fn says(frame: &Frame, block: Span, wanted: &Value) -> bool {
    let text = frame
        .member(block, "text")
        .and_then(|span| frame.string(span));
    text.and_then(|text| serde_json::from_str::<Value>(&text).ok())
        .as_ref()
        == Some(wanted)
}

fn text_block(text: &str) -> Bytes {
    Bytes::from(format!(r#"{{"type":"text","text":{}}}"#, json::quote(text)))
}

/// Audio for readers that have only embedded resources.
fn audio_as_resource(frame: &Frame, block: Span) -> Bytes {
    let raw = |key: &str| frame.member(block, key).map(|span| frame.text(span));
    let mut resource: Vec<(&str, &[u8])> = vec![("uri", b"\"audio:\"")];
    if let Some(mime) = raw("mimeType") {
        resource.push(("mimeType", mime));
    }
    resource.push(("blob", raw("data").unwrap_or(b"\"\"")));
    let resource = encode::object(&resource);
    let mut members: Vec<(&str, &[u8])> = vec![("type", b"\"resource\""), ("resource", &resource)];
    if let Some(annotations) = raw("annotations") {
        members.push(("annotations", annotations));
    }
    encode::object(&members)
}

fn array(elements: &[Bytes]) -> Bytes {
    encode::batch(elements)
}

/// An object without some of its members.
pub(super) fn without(object: &Bytes, keys: &[&str]) -> Bytes {
    let kept: Vec<Bytes> = json::members(object)
        .filter(|member| {
            let key = object.get(member.key.range()).and_then(json::string);
            !key.is_some_and(|key| keys.contains(&&*key))
        })
        .map(|member| object.slice(member.whole.range()))
        .collect();
    let mut out = Vec::with_capacity(object.len());
    out.push(b'{');
    for (index, member) in kept.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(member);
    }
    out.push(b'}');
    Bytes::from(out)
}
