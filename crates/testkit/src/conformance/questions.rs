//! Questions the fixture asks its client, in the form of the client's era:
//! requests of the server in a legacy session, an `input_required` result in
//! the modern one. The tools that ask are in `rounds` and `tools`.

use rmcp::{
    ErrorData, RoleServer,
    model::{
        ClientCapabilities, ClientResult, InputRequest, InputRequests, InputRequiredResult,
        InputResponses, ProtocolVersion, ServerRequest,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

/// A question and the key of its answer.
pub(super) struct Question {
    pub(super) key: &'static str,
    request: Value,
}

impl Question {
    /// Asks the user to fill in a form.
    pub(super) fn form(key: &'static str, message: &str, schema: Value) -> Self {
        let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
        Self {
            key,
            request: json!({ "method": "elicitation/create", "params": params }),
        }
    }

    /// Asks the user for one required property.
    pub(super) fn property(key: &'static str, message: &str, name: &str, kind: &str) -> Self {
        let schema = json!({ "type": "object", "properties": { name: { "type": kind } }, "required": [name] });
        Self::form(key, message, schema)
    }

    /// Asks the client's model.
    pub(super) fn model(key: &'static str, prompt: &str, max_tokens: u32) -> Self {
        let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
        let params = json!({ "messages": [message], "maxTokens": max_tokens });
        Self {
            key,
            request: json!({ "method": "sampling/createMessage", "params": params }),
        }
    }

    /// Asks for the client's roots.
    pub(super) fn roots(key: &'static str) -> Self {
        Self {
            key,
            request: json!({ "method": "roots/list", "params": {} }),
        }
    }

    fn typed(&self) -> InputRequest {
        serde_json::from_value(self.request.clone()).expect("the constructors build valid requests")
    }

    /// Whether the client declared that it answers this kind of question.
    pub(super) fn is_answerable(&self, capabilities: Option<&ClientCapabilities>) -> bool {
        let Some(declared) = capabilities else {
            return false;
        };
        match self.request["method"].as_str() {
            Some("elicitation/create") => declared.elicitation.is_some(),
            Some("sampling/createMessage") => declared.sampling.is_some(),
            _ => declared.roots.is_some(),
        }
    }

    /// What the client would have to declare.
    fn needs(&self) -> ClientCapabilities {
        let name = match self.request["method"].as_str() {
            Some("elicitation/create") => "elicitation",
            Some("sampling/createMessage") => "sampling",
            _ => "roots",
        };
        serde_json::from_value(json!({ name: {} })).expect("an empty capability is valid")
    }

    /// Whether `answer` has the shape of an answer to this question.
    fn is_answered_by(&self, answer: &Value) -> bool {
        let member = match self.request["method"].as_str() {
            Some("elicitation/create") => "action",
            Some("sampling/createMessage") => "content",
            _ => "roots",
        };
        answer.get(member).is_some()
    }
}

/// The answers, or the result that asks for them.
pub(super) enum Asked {
    Answered(InputResponses),
    Open(InputRequiredResult),
}

/// Whether the request belongs to the stateless era.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// Asks `questions`. `given` are the answers the request brought; a modern
/// request that lacks some gets all of those asked again, with `state`.
pub(super) async fn ask(
    context: &RequestContext<RoleServer>,
    questions: &[Question],
    given: Option<InputResponses>,
    state: Option<String>,
) -> Result<Asked, ErrorData> {
    let capabilities = context.client_capabilities();
    if let Some(refused) = questions
        .iter()
        .find(|question| !question.is_answerable(capabilities.as_ref()))
    {
        return Err(ErrorData::missing_required_client_capability(
            refused.needs(),
        ));
    }
    if !is_modern(context) {
        return ask_session(context, questions).await.map(Asked::Answered);
    }
    let given = given.unwrap_or_default();
    let open: InputRequests = questions
        .iter()
        .filter(|question| {
            !given
                .get(question.key)
                .is_some_and(|answer| question.is_answered_by(answer))
        })
        .map(|question| (question.key.to_owned(), question.typed()))
        .collect();
    Ok(if open.is_empty() {
        Asked::Answered(given)
    } else {
        Asked::Open(InputRequiredResult::new(Some(open), state))
    })
}

/// Asks over a legacy session, one question after the other.
async fn ask_session(
    context: &RequestContext<RoleServer>,
    questions: &[Question],
) -> Result<InputResponses, ErrorData> {
    let mut answers = InputResponses::new();
    for question in questions {
        let request = match question.typed() {
            InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
            InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
            InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
            _ => return Err(ErrorData::internal_error("unknown kind of question", None)),
        };
        let answer: ClientResult = context
            .peer
            .send_request(request)
            .await
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let answer = serde_json::to_value(answer)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        answers.insert(question.key.to_owned(), answer);
    }
    Ok(answers)
}
