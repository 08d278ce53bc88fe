//! The fixture over stdio: one process, one client, whichever era it opens with.

use anyhow::Context;
use rmcp::ServiceExt;

use super::{Eras, FixtureServer, era::WithoutDiscovery};

/// Serves standard input and output until the input ends.
///
/// # Errors
///
/// The client's first messages are no MCP, or the streams broke.
pub async fn serve_stdio(eras: Eras) -> anyhow::Result<()> {
    let fixture = FixtureServer::new(eras);
    let pipes = rmcp::transport::stdio();
    match eras {
        Eras::Legacy => {
            let running = Box::pin(WithoutDiscovery(fixture).serve(pipes))
                .await
                .context("no handshake")?;
            running.waiting().await.context("the fixture panicked")?;
        }
        Eras::Modern | Eras::Both => {
            let running = Box::pin(fixture.serve(pipes))
                .await
                .context("no first request")?;
            running.waiting().await.context("the fixture panicked")?;
        }
    }
    Ok(())
}
