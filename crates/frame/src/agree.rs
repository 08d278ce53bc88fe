//! Whether the mirrored headers of a 2026-07-28 request say what its body says, and the other way
//! round: which headers a body asks for.
//!
//! The body is the truth (HDR-14); a header that differs from it refuses the request, because
//! something in front of the gateway may have decided by the header. Values are compared decoded, as
//! whole field values, case-sensitively; annotated integers are compared as numbers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::head::{self, Finding, Head, Problem};
use crate::message::{Frame, Kind};
use crate::{json, meta};

/// The largest integer that headers carry exactly, 2^53 - 1 (XMH-02).
pub const INTEGER_MAX: i64 = (1 << 53) - 1;

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// Type of an annotated argument (XMH-02).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ValueKind {
    /// A string.
    Str,
    /// An integer.
    Int,
    /// A boolean.
    Bool,
}

/// One `x-mcp-header` annotation of a tool's input schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Annotated {
    /// Keys from the arguments object down to the value.
    pub path: Vec<String>,
    /// The annotation: the header is `Mcp-Param-` and this.
    pub header: String,
    /// The type the schema gives it.
    pub kind: ValueKind,
}

/// How headers and body disagree.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Disagreement {
    /// A header cannot be read.
    #[error("{0}")]
    Malformed(Finding),
    /// A header is missing.
    #[error("header {header} is missing")]
    Missing {
        /// The header.
        header: String,
    },
    /// A header says something else than the body.
    #[error("header {header} differs from {member} in the body")]
    Different {
        /// The header.
        header: String,
        /// The member of the body.
        member: String,
    },
    /// A header for a value that the body does not have.
    #[error("header {header} is present but {member} is not in the body")]
    Unexpected {
        /// The header.
        header: String,
        /// The member of the body.
        member: String,
    },
    /// The way to an annotated argument can be read in two ways (FRM-23).
    #[error("a key on the way to {member} occurs twice or is not allowed")]
    Ambiguous {
        /// The member of the body.
        member: String,
    },
}

impl Disagreement {
    /// The JSON-RPC error code of the answer.
    pub fn code(&self) -> i64 {
        match self {
            Disagreement::Ambiguous { .. } => -32600,
            Disagreement::Malformed(_)
            | Disagreement::Missing { .. }
            | Disagreement::Different { .. }
            | Disagreement::Unexpected { .. } => -32020,
        }
    }
}

/// The member of `params` that `Mcp-Name` mirrors for a method.
fn named_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

/// VER-08, HDR-10, HDR-12, HDR-13: the standard headers of a modern message against its body.
///
/// A request must have them; a notification, and `Mcp-Name` on a task method, need not, but what is
/// there must match. A `_meta` without protocol version is left to the caller (MET-01).
///
/// # Errors
/// The first disagreement, version before method before name.
pub fn standard(head: &Head, frame: &Frame) -> Result<(), Disagreement> {
    readable(head)?;
    let required = frame.kind() == Kind::Request;
    version(head, frame, required)?;
    volunteered_or(head, frame, required)
}

/// Case 101: mirrored headers that a client of another revision sends without having to.
///
/// # Errors
/// The first header that is there and does not match.
pub fn volunteered(head: &Head, frame: &Frame) -> Result<(), Disagreement> {
    readable(head)?;
    volunteered_or(head, frame, false)
}

/// HDR-12 with `strict_task_headers`: a task method must have `Mcp-Name`.
///
/// # Errors
/// When it has not.
pub fn task_name(head: &Head, frame: &Frame) -> Result<(), Disagreement> {
    let method = frame.method().unwrap_or_default();
    if named_member(&method) == Some("taskId") && head.name.is_none() {
        return Err(missing(head::NAME));
    }
    Ok(())
}

fn readable(head: &Head) -> Result<(), Disagreement> {
    let mut findings = [head::PROTOCOL_VERSION, head::METHOD, head::NAME]
        .into_iter()
        .map(|name| head.finding(name));
    match findings.find_map(|finding| finding) {
        Some(finding) => Err(Disagreement::Malformed(finding.clone())),
        None => Ok(()),
    }
}

fn version(head: &Head, frame: &Frame, required: bool) -> Result<(), Disagreement> {
    let Some(header) = &head.version else {
        return if required {
            Err(missing(head::PROTOCOL_VERSION))
        } else {
            Ok(())
        };
    };
    let Some(span) = frame.meta_member(meta::PROTOCOL_VERSION) else {
        return Ok(());
    };
    match frame.string(span) {
        Some(body) if body == header.as_str() => Ok(()),
        _ => Err(different(
            head::PROTOCOL_VERSION,
            "params._meta protocolVersion",
        )),
    }
}

fn volunteered_or(head: &Head, frame: &Frame, required: bool) -> Result<(), Disagreement> {
    let method = frame.method().unwrap_or_default();
    match &head.method {
        Some(header) if *header == method => {}
        Some(_) => return Err(different(head::METHOD, "method")),
        None if required => return Err(missing(head::METHOD)),
        None => {}
    }
    let Some(member) = named_member(&method) else {
        return Ok(());
    };
    let Some(header) = &head.name else {
        let tolerated = !required || member == "taskId";
        return if tolerated {
            Ok(())
        } else {
            Err(missing(head::NAME))
        };
    };
    let span = match member {
        "name" => frame.name(),
        "uri" => frame.uri(),
        _ => frame
            .params()
            .and_then(|params| frame.member(params, member)),
    };
    match span.and_then(|span| frame.string(span)) {
        Some(body) if body == header.as_str() => Ok(()),
        _ => Err(different(head::NAME, &format!("params.{member}"))),
    }
}

/// HDR-17, HDR-19: the `Mcp-Param-*` headers against the arguments of a call. Headers without an
/// annotation are ignored (HDR-20).
///
/// # Errors
/// The first annotation whose header is missing, unreadable, different or not expected, or whose
/// value cannot be told because keys on the way to it are ambiguous.
pub fn params(
    head: &Head,
    annotated: &[Annotated],
    arguments: Option<&[u8]>,
) -> Result<(), Disagreement> {
    for annotation in annotated {
        let header = header_name(annotation).to_ascii_lowercase();
        let member = || format!("params.arguments.{}", annotation.path.join("."));
        let body = strict_value(annotation, arguments)
            .map_err(|_| Disagreement::Ambiguous { member: member() })?;
        match (head.param(&annotation.header), body) {
            (None, None) => {}
            (None, Some(_)) => return Err(missing(&header)),
            (Some(_), None) => {
                return Err(Disagreement::Unexpected {
                    header,
                    member: member(),
                });
            }
            (Some(Err(())), Some(_)) => return Err(malformed(head, header)),
            (Some(Ok(value)), Some(token)) if same_value(annotation.kind, value, token) => {}
            (Some(Ok(_)), Some(_)) => return Err(different(&header, &member())),
        }
    }
    Ok(())
}

/// XMH-05: the `Mcp-Param-*` headers for arguments, names and encoded values. Absent and null
/// arguments have none.
pub fn synthesise(annotated: &[Annotated], arguments: Option<&[u8]>) -> Vec<(String, String)> {
    let header = |annotation: &Annotated| {
        let token = lax_value(annotation, arguments)?;
        let text = match json::string(token) {
            Some(text) => text.into_owned(),
            None => plain(annotation.kind, token)?,
        };
        Some((header_name(annotation), encode_value(&text)))
    };
    annotated.iter().filter_map(header).collect()
}

/// `Mcp-Param-` and the annotation.
pub fn header_name(annotation: &Annotated) -> String {
    format!("Mcp-Param-{}", annotation.header)
}

/// The decimal text of an integer, or the token of a number or boolean; none for other types.
fn plain(kind: ValueKind, token: &[u8]) -> Option<String> {
    if kind == ValueKind::Int
        && let Some(number) = exact_integer(token)
    {
        return Some(number.to_string());
    }
    match token.first() {
        Some(b'{' | b'[' | b'"') | None => None,
        Some(_) => String::from_utf8(token.to_vec()).ok(),
    }
}

/// Compares by the type that the body's value has; a number by value where the schema says integer.
fn same_value(kind: ValueKind, header: &str, token: &[u8]) -> bool {
    match token.first() {
        Some(b'"') => json::string(token).is_some_and(|text| text == header),
        Some(b'{' | b'[') | None => false,
        Some(_) if kind == ValueKind::Int => {
            let body = exact_integer(token);
            body.is_some() && body == exact_integer(header.as_bytes())
        }
        Some(_) => header.as_bytes() == token,
    }
}

/// The value at a path, every object on the way being free of ambiguous keys.
fn strict_value<'a>(
    annotation: &Annotated,
    arguments: Option<&'a [u8]>,
) -> Result<Option<&'a [u8]>, crate::FrameError> {
    let mut at = arguments;
    for key in &annotation.path {
        let Some(object) = at else { return Ok(None) };
        json::unique(object)?;
        at = json::member(object, key);
    }
    Ok(at.filter(|token| *token != b"null"))
}

fn lax_value<'a>(annotation: &Annotated, arguments: Option<&'a [u8]>) -> Option<&'a [u8]> {
    let mut at = arguments?;
    for key in &annotation.path {
        at = json::member(at, key)?;
    }
    (at != b"null").then_some(at)
}

/// The integer that a JSON number denotes, written in any way, when headers carry it exactly.
pub fn exact_integer(token: &[u8]) -> Option<i64> {
    let (negative, unsigned) = match token.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, token),
    };
    let text = std::str::from_utf8(unsigned).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !number(whole) || !number(fraction) || (whole.len() > 1 && whole.starts_with('0')) {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let trailing = i32::try_from(digits.len() - digits.trim_end_matches('0').len()).ok()?;
    let scale = exponent
        .checked_sub(i32::try_from(fraction.len()).ok()?)?
        .checked_add(trailing)?;
    if !(0..=16).contains(&scale) || significant.len() > 16 {
        return None;
    }
    let value = significant
        .parse::<i64>()
        .ok()?
        .checked_mul(10i64.pow(scale.unsigned_abs()))?;
    (value <= INTEGER_MAX).then_some(if negative { -value } else { value })
}

/// HDR-16: a value as it goes into a header, encoded when it is not plain.
pub fn encode_value(text: &str) -> String {
    let printable = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    let edged = text.starts_with(' ') || text.ends_with(' ');
    if printable && !edged && sentinel(text).is_none() {
        return text.to_owned();
    }
    format!("{SENTINEL_START}{}{SENTINEL_END}", STANDARD.encode(text))
}

/// HDR-17: the text of a header value, decoded when it is encoded.
///
/// # Errors
/// [`Problem::Illegal`] for characters outside of printable ASCII, [`Problem::Undecodable`] for
/// encoded values that are not strict base64 of UTF-8.
pub fn decode_value(value: &[u8]) -> Result<String, Problem> {
    let trimmed = trim(value);
    if !trimmed.iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return Err(Problem::Illegal);
    }
    let text = std::str::from_utf8(trimmed).map_err(|_| Problem::Illegal)?;
    match sentinel(text) {
        None => Ok(text.to_owned()),
        Some(encoded) => {
            let bytes = STANDARD.decode(encoded).map_err(|_| Problem::Undecodable)?;
            String::from_utf8(bytes).map_err(|_| Problem::Undecodable)
        }
    }
}

/// What stands between the marks of an encoded value; both are needed and case-sensitive.
fn sentinel(text: &str) -> Option<&str> {
    text.strip_prefix(SENTINEL_START)?
        .strip_suffix(SENTINEL_END)
}

/// A field value without optional whitespace around it.
pub(crate) fn trim(value: &[u8]) -> &[u8] {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value
        .iter()
        .position(|byte| !space(byte))
        .unwrap_or(value.len());
    let end = value
        .iter()
        .rposition(|byte| !space(byte))
        .map_or(start, |last| last + 1);
    value.get(start..end).unwrap_or_default()
}

fn missing(header: &str) -> Disagreement {
    Disagreement::Missing {
        header: header.to_owned(),
    }
}

fn different(header: &str, member: &str) -> Disagreement {
    Disagreement::Different {
        header: header.to_owned(),
        member: member.to_owned(),
    }
}

fn malformed(head: &Head, header: String) -> Disagreement {
    let finding = head.finding(&header).cloned();
    Disagreement::Malformed(finding.unwrap_or(Finding {
        header,
        problem: Problem::Undecodable,
    }))
}

#[cfg(test)]
mod tests;
