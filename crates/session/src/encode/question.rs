//! Questions in a form that an older client can read (translation rules, sections 5.3 and 11):
//! choices it knows, one content block where it knows one. What has no such form is refused, and
//! its asker told.

use bytes::Bytes;
use vestibule_exchange::Capabilities;
use vestibule_frame::{Draft, Frame, Span, encode as write, json};
use vestibule_terms::{Method, Revision};

use super::level::without;

/// The client cannot be asked this: `-32602` to whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inexpressible;

/// Levels a question for a client of `revision` that declared `can`.
pub(crate) fn question(
    draft: &mut Draft,
    method: Method,
    revision: Revision,
    can: &Capabilities,
) -> Result<(), Inexpressible> {
    let frame = draft.frame().clone();
    let Some(params) = frame.params() else {
        return Ok(());
    };
    if frame.member(params, "task").is_some() {
        draft.remove_member(params, "task"); // CAP-12
    }
    if method == Method::SamplingCreateMessage {
        return sampling(draft, &frame, params, (revision, can));
    }
    if method == Method::ElicitationCreate && revision == Revision::R2025_06_18 {
        return elicitation(draft, &frame, params);
    }
    Ok(())
}

fn sampling(
    draft: &mut Draft,
    frame: &Frame,
    params: Span,
    (revision, can): (Revision, &Capabilities),
) -> Result<(), Inexpressible> {
    let uses_tools = ["tools", "toolChoice"].iter().any(|key| {
        frame
            .member(params, key)
            .is_some_and(|span| frame.text(span) != b"null")
    });
    if uses_tools && !can.sampling_tools {
        return Err(Inexpressible); // SAM-02
    }
    if matches!(revision, Revision::R2025_11_25 | Revision::R2026_07_28) {
        return Ok(());
    }
    let messages = frame.member(params, "messages");
    for message in messages
        .into_iter()
        .flat_map(|messages| frame.elements(messages))
    {
        let Some(content) = frame.member(message, "content") else {
            continue;
        };
        let block = match frame.text(content).first() {
            Some(b'[') => {
                let mut blocks = frame.elements(content);
                let (Some(block), None) = (blocks.next(), blocks.next()) else {
                    return Err(Inexpressible);
                };
                draft.replace(content, frame.shared(block));
                block
            }
            _ => content,
        };
        if !takes(frame, block, revision) {
            return Err(Inexpressible);
        }
    }
    Ok(())
}

/// SAM-08: what a message to a model may hold.
fn takes(frame: &Frame, block: Span, revision: Revision) -> bool {
    let kind = frame
        .member(block, "type")
        .and_then(|kind| frame.string(kind));
    match kind.as_deref() {
        Some("text" | "image") => true,
        Some("audio") => revision != Revision::R2024_11_05,
        _ => false,
    }
}

/// ELI-03: titled choices in the older form; choices of several have none.
fn elicitation(draft: &mut Draft, frame: &Frame, params: Span) -> Result<(), Inexpressible> {
    let properties = frame
        .member(params, "requestedSchema")
        .and_then(|schema| frame.member(schema, "properties"));
    for property in properties
        .into_iter()
        .flat_map(|properties| frame.members(properties))
    {
        let schema = property.value;
        let kind = frame
            .member(schema, "type")
            .and_then(|kind| frame.string(kind));
        if kind.as_deref() == Some("array") {
            return Err(Inexpressible);
        }
        let choices = frame
            .member(schema, "oneOf")
            .or(frame.member(schema, "anyOf"));
        if let Some(choices) = choices {
            let older = older_choices(frame, schema, choices).ok_or(Inexpressible)?;
            draft.replace(schema, older);
        }
    }
    Ok(())
}

/// `oneOf` of constants with titles as `enum` and `enumNames`.
fn older_choices(frame: &Frame, schema: Span, choices: Span) -> Option<Bytes> {
    let mut values = Vec::new();
    let mut names = Vec::new();
    for choice in frame.elements(choices) {
        let value = frame.member(choice, "const")?;
        values.push(frame.shared(value));
        names.push(frame.shared(frame.member(choice, "title").unwrap_or(value)));
    }
    let rest = without(&frame.shared(schema), &["oneOf", "anyOf"]);
    let kept: Vec<(String, Bytes)> = json::members(&rest)
        .filter_map(|member| {
            let key = json::string(rest.get(member.key.range())?)?.into_owned();
            Some((key, rest.slice(member.value.range())))
        })
        .collect();
    let (values, names) = (write::batch(&values), write::batch(&names));
    let mut members: Vec<(&str, &[u8])> = kept
        .iter()
        .map(|(key, value)| (key.as_str(), &**value))
        .collect();
    members.extend([("enum", &*values), ("enumNames", &*names)]);
    Some(write::object(&members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::draft;
    use serde_json::{Value, json};

    const B: Revision = Revision::R2025_03_26;
    const C: Revision = Revision::R2025_06_18;
    const D: Revision = Revision::R2025_11_25;

    fn levelled(method: Method, params: &str, revision: Revision) -> Option<Value> {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{}","params":{params}}}"#,
            method.as_str()
        );
        let mut draft = draft(&text);
        let can = Capabilities {
            sampling: true,
            elicit_form: true,
            ..Capabilities::default()
        };
        question(&mut draft, method, revision, &can).ok()?;
        Some(serde_json::from_slice::<Value>(&draft.to_bytes()).unwrap()["params"].take())
    }

    /// ELI-03, XT-360: titled choices in the form of 2025-06-18, in their order.
    #[test]
    fn eli_03_titled_choices_become_names_for_2025_06_18() {
        let params = r#"{"message":"m","requestedSchema":{"type":"object","properties":{"z":{"type":"string","title":"Z","oneOf":[{"const":"a","title":"A"},{"const":"b"}]},"b":{"type":"boolean"}}}}"#;
        let got = levelled(Method::ElicitationCreate, params, C).unwrap();
        let expected =
            json!({"type": "string", "title": "Z", "enum": ["a", "b"], "enumNames": ["A", "b"]});
        assert_eq!(got["requestedSchema"]["properties"]["z"], expected);
        assert_eq!(
            got["requestedSchema"]["properties"]["b"],
            json!({"type": "boolean"})
        );
        let same = levelled(Method::ElicitationCreate, params, D).unwrap();
        assert_eq!(same, serde_json::from_str::<Value>(params).unwrap());
    }

    /// Section 15: a choice of several cannot be said in 2025-06-18.
    #[test]
    fn eli_03_choices_of_several_are_refused_for_2025_06_18() {
        let params = r#"{"message":"m","requestedSchema":{"type":"object","properties":{"z":{"type":"array","items":{"type":"string","enum":["a"]}}}}}"#;
        assert_eq!(levelled(Method::ElicitationCreate, params, C), None);
        assert!(levelled(Method::ElicitationCreate, params, D).is_some());
    }

    /// SAM-02, SAM-08: tools need their capability; several blocks need the revision.
    #[test]
    fn sam_08_sampling_is_put_in_the_form_of_the_client() {
        let message = |content: &str| {
            format!(r#"{{"messages":[{{"role":"user","content":{content}}}],"maxTokens":1}}"#)
        };
        let text = r#"{"type":"text","text":"t"}"#;
        let one = levelled(
            Method::SamplingCreateMessage,
            &message(&format!("[{text}]")),
            C,
        );
        assert_eq!(one.unwrap()["messages"][0]["content"]["text"], "t");
        let two = message(&format!("[{text},{text}]"));
        assert_eq!(levelled(Method::SamplingCreateMessage, &two, C), None);
        assert!(levelled(Method::SamplingCreateMessage, &two, D).is_some());
        let audio = message(r#"{"type":"audio","data":"AA","mimeType":"audio/wav"}"#);
        assert!(levelled(Method::SamplingCreateMessage, &audio, B).is_some());
        assert_eq!(
            levelled(Method::SamplingCreateMessage, &audio, Revision::R2024_11_05),
            None
        );
        let tools = r#"{"messages":[],"maxTokens":1,"tools":[]}"#;
        assert_eq!(
            levelled(Method::SamplingCreateMessage, tools, D),
            None,
            "SAM-02"
        );
    }

    /// CAP-12: a question is executed normally, whatever task it asks for.
    #[test]
    fn cap_12_task_augmentation_is_stripped() {
        let params = r#"{"messages":[],"maxTokens":1,"task":{"ttl":1}}"#;
        let got = levelled(Method::SamplingCreateMessage, params, D).unwrap();
        assert_eq!(got, json!({"messages": [], "maxTokens": 1}));
    }
}
