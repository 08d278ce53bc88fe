//! The commands. Each has a file; this one parses arguments and maps outcomes to exit codes:
//! 0 done, 1 failed, 2 wrong usage.

mod check;
mod demo;
mod serve;
mod transcript;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Vestibule, the front door of an organisation to its MCP servers.
#[derive(Debug, Parser)]
#[command(name = "vestibule", version, about, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway on loopback with three example upstreams and show a first call
    ///
    /// Starts a legacy, a modern and a stdio example server, serves them under tenant `default`,
    /// prints the address, a curl call and a client configuration to paste. Ctrl-C stops it all
    /// and leaves nothing behind.
    Demo(DemoArguments),
    /// Run the gateway with a configuration file
    ///
    /// The file is read again when it changes and on SIGHUP. SIGTERM and Ctrl-C drain and stop;
    /// a second one exits at once.
    Serve(ConfigArguments),
    /// Check a configuration file offline and report every mistake with its place
    Check(ConfigArguments),
    /// The demo's stdio upstream
    #[command(hide = true)]
    ExampleFiles,
}

/// Arguments of `demo`.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArguments {
    /// Run the transcript, compare the answers, and exit 0 or 1
    #[arg(long)]
    pub once: bool,
    /// Address of the MCP endpoint; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Address of health and metrics; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:8081")]
    pub admin_listen: SocketAddr,
}

/// Arguments of the commands that take a configuration.
#[derive(Debug, Clone, clap::Args)]
pub struct ConfigArguments {
    /// The configuration file (YAML)
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs one command to its end.
pub fn run(arguments: Arguments) -> ExitCode {
    let outcome = match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments.config),
        Command::Check(arguments) => check::run(&arguments.config),
        Command::ExampleFiles => demo::files(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say_on_stderr(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes one line of what was asked for. A closed pipe is not an error of ours.
fn say(line: &str) {
    let _reader_left = writeln!(std::io::stdout().lock(), "{line}");
}

/// Writes one line to the person at the terminal.
fn say_on_stderr(line: &str) {
    let _reader_left = writeln!(std::io::stderr().lock(), "{line}");
}

/// The runtime of a command that serves.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("vestibule")
        .build()?)
}
