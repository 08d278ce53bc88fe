//! The Rust SDK as a client: lists the tools of a server and calls one.

use std::io::Write;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use rmcp::{
    ClientLifecycleMode, ClientServiceExt,
    model::{CallToolRequestParams, JsonObject, ProtocolVersion},
    transport::StreamableHttpClientTransport,
};
use serde_json::json;

/// How the client opens.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    Legacy,
    Modern,
    Auto,
}

impl Mode {
    fn lifecycle(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Legacy => ClientLifecycleMode::Initialize,
            Self::Modern => ClientLifecycleMode::Discover { preferred_versions },
            Self::Auto => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: None,
            },
        }
    }
}

/// Lists the tools and calls one; prints both as one JSON line.
#[derive(Debug, Parser)]
struct Arguments {
    /// The MCP endpoint, over plain HTTP.
    url: String,
    /// How to open.
    mode: Mode,
    /// The tool to call.
    tool: String,
    /// Its arguments, a JSON object.
    arguments: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let Arguments {
        url,
        mode,
        tool,
        arguments,
    } = Arguments::parse();
    let arguments: JsonObject =
        serde_json::from_str(&arguments).context("the arguments are no JSON object")?;
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = Box::pin(().serve_with_lifecycle(transport, mode.lifecycle()))
        .await
        .context("cannot connect")?;
    let tools = client.list_all_tools().await.context("cannot list tools")?;
    let call = CallToolRequestParams::new(tool).with_arguments(arguments);
    let result = Box::pin(client.call_tool(call))
        .await
        .context("cannot call the tool")?;
    let text: Vec<_> = result
        .content
        .iter()
        .filter_map(|block| block.as_text())
        .map(|block| block.text.as_str())
        .collect();
    let seen = json!({
        "revision": client.peer().peer_info().map(|info| info.protocol_version.to_string()),
        "tools": tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(),
        "text": text.join("\n"),
    });
    writeln!(std::io::stdout(), "{seen}").context("cannot print")?;
    client.cancel().await.context("the client panicked")?;
    Ok(())
}
