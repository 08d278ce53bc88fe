//! What a client can do for a server, and the classes that upstream sessions are pooled by.

use bytes::Bytes;
use vestibule_frame::json;
use vestibule_terms::Revision;

/// Capabilities a client declared, as the gateway may relay them.
///
/// The bits form the *capability class* of translation rules section 4: upstream sessions of one
/// class may be shared, those of two may not. Everything else the client declared stays its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// `roots`
    pub roots: bool,
    /// `roots.listChanged` (legacy)
    pub roots_list_changed: bool,
    /// `sampling`
    pub sampling: bool,
    /// `sampling.tools` (2025-11-25 and later)
    pub sampling_tools: bool,
    /// `sampling.context` (2025-11-25 and later)
    pub sampling_context: bool,
    /// `elicitation`, form mode; an empty object means form (CAP-05)
    pub elicit_form: bool,
    /// `elicitation.url` (2025-11-25 and later)
    pub elicit_url: bool,
    /// The value of `extensions["io.modelcontextprotocol/ui"]`, raw, if declared.
    pub ui: Option<Bytes>,
}

/// The extension identifier of MCP Apps.
pub const UI_EXTENSION: &str = "io.modelcontextprotocol/ui";

impl Capabilities {
    /// Reads a `capabilities` object (`initialize`) or `clientCapabilities` object (modern
    /// `_meta`). The text must be valid JSON; anything that is not an object declares nothing.
    pub fn parse(text: &[u8]) -> Self {
        let mut found = Self::default();
        for (key, value) in object(text) {
            match key.as_str() {
                "roots" => {
                    found.roots = is_object(value);
                    found.roots_list_changed = flag(value, "listChanged");
                }
                "sampling" => {
                    found.sampling = is_object(value);
                    found.sampling_tools = declared(value, "tools");
                    found.sampling_context = declared(value, "context");
                }
                "elicitation" if is_object(value) => {
                    found.elicit_url = declared(value, "url");
                    found.elicit_form = declared(value, "form") || !found.elicit_url;
                }
                "extensions" => {
                    found.ui = member(value, UI_EXTENSION)
                        .filter(|value| is_object(value))
                        .map(Bytes::copy_from_slice);
                }
                _ => {}
            }
        }
        found
    }

    /// Whether nothing is declared: such calls may share one upstream session freely.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What remains of this when spoken in `revision` (CAP-06): a revision cannot carry what it
    /// does not define.
    pub fn masked(&self, revision: Revision) -> Self {
        let (form, url) = revision.elicitation();
        let newest = matches!(revision, Revision::R2025_11_25 | Revision::R2026_07_28);
        Self {
            roots: self.roots,
            roots_list_changed: self.roots_list_changed && !revision.is_modern(),
            sampling: self.sampling,
            sampling_tools: self.sampling_tools && newest,
            sampling_context: self.sampling_context && newest,
            elicit_form: self.elicit_form && form,
            elicit_url: self.elicit_url && url,
            ui: self.ui.clone(),
        }
    }

    /// The JSON object that declares exactly this in `revision`: `capabilities` of `initialize`,
    /// or `clientCapabilities` of a modern request. Never absent, at least `{}`.
    pub fn encode(&self, revision: Revision) -> Bytes {
        let own = self.masked(revision);
        let mut members: Vec<String> = Vec::new();
        if own.roots {
            let inner = if own.roots_list_changed {
                r#""listChanged":true"#
            } else {
                ""
            };
            members.push(format!(r#""roots":{{{inner}}}"#));
        }
        if own.sampling {
            let parts = [
                (own.sampling_context, "context"),
                (own.sampling_tools, "tools"),
            ];
            members.push(format!(r#""sampling":{{{}}}"#, empty_objects(&parts)));
        }
        if own.elicit_form || own.elicit_url {
            let modes = [(own.elicit_form, "form"), (own.elicit_url, "url")];
            // 2025-06-18 knows no modes: `{}` there is the form (CAP-05).
            let shown = revision != Revision::R2025_06_18;
            let inner = if shown {
                empty_objects(&modes)
            } else {
                String::new()
            };
            members.push(format!(r#""elicitation":{{{inner}}}"#));
        }
        if let Some(ui) = &own.ui {
            let ui = String::from_utf8_lossy(ui);
            members.push(format!(r#""extensions":{{"{UI_EXTENSION}":{ui}}}"#));
        }
        Bytes::from(format!("{{{}}}", members.join(",")))
    }
}

fn empty_objects(parts: &[(bool, &str)]) -> String {
    let present: Vec<String> = parts
        .iter()
        .filter(|(present, _)| *present)
        .map(|(_, name)| format!(r#""{name}":{{}}"#))
        .collect();
    present.join(",")
}

fn object(text: &[u8]) -> Vec<(String, &[u8])> {
    if !is_object(text) {
        return Vec::new();
    }
    json::members(text)
        .filter_map(|member| {
            let key = json::string(&text[member.key.range()])?.into_owned();
            Some((key, &text[member.value.range()]))
        })
        .collect()
}

fn member<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    object(text)
        .into_iter()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value)
}

fn is_object(text: &[u8]) -> bool {
    text.first() == Some(&b'{')
}

fn declared(text: &[u8], name: &str) -> bool {
    member(text, name).is_some_and(is_object)
}

fn flag(text: &[u8], name: &str) -> bool {
    member(text, name) == Some(b"true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &str, revision: Revision) -> String {
        let bytes = Capabilities::parse(text.as_bytes()).encode(revision);
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// CAP-05: `elicitation: {}` means form mode, and is written as `{}` towards 2025-06-18.
    #[test]
    fn cap_05_empty_elicitation_means_form() {
        let text = r#"{"elicitation":{}}"#;
        assert!(Capabilities::parse(text.as_bytes()).elicit_form);
        assert_eq!(
            round(text, Revision::R2025_11_25),
            r#"{"elicitation":{"form":{}}}"#
        );
        assert_eq!(round(text, Revision::R2025_06_18), r#"{"elicitation":{}}"#);
        let url_only = Capabilities::parse(br#"{"elicitation":{"url":{}}}"#);
        assert!(url_only.elicit_url && !url_only.elicit_form);
    }

    /// CAP-06: what a revision cannot express is not declared in it.
    #[test]
    fn cap_06_capabilities_are_masked_by_the_revision() {
        let text = r#"{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#;
        assert_eq!(
            round(text, Revision::R2025_03_26),
            r#"{"roots":{"listChanged":true},"sampling":{}}"#
        );
        assert_eq!(
            round(text, Revision::R2026_07_28),
            r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}"#
        );
        assert_eq!(round(text, Revision::R2025_11_25), text);
    }

    #[test]
    fn foreign_and_malformed_declarations_declare_nothing() {
        for text in [
            r#"{"roots":true,"sampling":null,"x":{}}"#,
            "{}",
            "[]",
            "null",
        ] {
            assert!(Capabilities::parse(text.as_bytes()).is_empty(), "{text}");
        }
    }
}
