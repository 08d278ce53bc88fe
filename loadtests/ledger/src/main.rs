//! `ledger`: see `vestibule_ledger::program`.

use std::process::ExitCode;

fn main() -> ExitCode {
    vestibule_ledger::program::main()
}
