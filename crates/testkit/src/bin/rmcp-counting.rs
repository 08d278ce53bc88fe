//! The Rust SDK as a client in a session: calls `count` and prints what comes, a JSON line each.

use std::io::Write;

use anyhow::Context;
use rmcp::model::{CallToolRequestParams, ProgressNotificationParam};
use rmcp::service::{NotificationContext, RoleClient, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt};
use serde_json::{Value, json};

struct Counting;

impl ClientHandler for Counting {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let _nobody_reads = say(&json!({ "progress": params.progress }));
    }
}

fn say(line: &Value) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).context("the MCP endpoint")?;
    let transport = StreamableHttpClientTransport::from_uri(url);
    let opening = Counting.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize);
    let client = Box::pin(opening).await.context("cannot connect")?;
    let called = Box::pin(client.call_tool(CallToolRequestParams::new("count"))).await;
    let line = match called {
        Ok(result) => {
            let text = result.content.iter().find_map(|block| block.as_text());
            json!({ "text": text.map(|block| &*block.text) })
        }
        Err(ServiceError::McpError(error)) => json!({ "error": error.code.0 }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    say(&line).context("cannot print")
}
