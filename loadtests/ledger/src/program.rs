//! The program `ledger`: one run, one table. Exit code 0: everything held; 1: something did not; 2: the harness
//! itself failed or was asked for the wrong thing.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::house::Places;
use crate::verdict::Verdict;
use crate::{rolling, run, table};
use anyhow::Context as _;
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

const FAILED: u8 = 2;

/// Reads the command line, runs, prints.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match begin(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _reader_left = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

/// Whether the run came out as it should.
fn begin(arguments: &Arguments) -> anyhow::Result<bool> {
    let places = places(arguments)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let verdict = runtime.block_on(async {
        let stopped = async {
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                ended = tokio::signal::ctrl_c() => ended?,
                _ = terminate.recv() => {}
            }
            anyhow::bail!("stopped")
        };
        tokio::select! {
            verdict = perform(arguments, &places) => verdict,
            stopped = stopped => stopped,
        }
    });
    // with it every task, and with them every child
    drop(runtime);
    let good = verdict.and_then(|verdict| tell(arguments, &verdict));
    if matches!(good, Ok(true)) && !arguments.keep {
        std::fs::remove_dir_all(&places.folder)?;
    } else {
        let folder = places.folder.display();
        writeln!(std::io::stderr(), "logs, ledger and store are in {folder}")?;
    }
    good
}

async fn perform(arguments: &Arguments, places: &Places) -> anyhow::Result<Verdict> {
    match arguments.rolling {
        Some(rounds) => rolling::run(arguments, rounds, places).await,
        None => run::run(arguments, places).await,
    }
}

/// Prints the table; whether all is well. With a seeded fault, all is well when it was caught.
fn tell(arguments: &Arguments, verdict: &Verdict) -> anyhow::Result<bool> {
    let what = match (arguments.rolling, &arguments.mutation) {
        (Some(rounds), _) => format!("{rounds} rolling restarts"),
        (None, None) => format!("{} kills", arguments.kills()),
        (None, Some(mutation)) => format!("{} kills, {mutation}", arguments.kills()),
    };
    let (store, seed) = (arguments.store.as_str(), arguments.seed);
    let title = format!("ledger: {what}, store {store}, seed {seed}");
    let mut stdout = std::io::stdout();
    write!(stdout, "{}", table::print(&title, verdict))?;
    let Some(mutation) = &arguments.mutation else {
        return Ok(verdict.score().1 == 0);
    };
    let caught: Vec<&str> = verdict.caught().collect();
    if caught.is_empty() {
        writeln!(stdout, "{mutation}: NOT caught")?;
    } else {
        writeln!(stdout, "{mutation}: caught by {}", caught.join(", "))?;
    }
    Ok(!caught.is_empty())
}

fn places(arguments: &Arguments) -> anyhow::Result<Places> {
    let own = std::env::current_exe().context("where this program is")?;
    let beside = |name: &str| own.with_file_name(name);
    // what is left of runs that failed may bear the number of any process
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let name = format!(
        "vestibule-ledger-{}-{}",
        since.as_secs(),
        std::process::id()
    );
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).with_context(|| format!("{}", folder.display()))?;
    let gateway = arguments.gateway.clone();
    Ok(Places {
        gateway: gateway.unwrap_or_else(|| beside("vestibule")),
        upstream: existing(beside("ledger-upstream"))?,
        folder,
    })
}

fn existing(program: PathBuf) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(program.exists(), "{} is not built", program.display());
    Ok(program)
}
