//! The control headers of one request, read strictly: each at most once, spelled with hyphens, of
//! visible characters.
//!
//! The view neither accepts nor refuses: what is wrong is listed as [`Finding`]s, because the code
//! of the answer depends on the era (T21: `-32020` where the version is modern, else `-32600`), which
//! the caller knows. Whether headers agree with the body is [`crate::agree`]'s business.

use std::fmt;

use http::{HeaderMap, HeaderValue};

use crate::agree;

/// Revision of the request.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Session of the request, in revisions that have sessions.
pub const SESSION_ID: &str = "mcp-session-id";
/// Where a stream is resumed.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Method of the request, mirrored from the body.
pub const METHOD: &str = "mcp-method";
/// Name or URI of the request, mirrored from the body.
pub const NAME: &str = "mcp-name";
/// Prefix of the headers that mirror annotated arguments.
pub const PARAM_PREFIX: &str = "mcp-param-";

/// Headers of which a request has one at most.
const SINGLE: [&str; 9] = [
    "authorization",
    "content-type",
    "host",
    LAST_EVENT_ID,
    METHOD,
    NAME,
    PROTOCOL_VERSION,
    SESSION_ID,
    "origin",
];

/// What is wrong with a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Problem {
    /// It occurs more than once.
    Repeated,
    /// Its name is a control header's with underscores for hyphens.
    Underscore,
    /// It lists several values.
    Comma,
    /// Its value has characters that are not allowed.
    Illegal,
    /// Its value looks encoded and is not decodable (HDR-17).
    Undecodable,
}

/// One thing that is wrong, by header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The header's name in lower case.
    pub header: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.problem {
            Problem::Repeated => "occurs more than once",
            Problem::Underscore => "is spelled with underscores",
            Problem::Comma => "lists several values",
            Problem::Illegal => "has characters that are not allowed",
            Problem::Undecodable => "is not decodable",
        };
        write!(f, "header {} {what}", self.header)
    }
}

/// The control headers of one request.
#[derive(Clone, Default)]
pub struct Head {
    /// `MCP-Protocol-Version`.
    pub version: Option<String>,
    /// `Mcp-Session-Id`: a secret of the session's owner, never shown by `Debug`.
    pub session: Option<String>,
    /// `Last-Event-ID`.
    pub last_event_id: Option<String>,
    /// `Mcp-Method`.
    pub method: Option<String>,
    /// `Mcp-Name`, decoded.
    pub name: Option<String>,
    /// `Mcp-Param-*`: the suffix in lower case and the decoded value, or that there is none.
    pub params: Vec<(String, Result<String, ()>)>,
    /// Everything that is wrong, in the order of the headers.
    pub findings: Vec<Finding>,
}

impl Head {
    /// Reads the control headers, in one walk over all of them.
    pub fn read(headers: &HeaderMap) -> Head {
        let mut head = Head::default();
        let mut before = None;
        // the values of one name come one after the other
        for (name, value) in headers {
            if before.replace(name) == Some(name) {
                head.again(name.as_str());
            } else {
                head.take(name.as_str(), value);
            }
        }
        head
    }

    /// The first value of a header.
    fn take(&mut self, name: &str, value: &HeaderValue) {
        match name {
            PROTOCOL_VERSION => self.version = self.plain(name, value),
            METHOD => self.method = self.plain(name, value),
            SESSION_ID => self.session = self.token(name, value),
            LAST_EVENT_ID => self.last_event_id = self.printable(name, value),
            NAME => self.name = self.decoded(name, value),
            _ => {
                if let Some(suffix) = name.strip_prefix(PARAM_PREFIX) {
                    let value = self.decoded(name, value).ok_or(());
                    self.params.push((suffix.to_owned(), value));
                }
                self.check_alias(name);
            }
        }
    }

    /// A further value of the header that was read last (T21).
    fn again(&mut self, name: &str) {
        let param = name.starts_with(PARAM_PREFIX);
        if param && let Some((_, value)) = self.params.last_mut() {
            *value = Err(());
        }
        let noted =
            |finding: &Finding| finding.header == name && finding.problem == Problem::Repeated;
        if (param || SINGLE.contains(&name)) && !self.findings.iter().any(noted) {
            self.note(name, Problem::Repeated);
        }
    }

    /// T21: names that only some servers take for a control header's.
    fn check_alias(&mut self, name: &str) {
        if !name.contains('_') {
            return;
        }
        let hyphens = name.replace('_', "-");
        if SINGLE.contains(&hyphens.as_str()) || hyphens.starts_with(PARAM_PREFIX) {
            self.note(name, Problem::Underscore);
        }
    }

    /// The first finding that no era tolerates: a repeated or aliased control header (T21).
    pub fn refusal(&self) -> Option<&Finding> {
        let fatal = |problem| matches!(problem, Problem::Repeated | Problem::Underscore);
        self.findings.iter().find(|finding| fatal(finding.problem))
    }

    /// The first finding about one header.
    pub fn finding(&self, header: &str) -> Option<&Finding> {
        self.findings
            .iter()
            .find(|finding| finding.header == header)
    }

    /// The value of a `Mcp-Param-*` header by its suffix, in any case.
    pub fn param(&self, suffix: &str) -> Option<&Result<String, ()>> {
        let named = |(name, _): &&(String, Result<String, ()>)| name.eq_ignore_ascii_case(suffix);
        self.params.iter().find(named).map(|(_, value)| value)
    }

    fn note(&mut self, header: &str, problem: Problem) {
        self.findings.push(Finding {
            header: header.to_owned(),
            problem,
        });
    }

    /// A value of printable ASCII, trimmed.
    fn printable(&mut self, name: &str, value: &HeaderValue) -> Option<String> {
        let value = agree::trim(value.as_bytes());
        if !value.iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
            self.note(name, Problem::Illegal);
            return None;
        }
        String::from_utf8(value.to_vec()).ok()
    }

    /// A printable value that is not a list.
    fn plain(&mut self, name: &str, value: &HeaderValue) -> Option<String> {
        let value = self.printable(name, value)?;
        if value.contains(',') {
            self.note(name, Problem::Comma);
        }
        Some(value)
    }

    /// HDR-06: a value of 0x21 to 0x7E.
    fn token(&mut self, name: &str, value: &HeaderValue) -> Option<String> {
        let value = self.printable(name, value)?;
        if value.is_empty() || value.contains(' ') {
            self.note(name, Problem::Illegal);
            return None;
        }
        Some(value)
    }

    fn decoded(&mut self, name: &str, value: &HeaderValue) -> Option<String> {
        match agree::decode_value(value.as_bytes()) {
            Ok(decoded) => Some(decoded),
            Err(problem) => {
                self.note(name, problem);
                None
            }
        }
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("version", &self.version)
            .field("session", &self.session.as_ref().map(|_| "redacted"))
            .field("last_event_id", &self.last_event_id.is_some())
            .field("method", &self.method)
            .field("params", &self.params.len())
            .field("findings", &self.findings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Head, Problem};
    use http::{HeaderMap, HeaderName, HeaderValue};

    fn read(lines: &[(&str, &[u8])]) -> Head {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            headers.append(
                name,
                HeaderValue::from_bytes(value).expect("a header value"),
            );
        }
        Head::read(&headers)
    }

    fn problems(head: &Head) -> Vec<(&str, Problem)> {
        head.findings
            .iter()
            .map(|f| (f.header.as_str(), f.problem))
            .collect()
    }

    #[test]
    fn hdr_05_names_are_case_insensitive_and_values_are_kept() {
        let head = read(&[
            ("MCP-Protocol-Version", b"2026-07-28"),
            ("mCP-sESSION-iD", b"aZ!~"),
            ("Mcp-Method", b"TOOLS/call"),
            ("Last-Event-ID", b"a b"),
            ("Mcp-Name", b"file:///a,b"),
        ]);
        assert_eq!(head.version.as_deref(), Some("2026-07-28"));
        assert_eq!(head.session.as_deref(), Some("aZ!~"));
        assert_eq!(head.method.as_deref(), Some("TOOLS/call"));
        assert_eq!(head.last_event_id.as_deref(), Some("a b"));
        assert_eq!(
            head.name.as_deref(),
            Some("file:///a,b"),
            "HDR-10: URIs contain commas"
        );
        assert!(head.findings.is_empty() && head.refusal().is_none());
        assert!(!format!("{head:?}").contains("aZ!~"));
    }

    #[test]
    fn t21_repeated_and_underscored_control_headers_are_found() {
        let twice = [
            "authorization",
            "mcp-session-id",
            "mcp-protocol-version",
            "mcp-param-a",
        ];
        for name in twice {
            let head = read(&[(name, b"a"), (name, b"a")]);
            let finding = head.refusal().expect(name);
            assert_eq!(
                (finding.header.as_str(), finding.problem),
                (name, Problem::Repeated)
            );
        }
        for name in [
            "mcp_session_id",
            "mcp-session_id",
            "mcp_param_x",
            "mcp-param_x",
        ] {
            let head = read(&[(name, b"a")]);
            assert_eq!(problems(&head), [(name, Problem::Underscore)]);
        }
        assert!(
            read(&[("x_own", b"a"), ("accept", b"a"), ("accept", b"b")])
                .findings
                .is_empty()
        );
        assert_eq!(
            read(&[("mcp-param-a", b"1"), ("mcp-param-a", b"1")]).param("A"),
            Some(&Err(()))
        );
    }

    #[test]
    fn hdr_10_a_list_is_found_in_version_and_method_only() {
        let head = read(&[("mcp-protocol-version", b"a, b"), ("mcp-method", b"a,b")]);
        let expected = [
            ("mcp-protocol-version", Problem::Comma),
            ("mcp-method", Problem::Comma),
        ];
        assert_eq!(problems(&head), expected);
    }

    #[test]
    fn hdr_06_case_154_illegal_characters_and_bad_base64_are_found() {
        let head = read(&[
            ("mcp-session-id", b"a b"),
            ("mcp-name", "\u{6d4b}".as_bytes()),
        ]);
        let expected = [
            ("mcp-session-id", Problem::Illegal),
            ("mcp-name", Problem::Illegal),
        ];
        assert_eq!(problems(&head), expected);
        assert_eq!((head.session, head.name), (None, None));
        let head = read(&[
            ("mcp-name", b"=?base64?abc?="),
            ("mcp-param-X", b"=?base64?!?="),
        ]);
        assert!(
            head.findings
                .iter()
                .all(|finding| finding.problem == Problem::Undecodable)
        );
        assert_eq!(head.param("x"), Some(&Err(())));
        let head = read(&[("mcp-name", b"=?base64?b25pOi8v5rWL6K+V?=")]);
        assert_eq!(head.name.as_deref(), Some("oni://\u{6d4b}\u{8bd5}"));
    }
}
