//! `ledger-upstream`: prints its URL, serves until it is killed.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use tokio::net::TcpListener;
use vestibule_ledger::upstream::{House, Ledger, serve};

/// An MCP server that writes down every event before it sends it.
#[derive(Debug, Parser)]
struct Arguments {
    /// The ledger to write.
    #[arg(long)]
    ledger: PathBuf,
    /// What marks a tenant's messages, as TENANT=WORD.
    #[arg(long = "canary", value_parser = pair)]
    canaries: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (tenant, word) = text.split_once('=').ok_or("TENANT=WORD is wanted")?;
    Ok((tenant.to_owned(), word.to_owned()))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let ledger = Ledger::create(&arguments.ledger).context("the ledger")?;
    let canaries: HashMap<String, String> = arguments.canaries.into_iter().collect();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    writeln!(std::io::stdout(), "http://{}", listener.local_addr()?)?;
    serve(House::new(ledger, canaries), listener).await?;
    Ok(())
}
