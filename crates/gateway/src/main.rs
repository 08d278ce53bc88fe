//! The program: arguments in, exit code out. Everything else is the library.

use std::process::ExitCode;

use clap::Parser;
use vestibule::cli::{self, Arguments};

// ADR 9: its own thread gives memory back when nobody allocates any more
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::run(Arguments::parse())
}
