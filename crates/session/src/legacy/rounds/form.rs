//! The two forms of a question and its answer: a request to the client on one side, members of a
//! result and of the next request on the other (MRT-04). Pure.

use bytes::Bytes;
use vestibule_exchange::{Capabilities, Wish};
use vestibule_frame::{DEPTH_CEILING, Draft, Frame, Id, Limits, Span, encode as write, json, meta};
use vestibule_store::random_digits;
use vestibule_terms::{Method, Revision};

use super::state::{Asked, url_of};
use crate::encode::{self, Inexpressible};

/// Text that was part of a message, or is one, when it came.
pub(super) fn parse(text: Bytes) -> Option<Frame> {
    let limits = Limits {
        depth: DEPTH_CEILING,
        ..Limits::default()
    };
    Frame::parse(text, &limits).ok()
}

/// A question as the client will get it, but for its id.
pub(super) fn question(
    wish: Wish,
    revision: Revision,
    can: &Capabilities,
) -> Result<(Draft, Asked), Inexpressible> {
    let (key, method) = (wish.key, wish.method);
    let nobody = Id::integer(0);
    let text = write::request(&nobody, method.as_str(), wish.params.as_deref());
    let frame = parse(text).ok_or(Inexpressible)?;
    let mut draft = Draft::new(frame);
    if draft.frame().meta().is_some() {
        for key in meta::HOP_KEYS {
            draft.remove_meta(key); // MET-07; of progress about a question nobody would hear (5.2)
        }
    }
    let url = url_of(method, wish.params.as_ref()).map(|url| (url, random_digits::<16>()));
    if let Some((_, elicitation)) = &url {
        // ELI-06: older clients are told of the end of it by an id
        let id = Bytes::from(json::quote(elicitation));
        draft.set_at(&["params", "elicitationId"], id);
    }
    encode::question(&mut draft, method, revision, can)?;
    let asked = Asked {
        key,
        method,
        id: nobody,
        url,
        answer: None,
    };
    Ok((draft, asked))
}

/// What a client's response says, as a member of `inputResponses`; none when it is no answer to a
/// question of that kind.
pub(super) fn answer(frame: &Frame, method: Method) -> Option<Bytes> {
    let result = frame.result()?;
    let member = |key| frame.member(result, key);
    let begins = |span: Option<Span>, with: u8| {
        span.is_some_and(|span| frame.text(span).first() == Some(&with))
    };
    let mut draft = Draft::new(frame.clone());
    let is_answer = if method == Method::RootsList {
        begins(member("roots"), b'[')
    } else if method == Method::SamplingCreateMessage {
        let content = member("content");
        begins(content, b'{') || begins(content, b'[')
    } else {
        let action = member("action").and_then(|span| frame.string(span));
        if action.as_deref() != Some("accept") {
            draft.remove_member(result, "content"); // ELI-04
        }
        matches!(action.as_deref(), Some("accept" | "decline" | "cancel"))
    };
    if !is_answer {
        return None;
    }
    if let Some(object) = frame.result_meta() {
        for key in meta::HOP_KEYS {
            draft.remove_member(object, key);
        }
    }
    let frame = parse(draft.to_bytes())?;
    let result = frame.result()?;
    Some(frame.shared(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(method: Method, result: &str) -> Option<String> {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        let frame = parse(Bytes::from(text)).unwrap();
        let answer = answer(&frame, method)?;
        Some(String::from_utf8(answer.to_vec()).unwrap())
    }

    /// ELI-04: content comes with acceptance alone; what is no answer is none.
    #[test]
    fn eli_04_an_answer_is_of_the_kind_that_was_asked_for() {
        let elicit = |result: &str| answered(Method::ElicitationCreate, result);
        let accept = r#"{"action":"accept","content":{"n":1.0}}"#;
        assert_eq!(elicit(accept).unwrap(), accept);
        let declined = elicit(r#"{"action":"decline","content":{"n":1}}"#).unwrap();
        assert_eq!(declined, r#"{"action":"decline"}"#);
        for wrong in [r#"{"action":"perhaps"}"#, "{}"] {
            assert_eq!(elicit(wrong), None, "{wrong}");
        }
        assert!(answered(Method::RootsList, r#"{"roots":[]}"#).is_some());
        assert!(answered(Method::RootsList, r#"{"roots":{}}"#).is_none());
        let message = r#"{"role":"assistant","content":{"type":"text","text":"a"},"model":"m"}"#;
        let sampled = answered(Method::SamplingCreateMessage, message);
        assert_eq!(sampled.unwrap(), message);
        assert!(answered(Method::SamplingCreateMessage, "{}").is_none());
    }

    /// ELI-06, CAP-12: a url has an id that only this hop knows; what belongs to the other hop goes.
    #[test]
    fn eli_06_a_url_gets_an_id_of_this_hop() {
        let params = r#"{"mode":"url","message":"m","url":"https://a","task":{},"_meta":{"progressToken":1,"x":2,"io.modelcontextprotocol/logLevel":"info"}}"#;
        let wish = Wish {
            key: Bytes::from_static(b"\"k\""),
            method: Method::ElicitationCreate,
            params: Some(Bytes::from_static(params.as_bytes())),
        };
        let can = Capabilities {
            elicit_url: true,
            ..Capabilities::default()
        };
        let (draft, asked) = question(wish, Revision::R2025_11_25, &can).unwrap();
        let (url, elicitation) = asked.url.unwrap();
        let text: serde_json::Value = serde_json::from_slice(&draft.to_bytes()).unwrap();
        assert_eq!(url, "https://a");
        assert_eq!(text["params"]["elicitationId"], elicitation.as_str());
        assert!(text["params"].get("task").is_none());
        assert_eq!(
            text["params"]["_meta"],
            serde_json::json!({"x": 2}),
            "MET-07"
        );
    }
}
