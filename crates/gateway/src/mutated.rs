//! The program with bugs to be found by the ledger, one at a time: `VESTIBULE_MUTATION` names it.

use std::process::ExitCode;

use clap::Parser;
use vestibule::cli::{self, Arguments};

fn main() -> ExitCode {
    cli::run(Arguments::parse())
}
