//! What every request of a stateless server carries: its version and its client's capabilities in
//! `_meta`, and headers that say the same as the body. The body is what is acted upon; a header
//! that differs means that somebody between may have decided on something else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::http::single;
use crate::rpc::{self, METHOD_NOT_FOUND, Params, RpcError};

/// The one revision.
pub(super) const VERSION: &str = "2026-07-28";
/// Headers and body differ.
const HEADER_MISMATCH: i64 = -32020;
/// The client lacks a capability.
pub(super) const MISSING_CAPABILITY: i64 = -32021;
/// The version is not served.
const UNSUPPORTED_VERSION: i64 = -32022;

/// The argument of `convert` that is mirrored into a header, and the header.
pub(super) const MIRRORED: (&str, &str) = ("to", "To-Place");

/// What `_meta` says about one request.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) capabilities: Params,
    pub(super) progress_token: Option<Value>,
    /// Log messages of this severity and above are wanted.
    pub(super) severity: Option<usize>,
}

/// Checks a request in the order in which a client can correct it.
pub(super) fn request(
    headers: &HeaderMap,
    method: &str,
    params: &Params,
) -> Result<Meta, RpcError> {
    if method == "initialize" {
        // a client that expects a session learns which versions are served
        return Err(unsupported(params.get("protocolVersion")));
    }
    let meta = rpc::object(params, "_meta")?;
    let field = |name: &str| meta.get(&format!("io.modelcontextprotocol/{name}"));
    let Some(Value::String(version)) = field("protocolVersion") else {
        return Err(missing_meta("protocolVersion"));
    };
    let Some(Value::Object(capabilities)) = field("clientCapabilities") else {
        return Err(missing_meta("clientCapabilities"));
    };
    equal(headers, "mcp-protocol-version", version)?;
    if version != VERSION {
        return Err(unsupported(Some(&json!(version))));
    }
    equal(headers, "mcp-method", method)?;
    name(headers, method, params)?;
    mirrored(headers, method, params)?;
    let severity = match field("logLevel") {
        None => None,
        Some(level) => Some(severity(level)?),
    };
    Ok(Meta {
        capabilities: capabilities.clone(),
        progress_token: meta.get("progressToken").cloned(),
        severity,
    })
}

/// The HTTP status of an error that is the whole answer.
pub(super) fn status(error: &RpcError) -> StatusCode {
    match error.code {
        METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// Whether an error means that `_meta` itself is not what it must be.
pub(super) fn is_missing_meta(error: &RpcError) -> bool {
    error.message.starts_with(META)
}

const META: &str = "_meta must have";

fn missing_meta(name: &str) -> RpcError {
    RpcError::invalid_params(format!("{META} io.modelcontextprotocol/{name}"))
}

fn unsupported(requested: Option<&Value>) -> RpcError {
    RpcError::new(UNSUPPORTED_VERSION, "protocol version not supported").with_data(json!({
        "supported": [VERSION],
        "requested": requested.and_then(Value::as_str).unwrap_or_default(),
    }))
}

fn severity(level: &Value) -> Result<usize, RpcError> {
    level
        .as_str()
        .and_then(rpc::severity)
        .ok_or_else(|| RpcError::invalid_params("unknown log level"))
}

fn mismatch(name: &str) -> RpcError {
    RpcError::new(
        HEADER_MISMATCH,
        format!("header {name} must be sent once and say the same as the body"),
    )
}

fn equal(headers: &HeaderMap, name: &str, body: &str) -> Result<(), RpcError> {
    if single(headers, name).map(str::trim) == Some(body) {
        Ok(())
    } else {
        Err(mismatch(name))
    }
}

/// `Mcp-Name` names what the request is about.
fn name(headers: &HeaderMap, method: &str, params: &Params) -> Result<(), RpcError> {
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let name = rpc::text(params, member)?;
    let header = single(headers, "mcp-name").and_then(decoded);
    if header.as_deref() == Some(name) {
        Ok(())
    } else {
        Err(mismatch("mcp-name"))
    }
}

/// The argument that the schema of `convert` marks with `x-mcp-header`.
fn mirrored(headers: &HeaderMap, method: &str, params: &Params) -> Result<(), RpcError> {
    if method != "tools/call" || params.get("name") != Some(&json!("convert")) {
        return Ok(());
    }
    let arguments = rpc::object(params, "arguments")?;
    let (argument, header) = MIRRORED;
    let header = format!("mcp-param-{}", header.to_ascii_lowercase());
    let sent = headers.contains_key(&header);
    let agree = match arguments.get(argument) {
        None | Some(Value::Null) => !sent,
        Some(Value::String(value)) => {
            single(headers, &header).and_then(decoded).as_deref() == Some(value)
        }
        // a wrong type is for the tool to say
        Some(_) => true,
    };
    if agree {
        Ok(())
    } else {
        Err(mismatch(&header))
    }
}

/// A header value as it was meant: what a header cannot carry stands there as
/// `=?base64?…?=`. A marker around something else is no value at all.
fn decoded(value: &str) -> Option<String> {
    let value = value.trim_matches([' ', '\t']);
    let coded = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match coded {
        None => Some(value.to_owned()),
        Some(coded) => String::from_utf8(STANDARD.decode(coded).ok()?).ok(),
    }
}
