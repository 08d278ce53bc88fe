//! Exposed URIs and URI templates on a federated server. Pure, and a function of (upstream,
//! original) alone, so that lists, results and notifications agree.
//!
//! A literal prefix leaves every later byte alone (no normalisation, XT-383) and commutes with the
//! expansion of templates: expand(prefix + T) = prefix + expand(T). `ui:` keeps its scheme, because
//! hosts look at it; `http(s)` stays as it is, because clients fetch it themselves.

use std::borrow::Cow;

use vestibule_terms::UpstreamId;

/// Longest URI that is accepted (RSC-01).
pub const LENGTH_MAX: usize = 8 * 1024;

const UI: &str = "ui://";

/// The exposed form of a URI or template of `upstream`.
pub fn expose<'a>(upstream: &UpstreamId, original: &'a str) -> Cow<'a, str> {
    if is_web(original) {
        return Cow::Borrowed(original);
    }
    Cow::Owned(match original.strip_prefix(UI) {
        Some(rest) => format!("{UI}{upstream}.{rest}"),
        None => format!("{upstream}+{original}"),
    })
}

/// The upstream and the original of an exposed URI or template; none for one that carries no
/// upstream's prefix, be it `http(s)` or raw.
pub fn resolve<'a, 'u>(
    upstreams: &'u [UpstreamId],
    exposed: &'a str,
) -> Option<(&'u UpstreamId, Cow<'a, str>)> {
    let find = |id: &str| upstreams.iter().find(|upstream| upstream.as_str() == id);
    if let Some(host) = exposed.strip_prefix(UI) {
        let (id, rest) = host.split_once('.')?;
        return Some((find(id)?, Cow::Owned(format!("{UI}{rest}"))));
    }
    // Upstream ids have no `+`, so at most one prefix of the table can match.
    let (id, original) = exposed.split_once('+')?;
    Some((find(id)?, Cow::Borrowed(original)))
}

/// Whether the scheme is `http` or `https`.
pub fn is_web(uri: &str) -> bool {
    has_scheme(uri, "http") || has_scheme(uri, "https")
}

fn has_scheme(uri: &str, scheme: &str) -> bool {
    uri.split_once(':')
        .is_some_and(|(found, _)| found.eq_ignore_ascii_case(scheme))
}

/// RSC-01: short enough and without control characters.
pub fn is_acceptable(uri: &str) -> bool {
    !uri.is_empty() && uri.len() <= LENGTH_MAX && !uri.chars().any(char::is_control)
}

/// RSC-02: a `file:` URI that climbs: dot segments, plain, encoded or encoded twice, or an encoded
/// separator or NUL that a server might decode into one.
pub fn climbs(uri: &str) -> bool {
    if !has_scheme(uri, "file") {
        return false;
    }
    let once = decode(uri.as_bytes());
    let twice = decode(&once);
    let dotted = |text: &[u8]| {
        text.split(|byte| matches!(byte, b'/' | b'\\'))
            .any(|segment| segment == b"." || segment == b"..")
    };
    let separators = |text: &[u8]| {
        text.iter()
            .filter(|byte| matches!(byte, b'/' | b'\\'))
            .count()
    };
    twice.contains(&0)
        || [uri.as_bytes(), &once, &twice].into_iter().any(dotted)
        || separators(&twice) > separators(uri.as_bytes())
}

/// One pass of percent-decoding.
fn decode(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, behind @ ..] = rest {
        if let [b'%', high, low, after @ ..] = rest
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            out.push(high << 4 | low);
            rest = after;
        } else {
            out.push(*byte);
            rest = behind;
        }
    }
    out
}

/// Whether an expansion of the template can be `uri`, compared byte for byte.
///
/// A simple expression stands for any text within one path segment, every other one for any text:
/// enough to tell whose template it is, not a parser of variables.
pub fn template_matches(template: &str, uri: &str) -> bool {
    let target = uri.as_bytes();
    let mut reached = vec![false; target.len() + 1];
    reached[0] = true;
    let mut rest = template;
    loop {
        let (literal, behind) = rest.split_once('{').unwrap_or((rest, ""));
        reached = after_literal(&reached, target, literal.as_bytes());
        if behind.is_empty() {
            return reached.last() == Some(&true);
        }
        let Some((expression, after)) = behind.split_once('}') else {
            return false;
        };
        let wide = expression.starts_with(['+', '#', '.', '/', ';', '?', '&']);
        reached = after_expression(&reached, target, wide);
        rest = after;
    }
}

fn after_literal(reached: &[bool], target: &[u8], literal: &[u8]) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    for (at, _) in reached.iter().enumerate().filter(|(_, here)| **here) {
        let end = at + literal.len();
        if target.get(at..end) == Some(literal) {
            next[end] = true;
        }
    }
    next
}

fn after_expression(reached: &[bool], target: &[u8], wide: bool) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    let mut open = false;
    for at in 0..reached.len() {
        open |= reached[at];
        next[at] = open;
        let ends = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
        if !wide && target.get(at).is_some_and(ends) {
            open = false;
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn up(text: &str) -> UpstreamId {
        UpstreamId::new(text).unwrap()
    }

    fn ups() -> Vec<UpstreamId> {
        ["a", "files", "gh"].map(up).to_vec()
    }

    /// XT-372, case 33: compound schemes, `ui:` and `http(s)`.
    #[test]
    fn xt_372_each_scheme_has_its_exposed_form() {
        let gh = up("gh");
        for (original, exposed) in [
            ("file:///a%2Fb?x#y", "gh+file:///a%2Fb?x#y"),
            ("git+ssh://h/r", "gh+git+ssh://h/r"),
            ("ui://prefab/r.html", "ui://gh.prefab/r.html"),
            ("ui:///r.html", "ui://gh./r.html"),
            ("ui:odd", "gh+ui:odd"),
            ("https://h/x", "https://h/x"),
            ("HTTP://h/x", "HTTP://h/x"),
            ("httpx://h", "gh+httpx://h"),
            ("gh+x:y", "gh+gh+x:y"),
            ("测试:1", "gh+测试:1"),
        ] {
            assert_eq!(expose(&gh, original), exposed);
            let found = resolve(&ups(), exposed).map(|(u, o)| (u.clone(), o.into_owned()));
            let expected = (!is_web(original)).then(|| (gh.clone(), original.to_owned()));
            assert_eq!(found, expected, "{exposed}");
        }
        assert!(resolve(&ups(), "git+ssh://h/r").is_none());
        assert!(resolve(&ups(), "ui://prefab/r.html").is_none());
    }

    /// XT-384, RSC-02: every spelling of climbing out of a directory.
    #[test]
    fn xt_384_climbing_file_uris_are_seen() {
        for bad in [
            "file:///../etc/passwd",
            "file:///a/./b",
            "file:///a/%2e%2e/b",
            "file:///a/%252E%252e/b",
            "file:///a%2f..%2fb",
            "file:///a%252Fb",
            "file:///a%5c..",
            "FILE:///a/..",
            "file:///a%00b",
        ] {
            assert!(climbs(bad), "{bad}");
        }
        for good in [
            "file:///a/b..c/.x",
            "file:///a%20b",
            "git:///../x",
            "file:///a%2",
            "file:///%",
        ] {
            assert!(!climbs(good), "{good}");
        }
    }

    #[test]
    fn rsc_01_uris_are_bounded_and_printable() {
        assert!(is_acceptable("file:///é"));
        assert!(!is_acceptable(""));
        assert!(!is_acceptable("a:b\u{0}"));
        assert!(!is_acceptable(&"a".repeat(LENGTH_MAX + 1)));
    }

    #[test]
    fn templates_match_their_expansions_only() {
        for (template, uri, expected) in [
            ("https://h/{id}/x", "https://h/7/x", true),
            ("https://h/{id}/x", "https://h/7/8/x", false),
            ("https://h/{+path}", "https://h/7/8/x", true),
            ("https://h/s{?q,lang*}", "https://h/s?q=a&lang=b", true),
            ("https://h/s{?q}", "https://h/s", true),
            ("https://h/{a}-{b}", "https://h/1-2", true),
            ("{+all}", "x:y", true),
            ("https://h/{broken", "https://h/1", false),
            ("https://h/x", "https://h/xy", false),
        ] {
            assert_eq!(
                template_matches(template, uri),
                expected,
                "{template} {uri}"
            );
        }
    }

    fn upstream() -> impl Strategy<Value = UpstreamId> {
        "[a-z][a-z0-9-]{0,5}".prop_filter_map("an id", |id| UpstreamId::new(&id).ok())
    }

    fn original() -> impl Strategy<Value = String> {
        prop_oneof![
            "(ui|file|git\\+ssh|x)://[a-z.+%0-9/]{0,20}",
            "ui://[^/]{0,4}/\\PC{0,20}",
            "[a-z]{1,5}\\+\\PC{0,20}",
            "\\PC{0,40}",
        ]
    }

    /// A toy expansion: every expression becomes one fixed text, as a client would put it there.
    fn expand(template: &str, value: &str) -> String {
        let mut out = String::new();
        let mut rest = template;
        while let Some((literal, behind)) = rest.split_once('{') {
            let (_, after) = behind.split_once('}').unwrap_or(("", ""));
            out.push_str(literal);
            out.push_str(value);
            rest = after;
        }
        out.push_str(rest);
        out
    }

    proptest! {
        /// T63, XT-383: the way back is exact for every byte, and no upstream reaches another.
        #[test]
        fn t63_uris_resolve_to_where_they_came_from(
            upstream in upstream(), other in upstream(), original in original()
        ) {
            let exposed = expose(&upstream, &original);
            let mut all = vec![other, upstream.clone()];
            all.sort();
            let found = resolve(&all, &exposed);
            if is_web(&original) {
                prop_assert_eq!(exposed.as_ref(), original.as_str());
            } else {
                let (owner, back) = found.expect("prefixed by an upstream of the table");
                prop_assert_eq!(owner, &upstream);
                prop_assert_eq!(back.as_ref(), original.as_str());
            }
        }

        /// XT-371: exposing commutes with expansion, also when an expression comes first.
        #[test]
        fn xt_371_templates_commute(
            upstream in upstream(),
            head in "(file://|ui://|x:|)",
            parts in proptest::collection::vec("(/[a-z]{0,4}|\\{[+?/]?[a-z]{1,3}\\*?\\})", 1..5),
            value in "[a-z0-9:/+.%]{0,8}",
        ) {
            let template = format!("{head}{}", parts.concat());
            let expanded = expand(&template, &value);
            let asked = expand(&expose(&upstream, &template), &value);
            let table = [upstream.clone()];
            let (owner, original) = resolve(&table, &asked).expect("prefixed");
            prop_assert_eq!(owner, &upstream);
            prop_assert_eq!(original.as_ref(), expanded);
            let wide = template.replace('{', "{+").replace("{++", "{+");
            prop_assert!(template_matches(&wide, &expand(&wide, &value)));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,60}", template in "[{}+a-z/%]{0,20}") {
            let _ = (climbs(&format!("file:{text}")), template_matches(&template, &text));
        }
    }
}
