//! The tools that do something: log, report progress, ask, change lists,
//! take their time. Tools that only show content are in `content`, those of
//! the multi-round flow in `rounds`.
#![expect(
    deprecated,
    reason = "the suite tests logging and sampling of revisions that still have them"
)]

use std::time::Duration;

use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, LoggingLevel,
        LoggingMessageNotificationParam, ProgressNotificationParam,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

use super::{
    FixtureServer,
    announce::Change,
    content::{self, text},
    polling::{RETRY, StreamCloser},
    questions::{Asked, Question, ask, is_modern},
    rounds,
};

/// The pause between two messages of one call: long enough for them to be
/// told apart on the wire.
const STEP: Duration = Duration::from_millis(50);

/// Calls a tool by name.
pub(super) async fn call(
    server: &FixtureServer,
    params: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    if let Some(result) = content::shown_by(&params.name) {
        return Ok(result.into());
    }
    if let Some(response) = rounds::call(&params, &context).await {
        return response;
    }
    if let Some(change) = change_of(&params) {
        server.announce(&context, change).await;
        return Ok(text("Announced.").into());
    }
    let result = match params.name.as_ref() {
        "test_echo" => {
            let mut result = text(argument(&params, "text"));
            result.structured_content = Some(json!({ "text": argument(&params, "text") }));
            Ok(result)
        }
        "test_tool_with_logging" => log_three(server, &context).await,
        "test_logging_tool" => log_one(server, &context).await,
        "test_tool_with_progress" => report_progress(&context).await,
        "test_slow" => take_time(&params, &context).await,
        "test_reconnection" => reconnect(&context).await,
        "test_missing_capability" => need_sampling(&context),
        _ => return put_question(&params, &context).await,
    };
    result.map(Into::into)
}

fn argument<'a>(params: &'a CallToolRequestParams, name: &str) -> &'a str {
    let arguments = params.arguments.as_ref();
    arguments
        .and_then(|arguments| arguments.get(name))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn change_of(params: &CallToolRequestParams) -> Option<Change> {
    Some(match params.name.as_ref() {
        "test_trigger_tool_change" => Change::Tools,
        "test_trigger_prompt_change" => Change::Prompts,
        "test_trigger_resource_change" => Change::Resources,
        "test_trigger_resource_update" => Change::Resource(argument(params, "uri").to_owned()),
        _ => return None,
    })
}

async fn log_three(
    server: &FixtureServer,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    log(server, context, "Tool execution started").await;
    tokio::time::sleep(STEP).await;
    log(server, context, "Tool processing data").await;
    tokio::time::sleep(STEP).await;
    log(server, context, "Tool execution completed").await;
    Ok(text("Tool with logging executed successfully"))
}

async fn log_one(
    server: &FixtureServer,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    log(server, context, "A message for whoever asked for it").await;
    Ok(text("Logged, if a level was set."))
}

/// Logs at level info, if the client wants that: the request's own level in
/// the modern era, the session's in the legacy one.
async fn log(server: &FixtureServer, context: &RequestContext<RoleServer>, message: &str) {
    let wanted = if is_modern(context) {
        context.meta.log_level()
    } else {
        Some(server.level())
    };
    let wants_info = matches!(wanted, Some(LoggingLevel::Debug | LoggingLevel::Info));
    if wants_info {
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
        // A client that went away no longer needs its log.
        context.peer.notify_logging_message(message).await.ok();
    }
}

async fn report_progress(
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let token = context.meta.get_progress_token();
    for (step, progress) in [0.0, 50.0, 100.0].into_iter().enumerate() {
        if step > 0 {
            tokio::time::sleep(STEP).await;
        }
        if let Some(token) = &token {
            let report = ProgressNotificationParam::new(token.clone(), progress).with_total(100.0);
            // A client that went away no longer needs its progress.
            context.peer.notify_progress(report).await.ok();
        }
    }
    Ok(text("Tool with progress executed successfully"))
}

async fn take_time(
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let arguments = params.arguments.as_ref();
    let milliseconds = arguments
        .and_then(|arguments| arguments.get("milliseconds"))
        .and_then(Value::as_u64);
    let milliseconds = milliseconds.unwrap_or_default().min(60_000);
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(milliseconds)) => Ok(text(format!("Took {milliseconds} ms."))),
        () = context.ct.cancelled() => Ok(text("Cancelled.")),
    }
}

/// Ends the call's stream, then answers: the client resumes to get the answer.
/// Without a stream to end (stdio, the modern era) it simply answers.
async fn reconnect(context: &RequestContext<RoleServer>) -> Result<CallToolResult, ErrorData> {
    if let Some(closer) = context.extensions.get::<StreamCloser>() {
        closer.close().await?;
        // what is sent while nobody listens is lost: the client comes back first
        tokio::time::sleep(RETRY * 2).await;
    }
    Ok(text("Reconnection test completed successfully"))
}

fn need_sampling(context: &RequestContext<RoleServer>) -> Result<CallToolResult, ErrorData> {
    if context
        .client_capabilities()
        .is_some_and(|capabilities| capabilities.sampling.is_some())
    {
        return Ok(text("The client declared sampling."));
    }
    let sampling = ClientCapabilities::builder().enable_sampling().build();
    Err(ErrorData::missing_required_client_capability(sampling))
}

/// The tools that put one question and show its answer.
async fn put_question(
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let question = match params.name.as_ref() {
        "test_sampling" => Question::model("sampling", argument(params, "prompt"), 100),
        "test_elicitation" => {
            Question::form("elicitation", argument(params, "message"), contact_form())
        }
        "test_elicitation_sep1034_defaults" => {
            Question::form("defaults", "Please review", defaults_form())
        }
        "test_elicitation_sep1330_enums" => {
            Question::form("choices", "Please choose", choices_form())
        }
        "test_streaming_elicitation" => {
            Question::property("confirm", "Please confirm", "ok", "boolean")
        }
        unknown => {
            return Err(ErrorData::invalid_params(
                format!("Unknown tool: {unknown}"),
                None,
            ));
        }
    };
    let key = question.key;
    let answers = match ask(context, &[question], params.input_responses.clone(), None).await? {
        Asked::Open(result) => return Ok(result.into()),
        Asked::Answered(answers) => answers,
    };
    let answer = &answers[key];
    let shown = match params.name.as_ref() {
        "test_sampling" => format!(
            "LLM response: {}",
            answer["content"]["text"].as_str().unwrap_or_default()
        ),
        "test_elicitation" => format!("User response: {answer}"),
        _ => {
            let action = answer["action"].as_str().unwrap_or_default();
            format!(
                "Elicitation completed: action={action}, content={}",
                answer["content"]
            )
        }
    };
    Ok(text(shown).into())
}

fn contact_form() -> Value {
    json!({
        "type": "object",
        "properties": {
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" },
        },
        "required": ["username", "email"],
    })
}

fn defaults_form() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
        },
    })
}

fn choices_form() -> Value {
    let titled = json!([
        { "const": "value1", "title": "First Option" },
        { "const": "value2", "title": "Second Option" },
        { "const": "value3", "title": "Third Option" },
    ]);
    let options = json!(["option1", "option2", "option3"]);
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": { "type": "string", "enum": options },
            "titledSingle": { "type": "string", "oneOf": titled },
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
            "titledMulti": { "type": "array", "items": { "anyOf": titled } },
        },
    })
}
