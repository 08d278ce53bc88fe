//! The generator against the stub, directly and through the bare proxy.
#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot go on fails its test"
)]

mod models;
mod proxy;

use clap::Parser as _;
use tokio::net::TcpListener;
use vestibule_load::arguments::Arguments;
use vestibule_load::report::Report;
use vestibule_load::target::Target;
use vestibule_load::{bare, load, stub};

/// Starts a stub and returns its URL.
async fn start_stub() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(stub::serve(listener));
    url
}

/// Starts a bare proxy before `upstream` and returns its URL.
async fn start_bare(upstream: &str, scan: bool) -> String {
    let upstream: Target = upstream.parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}{}", listener.local_addr().unwrap(), upstream.path);
    tokio::spawn(bare::serve(listener, upstream, scan));
    url
}

/// Runs the generator with these arguments.
async fn run(line: &str, url: &str) -> Report {
    let words = ["vestibule-load"]
        .into_iter()
        .chain(line.split_whitespace());
    let words = words.chain(["--url", url]);
    load::run(Arguments::parse_from(words).plan().unwrap()).await
}
