//! The filter of a listen: which lists and which URIs. Pure.

use vestibule_catalog::Kind;
use vestibule_frame::{Frame, Span, json};
use vestibule_terms::Method;

/// Most URIs of one filter that are looked at.
const URIS_MAX: usize = 1000;

/// A list that can be said to have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Change {
    Tools,
    Prompts,
    Resources,
}

impl Change {
    const ALL: [Change; 3] = [Change::Tools, Change::Prompts, Change::Resources];

    fn member(self) -> &'static str {
        match self {
            Change::Tools => "toolsListChanged",
            Change::Prompts => "promptsListChanged",
            Change::Resources => "resourcesListChanged",
        }
    }

    pub(super) fn method(self) -> Method {
        match self {
            Change::Tools => Method::ToolsListChanged,
            Change::Prompts => Method::PromptsListChanged,
            Change::Resources => Method::ResourcesListChanged,
        }
    }

    pub(super) fn of(method: Method) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|change| change.method() == method)
    }

    fn kind(self) -> Kind {
        match self {
            Change::Tools => Kind::Tools,
            Change::Prompts => Kind::Prompts,
            Change::Resources => Kind::Resources,
        }
    }
}

/// Which changes are asked for, or honoured, in the order of asking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) changes: Vec<Change>,
    pub(super) uris: Vec<String>,
}

impl Filter {
    /// Reads a filter object. What is false, unknown or malformed is not asked for (AMB-32).
    pub(super) fn read(frame: &Frame, object: Span) -> Self {
        let mut filter = Self::default();
        for member in frame.members(object) {
            let Some(key) = frame.string(member.key) else {
                continue;
            };
            let change = Change::ALL
                .into_iter()
                .find(|change| change.member() == key);
            if let Some(change) = change
                && frame.text(member.value) == b"true"
            {
                filter.changes.push(change);
            }
            if key == "resourceSubscriptions" {
                let uris = frame
                    .elements(member.value)
                    .filter_map(|span| frame.string(span));
                filter.uris = uris
                    .take(URIS_MAX)
                    .map(std::borrow::Cow::into_owned)
                    .collect();
            }
        }
        filter
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.uris.is_empty()
    }

    /// The changes of lists for which `offered` holds.
    pub(super) fn offered(&self, offered: impl Fn(Kind) -> bool) -> Vec<Change> {
        self.changes
            .iter()
            .copied()
            .filter(|change| offered(change.kind()))
            .collect()
    }

    pub(super) fn add(&mut self, other: Filter) {
        self.changes.extend(other.changes);
        self.uris.extend(other.uris);
    }

    /// The part of this that is in `other` too.
    pub(super) fn narrowed(&self, other: &Filter) -> Filter {
        Filter {
            changes: self
                .changes
                .iter()
                .copied()
                .filter(|c| other.changes.contains(c))
                .collect(),
            uris: self
                .uris
                .iter()
                .filter(|uri| other.uris.contains(uri))
                .cloned()
                .collect(),
        }
    }

    /// Whether a change of `uri` is one of these: the URI itself or one below it.
    pub(super) fn covers(&self, uri: &str) -> bool {
        self.uris.iter().any(|subscribed| {
            uri.strip_prefix(subscribed.as_str()).is_some_and(|below| {
                below.is_empty() || below.starts_with('/') || subscribed.ends_with('/')
            })
        })
    }

    pub(super) fn encode(&self) -> String {
        let mut members: Vec<String> = self
            .changes
            .iter()
            .map(|change| format!(r#""{}":true"#, change.member()))
            .collect();
        if !self.uris.is_empty() {
            let uris: Vec<String> = self.uris.iter().map(|uri| json::quote(uri)).collect();
            members.push(format!(r#""resourceSubscriptions":[{}]"#, uris.join(",")));
        }
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use vestibule_frame::Limits;

    fn read(filter: &str) -> Filter {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"f":{filter}}}}}"#);
        let frame = Frame::parse(Bytes::from(text), &Limits::default()).unwrap();
        let span = frame.member(frame.params().unwrap(), "f").unwrap();
        Filter::read(&frame, span)
    }

    /// SUB-01, AMB-32: only what is true is asked for; the order of asking stays.
    #[test]
    fn sub_01_filters_keep_what_is_true_in_order() {
        let filter = read(
            r#"{"promptsListChanged":true,"toolsListChanged":false,"x":true,"resourcesListChanged":true,"resourceSubscriptions":["a:1",2,"a:\u0032"]}"#,
        );
        let expected = r#"{"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:1","a:2"]}"#;
        assert_eq!(filter.encode(), expected);
        assert_eq!(read("{}").encode(), "{}");
        let honoured = Filter {
            changes: vec![Change::Resources],
            uris: vec!["a:2".into()],
        };
        let narrowed = r#"{"resourcesListChanged":true,"resourceSubscriptions":["a:2"]}"#;
        assert_eq!(filter.narrowed(&honoured).encode(), narrowed);
    }

    /// XT-377: a change of a sub-resource reaches the subscriber of its parent, and no neighbour.
    #[test]
    fn xt_377_a_parent_covers_what_is_below_it() {
        let filter = read(r#"{"resourceSubscriptions":["f:///a","f:///b/"]}"#);
        for (uri, expected) in [
            ("f:///a", true),
            ("f:///a/x", true),
            ("f:///ab", false),
            ("f:///b/x", true),
            ("f:///b", false),
        ] {
            assert_eq!(filter.covers(uri), expected, "{uri}");
        }
    }
}
