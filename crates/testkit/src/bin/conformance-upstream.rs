//! Runs the conformance upstream, over Streamable HTTP or stdio.

use std::{io::Write, net::SocketAddr};

use anyhow::Context;
use clap::Parser;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};
use vestibule_testkit::conformance::{Eras, HttpFixture, serve_stdio};

/// An MCP server with every fixture of the official conformance suite.
#[derive(Debug, Parser)]
struct Arguments {
    /// Serve standard input and output instead of HTTP.
    #[arg(long)]
    stdio: bool,
    /// Where to listen; port 0 takes a free one. The URL goes to standard output.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The eras to serve.
    #[arg(long, value_enum, default_value_t = Eras::Both)]
    era: Eras,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // Standard output belongs to the protocol. Silent unless asked: a client
    // that leaves early is an error to the SDK and nothing unusual in a test.
    let quiet = EnvFilter::builder().with_default_directive(LevelFilter::OFF.into());
    tracing_subscriber::fmt()
        .with_env_filter(quiet.from_env_lossy())
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    if arguments.stdio {
        return serve_stdio(arguments.era).await;
    }
    let fixture = HttpFixture::start(arguments.listen, arguments.era).await?;
    let mut output = std::io::stdout();
    writeln!(output, "{}", fixture.url())
        .and_then(|()| output.flush())
        .context("cannot print the URL")?;
    fixture.wait().await;
    Ok(())
}
