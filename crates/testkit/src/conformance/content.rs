//! The content blocks, prompts and resources of the fixture: pure data, no
//! transport and no state.

use rmcp::{
    ErrorData,
    model::{
        CallToolResult, ContentBlock, GetPromptResult, JsonObject, PromptMessage,
        ReadResourceResult, ResourceContents, Role,
    },
};
use serde_json::json;

/// One red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A header without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// A successful result of one text block.
pub(super) fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// The result of a tool that only shows content; none for every other tool.
pub(super) fn shown_by(tool: &str) -> Option<CallToolResult> {
    let embedded = |uri: &str, mime: &str, text: &str| {
        ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(mime))
    };
    Some(match tool {
        "test_simple_text" => text("This is a simple text response for testing."),
        "test_image_content" => {
            CallToolResult::success(vec![ContentBlock::image(PNG, "image/png")])
        }
        "test_audio_content" => {
            CallToolResult::success(vec![ContentBlock::audio(WAV, "audio/wav")])
        }
        "test_embedded_resource" => CallToolResult::success(vec![embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )]),
        "test_multiple_content_types" => CallToolResult::success(vec![
            ContentBlock::text("Multiple content types test:"),
            ContentBlock::image(PNG, "image/png"),
            embedded(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            ),
        ]),
        "test_error_handling" => CallToolResult::error(vec![ContentBlock::text(
            "This tool intentionally returns an error for testing",
        )]),
        "test_header_parameter" => text("The header agreed with the argument."),
        "json_schema_2020_12_tool" => text("JSON Schema 2020-12 tool called."),
        _ => return None,
    })
}

/// A prompt without questions; none for unknown names.
pub(super) fn prompt(name: &str, arguments: &JsonObject) -> Option<GetPromptResult> {
    let argument = |name: &str| {
        arguments
            .get(name)
            .and_then(|value| value.as_str())
            .unwrap_or_default()
    };
    let user = |content| PromptMessage::new(Role::User, content);
    Some(GetPromptResult::new(match name {
        "test_simple_prompt" => vec![user(ContentBlock::text(
            "This is a simple prompt for testing.",
        ))],
        "test_prompt_with_arguments" => vec![user(ContentBlock::text(format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            argument("arg1"),
            argument("arg2"),
        )))],
        "test_prompt_with_embedded_resource" => vec![
            user(ContentBlock::resource(
                ResourceContents::text(
                    "Embedded resource content for testing.",
                    argument("resourceUri"),
                )
                .with_mime_type("text/plain"),
            )),
            user(ContentBlock::text(
                "Please process the embedded resource above.",
            )),
        ],
        "test_prompt_with_image" => vec![
            user(ContentBlock::image(PNG, "image/png")),
            user(ContentBlock::text("Please analyze the image above.")),
        ],
        _ => return None,
    }))
}

/// Reads a resource.
pub(super) fn resource(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let contents = match uri {
        "test://static-text" => plain("This is the content of the static text resource.", uri),
        "test://watched-resource" => plain("This is the content of the watched resource.", uri),
        "test://example-resource" => plain("Embedded resource content for testing.", uri),
        "test://static-binary" => ResourceContents::blob(PNG, uri).with_mime_type("image/png"),
        _ => templated(uri).ok_or_else(|| {
            ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": uri })))
        })?,
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn plain(text: &str, uri: &str) -> ResourceContents {
    ResourceContents::text(text, uri).with_mime_type("text/plain")
}

/// `test://template/{id}/data`.
fn templated(uri: &str) -> Option<ResourceContents> {
    let id = uri
        .strip_prefix("test://template/")?
        .strip_suffix("/data")?;
    if id.is_empty() || id.contains('/') {
        return None;
    }
    let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
    Some(ResourceContents::text(data.to_string(), uri).with_mime_type("application/json"))
}

#[cfg(test)]
mod tests {
    use super::{resource, templated};

    #[test]
    fn a_template_fills_in_its_id() {
        let contents =
            serde_json::to_string(&templated("test://template/123/data").unwrap()).unwrap();
        assert!(contents.contains("Data for ID: 123"));
    }

    #[test]
    fn a_template_takes_one_segment_only() {
        assert!(templated("test://template/1/2/data").is_none());
        assert!(templated("test://template//data").is_none());
    }

    #[test]
    fn an_unknown_resource_names_its_uri_in_the_error() {
        let error = resource("test://nowhere").unwrap_err();
        assert_eq!(error.data.unwrap()["uri"], "test://nowhere");
    }
}
