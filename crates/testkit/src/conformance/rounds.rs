//! The tools of the multi-round flow: each answers only when its questions
//! are answered, and some carry sealed state from round to round.

use std::sync::LazyLock;

use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResponse, InputResponses, RequestStateCodec},
    service::RequestContext,
};
use serde_json::{Value, json};

use super::{
    content::text,
    questions::{Asked, Question, ask, is_modern},
};

/// Seals round states, so that a changed one is noticed. The key needs to be
/// no secret: what is proven is that the state comes back as it went.
static STATES: LazyLock<RequestStateCodec> =
    LazyLock::new(|| RequestStateCodec::new_unchecked(*b"conformance-fixture-state-key-32"));

/// Calls a multi-round tool; none for every other name.
pub(super) async fn call(
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let questions = match params.name.strip_prefix("test_input_required_result_")? {
        "elicitation" => vec![name("user_name", "What is your name?")],
        "sampling" => vec![Question::model(
            "capital_question",
            "What is the capital of France?",
            100,
        )],
        "list_roots" => vec![Question::roots("client_roots")],
        "multiple_inputs" => vec![
            name("user_name", "What is your name?"),
            Question::model("greeting", "Generate a greeting", 50),
            Question::roots("client_roots"),
        ],
        "request_state" | "tampered_state" => vec![Question::property(
            "confirm",
            "Please confirm",
            "ok",
            "boolean",
        )],
        "capabilities" => declared(context),
        "multi_round" => return Some(two_rounds(params, context).await),
        _ => return None,
    };
    let stateful = matches!(
        params.name.as_ref(),
        "test_input_required_result_request_state"
            | "test_input_required_result_tampered_state"
            | "test_input_required_result_multiple_inputs"
    );
    Some(one_round(params, context, &questions, stateful).await)
}

fn name(key: &'static str, message: &str) -> Question {
    Question::property(key, message, "name", "string")
}

/// Every kind of question the client declared to answer.
fn declared(context: &RequestContext<RoleServer>) -> Vec<Question> {
    let capabilities = context.client_capabilities();
    let mut questions = vec![
        name("user_name", "What is your name?"),
        Question::model("greeting", "Generate a greeting", 50),
        Question::roots("client_roots"),
    ];
    questions.retain(|question| question.is_answerable(capabilities.as_ref()));
    questions
}

async fn one_round(
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
    questions: &[Question],
    stateful: bool,
) -> Result<CallToolResponse, ErrorData> {
    let verified = match params.request_state.as_deref() {
        Some(sealed) if stateful => {
            open(sealed)?;
            true
        }
        Some(_) | None => false,
    };
    let state = stateful
        .then(|| seal(&json!({ "tool": params.name })))
        .transpose()?;
    let answers = params.input_responses.clone();
    if stateful && !verified && is_modern(context) && answers.is_some() {
        return Err(ErrorData::invalid_params("requestState is missing", None));
    }
    Ok(match ask(context, questions, answers, state).await? {
        Asked::Open(result) => result.into(),
        Asked::Answered(answers) => summary(&answers, verified).into(),
    })
}

/// First the name, then the colour; the state says which round is on.
async fn two_rounds(
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let first = [Question::property(
        "step1",
        "Step 1: What is your name?",
        "name",
        "string",
    )];
    let second = [Question::property(
        "step2",
        "Step 2: What is your favorite color?",
        "color",
        "string",
    )];
    let state = params.request_state.as_deref().map(open).transpose()?;
    let round = state
        .as_ref()
        .and_then(|state| state["round"].as_u64())
        .unwrap_or(1);
    if round == 1 {
        let state = Some(seal(&json!({ "round": 1 }))?);
        if let Asked::Open(result) =
            ask(context, &first, params.input_responses.clone(), state).await?
        {
            return Ok(result.into());
        }
    }
    let state = Some(seal(&json!({ "round": 2 }))?);
    let given = params.input_responses.clone().filter(|_| round == 2);
    Ok(match ask(context, &second, given, state).await? {
        Asked::Open(result) => result.into(),
        Asked::Answered(answers) => summary(&answers, true).into(),
    })
}

fn seal(state: &Value) -> Result<String, ErrorData> {
    STATES
        .seal_json(state)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn open(sealed: &str) -> Result<Value, ErrorData> {
    STATES
        .open_json(sealed)
        .map_err(|_| ErrorData::invalid_params("requestState is not one of this server's", None))
}

/// Says what was answered; "state-ok" when the state came back intact.
fn summary(answers: &InputResponses, state_ok: bool) -> rmcp::model::CallToolResult {
    let hello = answers
        .get("user_name")
        .and_then(|answer| answer["content"]["name"].as_str());
    let start = match (hello, state_ok) {
        (Some(name), _) => format!("Hello, {name}!"),
        (None, true) => "state-ok".to_owned(),
        (None, false) => "Answered".to_owned(),
    };
    text(format!("{start} {}", json!(answers)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{open, seal};

    #[test]
    fn a_state_comes_back_as_it_went() {
        let state = json!({ "round": 2 });
        assert_eq!(open(&seal(&state).unwrap()).unwrap(), state);
    }

    #[test]
    fn a_changed_state_is_refused() {
        let sealed = seal(&json!({ "round": 1 })).unwrap();
        assert!(open(&format!("{sealed}-TAMPERED")).is_err());
    }
}
