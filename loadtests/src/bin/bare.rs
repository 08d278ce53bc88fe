//! `bare`: the least a proxy on hyper can do, as a program.

use std::io::Write as _;
use std::net::SocketAddr;

use clap::Parser;
use tokio::net::TcpListener;
use vestibule_load::bare;
use vestibule_load::target::{Target, loopback_socket};

// The gateway's allocator, so that a comparison is not one of allocators.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A bare reverse proxy; prints the URL it serves.
#[derive(Parser)]
struct Arguments {
    /// Address to listen on, loopback only; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:0", value_parser = loopback_socket)]
    listen: SocketAddr,
    /// The server behind
    #[arg(long)]
    upstream: Target,
    /// Scan every message in both directions before it is passed on
    #[arg(long)]
    scan: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments {
        listen,
        upstream,
        scan,
    } = Arguments::parse();
    let listener = TcpListener::bind(listen).await?;
    writeln!(
        std::io::stdout(),
        "http://{}{}",
        listener.local_addr()?,
        upstream.path
    )?;
    bare::serve(listener, upstream, scan).await?;
    Ok(())
}
