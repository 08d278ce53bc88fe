//! JSON-RPC 2.0 as all three servers need it: one message in, one answer out.

use serde_json::{Map, Value, json};

/// Not JSON.
pub(crate) const PARSE: i64 = -32700;
/// JSON, but no message that may come here.
pub(crate) const INVALID_REQUEST: i64 = -32600;
/// Unknown method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// Unknown name or bad parameters.
pub(crate) const INVALID_PARAMS: i64 = -32602;

/// The parameters of a message.
pub(crate) type Params = Map<String, Value>;

/// One message.
#[derive(Debug)]
pub(crate) enum Message {
    Request {
        id: Value,
        method: String,
        params: Params,
    },
    Notification {
        method: String,
        params: Params,
    },
    Response {
        id: Value,
        /// The result, or the error object.
        outcome: Result<Value, Value>,
    },
}

/// An error answer.
#[derive(Debug, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub(crate) fn method_not_found(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("method not found: {method}"))
    }

    /// The whole message; without a readable id the member is left out.
    pub(crate) fn to_message(&self, id: Option<&Value>) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        let mut message = json!({ "jsonrpc": "2.0", "error": error });
        if let Some(id) = id {
            message["id"] = id.clone();
        }
        message
    }
}

/// The answer to a request.
pub(crate) fn answer(id: &Value, outcome: &Result<Value, RpcError>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => error.to_message(Some(id)),
    }
}

/// A notification.
pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// Reads one message.
pub(crate) fn parse(text: &[u8]) -> Result<Message, RpcError> {
    let invalid = |why: &str| RpcError::new(INVALID_REQUEST, why);
    let message: Value = serde_json::from_slice(text)
        .map_err(|error| RpcError::new(PARSE, format!("not JSON: {error}")))?;
    let Value::Object(mut message) = message else {
        return Err(invalid("a message is one JSON object"));
    };
    if message.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    let id = message.remove("id");
    if id.as_ref().is_some_and(|id| !is_id(id)) {
        return Err(invalid("`id` must be a string or an integer"));
    }
    let Some(method) = message.remove("method") else {
        return parse_response(id, message);
    };
    let Value::String(method) = method else {
        return Err(invalid("`method` must be a string"));
    };
    let params = match message.remove("params") {
        Some(Value::Object(params)) => params,
        None | Some(Value::Null) => Params::new(),
        Some(_) => return Err(RpcError::invalid_params("`params` must be an object")),
    };
    Ok(match id {
        Some(id) => Message::Request { id, method, params },
        None => Message::Notification { method, params },
    })
}

fn parse_response(id: Option<Value>, mut message: Params) -> Result<Message, RpcError> {
    let outcome = match (message.remove("result"), message.remove("error")) {
        (Some(result), None) => Ok(result),
        (None, Some(error)) => Err(error),
        _ => {
            return Err(RpcError::new(
                INVALID_REQUEST,
                "neither a request, a notification nor a response",
            ));
        }
    };
    Ok(Message::Response {
        id: id.unwrap_or(Value::Null),
        outcome,
    })
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_i64() || id.is_u64()
}

/// A string parameter that must be there.
pub(crate) fn text<'a>(params: &'a Params, name: &str) -> Result<&'a str, RpcError> {
    params
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| RpcError::invalid_params(format!("`{name}` must be a string")))
}

/// An object parameter; absent and null are empty.
pub(crate) fn object(params: &Params, name: &str) -> Result<Params, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(Params::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => Err(RpcError::invalid_params(format!(
            "`{name}` must be an object"
        ))),
    }
}

/// A tool's result of one text.
pub(crate) fn tool_text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

/// A tool's own failure: the model reads it and may do better.
pub(crate) fn tool_error(text: impl Into<String>) -> Value {
    let mut result = tool_text(text);
    result["isError"] = json!(true);
    result
}

/// The answer to `completion/complete`: the candidates that begin with `typed`, 100 at most.
pub(crate) fn completion<'a>(typed: &str, candidates: impl Iterator<Item = &'a str>) -> Value {
    let matching: Vec<&str> = candidates
        .filter(|candidate| candidate.to_lowercase().starts_with(&typed.to_lowercase()))
        .collect();
    let values: Vec<&&str> = matching.iter().take(100).collect();
    json!({ "completion": {
        "values": values,
        "total": matching.len(),
        "hasMore": matching.len() > values.len(),
    } })
}

/// The levels of log messages, least severe first.
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

/// How severe a level is; levels are compared by this number.
pub(crate) fn severity(level: &str) -> Option<usize> {
    LEVELS.iter().position(|own| *own == level)
}

/// Whether a client can show a form to its user; an empty `elicitation` means that it can.
pub(crate) fn can_show_forms(capabilities: &Params) -> bool {
    match capabilities.get("elicitation") {
        Some(Value::Object(modes)) => modes.is_empty() || modes.contains_key("form"),
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_refused_with_the_right_code() {
        for (text, code) in [
            ("{", PARSE),
            ("[]", INVALID_REQUEST),
            ("1", INVALID_REQUEST),
            (r#"{"id":1,"method":"ping"}"#, INVALID_REQUEST),
            (
                r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                INVALID_REQUEST,
            ),
            (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
                INVALID_REQUEST,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                INVALID_PARAMS,
            ),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().code, code, "{text}");
        }
    }

    #[test]
    fn an_error_without_a_readable_id_has_no_id_member() {
        let error = RpcError::new(PARSE, "x").to_message(None);
        assert!(error.get("id").is_none());
    }
}
