//! Guards of the repository that need Rust: `cargo xtask rooms` and `cargo xtask protocol`.
//!
//! Depends on nothing of ours, so that a guard still runs when the code it guards is broken.

mod protocol;
mod rooms;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask rooms | protocol

rooms     every crate uses only the rooms above its own, and each outside world has one owner
protocol  docs/PROTOCOL.md and the requirement ids that tests cite agree, both ways
";

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool"
)]
fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let outcome = match command.as_str() {
        "rooms" => rooms::check(&root()),
        "protocol" => protocol::check(&root()),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The top of the workspace.
fn root() -> PathBuf {
    // as cargo runs it now: a target folder may be shared by several checkouts
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = here.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    here.ancestors().nth(2).unwrap_or(&here).to_path_buf()
}

/// Every Rust source below `folder`, in a stable order.
fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![folder.to_path_buf()];
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
