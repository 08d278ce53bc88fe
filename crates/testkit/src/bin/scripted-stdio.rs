//! A stdio server that follows a script; see `vestibule_testkit::scripted_stdio`.

use std::path::PathBuf;

use clap::Parser;
use vestibule_testkit::scripted_stdio::follow;

/// Follows a script of JSON lines on standard input and output.
#[derive(Debug, Parser)]
struct Arguments {
    /// The script.
    #[arg(long)]
    script: PathBuf,
    /// A file to append every line read to.
    #[arg(long)]
    record: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let status = follow(&arguments.script, arguments.record.as_deref()).await?;
    // Reading standard input may block a thread that the runtime would wait for.
    std::process::exit(status)
}
