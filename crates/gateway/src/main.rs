//! The program: arguments in, exit code out. Everything else is the library.

use std::process::ExitCode;

use clap::Parser;
use vestibule::cli::{self, Arguments};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run(Arguments::parse())
}
