//! `vestibule-load`: runs one plan and prints its result.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::runtime::{Builder, Runtime};
use vestibule_load::arguments::Arguments;
use vestibule_load::load;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let plan = match Arguments::parse().plan() {
        Ok(plan) => plan,
        Err(mistake) => {
            let _reader_left = writeln!(std::io::stderr(), "error: {mistake}");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    let outcome = runtime(plan.threads).and_then(|runtime| {
        let report = runtime.block_on(load::run(plan));
        let text = serde_json::to_string_pretty(&report)?;
        writeln!(std::io::stdout(), "{text}").context("stdout is closed")?;
        Ok(report.broken)
    });
    match outcome {
        Ok(broken) => {
            for threshold in &broken {
                let _reader_left = writeln!(std::io::stderr(), "broken: {threshold}");
            }
            if broken.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            let _reader_left = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn runtime(threads: usize) -> anyhow::Result<Runtime> {
    if threads == 1 {
        return Ok(Builder::new_current_thread().enable_all().build()?);
    }
    Ok(Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?)
}
