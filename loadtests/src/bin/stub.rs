//! `stub`: the upstream under every comparison, as a program.

use std::io::Write as _;
use std::net::SocketAddr;

use clap::Parser;
use tokio::net::TcpListener;
use vestibule_load::target::loopback_socket;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A tiny MCP server of both eras; prints the URL it serves.
#[derive(Parser)]
struct Arguments {
    /// Address to listen on, loopback only; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:0", value_parser = loopback_socket)]
    listen: SocketAddr,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let listener = TcpListener::bind(Arguments::parse().listen).await?;
    writeln!(std::io::stdout(), "http://{}/mcp", listener.local_addr()?)?;
    vestibule_load::stub::serve(listener).await?;
    Ok(())
}
