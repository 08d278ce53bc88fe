//! Whether the parts of a message make a request, a notification or a response, and whether what the
//! gateway reads of them is sound. Works on spans that the scanner has found; scans nothing itself,
//! but for the id of a message that is refused.

use crate::error::{Fault, Reason};
use crate::keys::Known;
use crate::message::{Id, Kind};
use crate::scan::Grammar;
use crate::shape::{Layout, present};
use crate::text::{self, Undecodable};
use crate::{Limits, Span};

/// Tells the kind of a message whose parts are at `layout`. `escaped` has a bit for each known key
/// whose value is a string with escapes.
pub(crate) fn kind(
    bytes: &[u8],
    limits: &Limits,
    layout: &Layout,
    escaped: u32,
) -> Result<Kind, Fault> {
    let judge = Judge {
        bytes,
        limits,
        escaped,
        layout,
    };
    let kind = judge.kind()?;
    judge.strings()?;
    Ok(kind)
}

struct Judge<'a> {
    bytes: &'a [u8],
    limits: &'a Limits,
    escaped: u32,
    layout: &'a Layout,
}

impl Judge<'_> {
    fn text(&self, span: Span) -> &[u8] {
        self.bytes.get(span.range()).unwrap_or_default()
    }

    fn first(&self, span: Span) -> Option<u8> {
        self.text(span).first().copied()
    }

    /// True when the value of a known key is a string with escapes.
    fn is_escaped(&self, known: Known) -> bool {
        self.escaped >> known as u32 & 1 == 1
    }

    fn fault<T>(&self, reason: Reason, span: Span) -> Result<T, Fault> {
        Err(Fault::new(reason, span.start as usize))
    }

    /// FRM-01, FRM-03, FRM-09, FRM-15: which of the three kinds this is.
    fn kind(&self) -> Result<Kind, Fault> {
        let parts = self.layout;
        let version = self.text(parts.jsonrpc);
        if version != b"\"2.0\"" && text::decode(version).ok().as_deref() != Some("2.0") {
            return self.fault(Reason::Jsonrpc, parts.jsonrpc);
        }
        let answers = [parts.result, parts.error]
            .into_iter()
            .filter_map(present)
            .count();
        let is_call = present(parts.method).is_some();
        if answers + usize::from(is_call) != 1 {
            return self.fault(Reason::Shape, parts.root);
        }
        // Another party's parser may have failed before it knew the id: an error may lack it.
        let id_may_be_null = present(parts.error).is_some();
        let has_id = match present(parts.id) {
            None => false,
            Some(id) if id_may_be_null && self.first(id) == Some(b'n') => false,
            Some(id) if Id::is_token(self.text(id), self.limits.id as usize) => true,
            Some(id) => return self.fault(Reason::Id, id),
        };
        if is_call {
            self.method()?;
            self.params()?;
            return Ok(if has_id {
                Kind::Request
            } else {
                Kind::Notification
            });
        }
        if present(parts.result).is_some() && !has_id {
            return self.fault(Reason::Id, parts.root);
        }
        Ok(Kind::Response)
    }

    fn method(&self) -> Result<(), Fault> {
        let span = self.layout.method;
        let token = self.text(span);
        let quotes = 2;
        if token.first() == Some(&b'"') && !self.is_escaped(Known::Method) {
            let fits = token.len() <= self.limits.method as usize + quotes;
            return if fits {
                Ok(())
            } else {
                self.fault(Reason::Method, span)
            };
        }
        match text::decode(token) {
            Ok(method) if method.len() <= self.limits.method as usize => Ok(()),
            Ok(_) | Err(Undecodable::NotAString) => self.fault(Reason::Method, span),
            Err(Undecodable::LoneSurrogate) => self.fault(Reason::Surrogate, span),
        }
    }

    fn params(&self) -> Result<(), Fault> {
        let parts = self.layout;
        if let Some(params) = present(parts.params)
            && self.first(params) != Some(b'{')
        {
            return self.fault(Reason::Params, params);
        }
        match present(parts.meta) {
            Some(meta) if self.first(meta) != Some(b'{') => self.fault(Reason::Meta, meta),
            _ => Ok(()),
        }
    }

    /// What holds for every kind: `_meta` is bounded, and no string that is decided by holds half of
    /// a surrogate pair.
    fn strings(&self) -> Result<(), Fault> {
        let parts = self.layout;
        for meta in [parts.meta, parts.result_meta] {
            if meta.len() > self.limits.meta as usize {
                return self.fault(Reason::MetaSize, meta);
            }
        }
        let read = [
            (Known::Name, parts.name),
            (Known::Uri, parts.uri),
            (Known::ProgressToken, parts.progress_token),
        ];
        for (known, span) in read {
            if self.is_escaped(known)
                && text::decode(self.text(span)) == Err(Undecodable::LoneSurrogate)
            {
                return self.fault(Reason::Surrogate, span);
            }
        }
        Ok(())
    }
}

/// FRM-21: the id of a message that is refused, as far as the text can be followed. One id only: of
/// two nobody knows which is meant.
#[cold]
pub(crate) fn recover_id(bytes: &[u8], limits: &Limits) -> Option<Id> {
    let grammar = Grammar::new(bytes, limits);
    let start = grammar.space(0);
    if grammar.peek(start) != Some(b'{') {
        return None;
    }
    let mut found = None;
    let mut next = Some(grammar.space(start + 1));
    while let Some(at) = next.take() {
        let Ok((key, value)) = grammar.key(at) else {
            break;
        };
        let Ok(end) = grammar.value(value, 1) else {
            break;
        };
        let raw = bytes.get(at + 1..key.end - 1).unwrap_or_default();
        if text::decode_inner(raw).is_ok_and(|name| name == "id") {
            if found.is_some() {
                return None;
            }
            found = bytes.get(value..end);
        }
        next = grammar.next(end, b'}').ok().flatten();
    }
    found
        .filter(|token| Id::is_token(token, limits.id as usize))
        .map(Id::copy_from)
}
