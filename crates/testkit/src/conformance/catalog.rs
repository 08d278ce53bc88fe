//! What the fixture lists: tools, prompts, resources and templates, read from
//! `catalog.json`. Nothing here answers a call.

use std::sync::LazyLock;

use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde::Deserialize;

/// The lists as the server sends them, in the order of the file: the suite
/// calls the first tool without arguments, so that one must not need any.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Catalog {
    pub(super) tools: Vec<Tool>,
    pub(super) prompts: Vec<Prompt>,
    pub(super) resources: Vec<Resource>,
    pub(super) resource_templates: Vec<ResourceTemplate>,
}

/// The one catalog of the process.
pub(super) static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    serde_json::from_str(include_str!("catalog.json"))
        .expect("the file is part of the build and tested")
});

#[cfg(test)]
mod tests {
    use super::CATALOG;

    #[test]
    fn the_first_tool_needs_no_arguments() {
        let first = CATALOG.tools.first().unwrap();
        assert!(!first.input_schema.contains_key("required"));
    }

    #[test]
    fn schema_keywords_survive_the_reading() {
        let tool = CATALOG
            .tools
            .iter()
            .find(|tool| tool.name == "json_schema_2020_12_tool")
            .unwrap();
        for keyword in [
            "$schema",
            "$defs",
            "allOf",
            "if",
            "then",
            "else",
            "additionalProperties",
        ] {
            assert!(tool.input_schema.contains_key(keyword), "{keyword}");
        }
    }
}
