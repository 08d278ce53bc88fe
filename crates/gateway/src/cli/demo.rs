//! `vestibule demo`: the gateway on embedded defaults, with three example upstreams in front of
//! nobody's network.
//!
//! The legacy and the modern example run in this process on loopback ports of their own; the stdio
//! one is this program again, started by the gateway as it would start any other. Nothing is
//! written to disk, and everything ends with the process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio_util::sync::CancellationToken;
use vestibule_examples::any_port;
use vestibule_listener::Workers;
use vestibule_registry::Checked;
use vestibule_registry::checked::LogFormat;

use super::DemoArguments;
use super::transcript::{self, Transcript};
use crate::app::{Address, Addresses, App, Bound};
use crate::logs;
use crate::shutdown::{Stop, StopSignals, Timing};

const NO_PORT: &str = "no free loopback port";

/// A stop of the demo waits for nobody else.
const TIMING: Timing = Timing {
    delay: Duration::ZERO,
    grace: Duration::from_secs(2),
};

/// Runs the demo; true when the transcript was as expected.
pub(super) fn run(arguments: &DemoArguments) -> anyhow::Result<bool> {
    // what the demo has to say it prints; the log speaks of what goes wrong
    let _logs = logs::start(LogFormat::Text, "warn");
    super::runtime()?.block_on(demo(arguments))
}

/// The hidden command behind the stdio example.
pub(super) fn files() -> anyhow::Result<bool> {
    let (stdin, stdout) = (std::io::stdin().lock(), std::io::stdout().lock());
    vestibule_examples::run_files(stdin, stdout).context("stdin or stdout broke")?;
    Ok(true)
}

async fn demo(arguments: &DemoArguments) -> anyhow::Result<bool> {
    let mut signals = StopSignals::listen()?;
    let examples = Examples::start().await?;
    let checked = configuration(arguments, &examples)?;
    let stop = Stop::default();
    let app = Arc::new(App::build(&checked)?);
    let addresses = Addresses {
        data: Address::plain(arguments.listen),
        admin: Address::plain(arguments.admin_listen),
        telemetry: None,
    };
    let running = app.start(addresses, Workers::start_all()?, &stop)?;
    let bound = running.bound;
    let transcript = transcript::run(bound.data).await;
    let good = show(&transcript);
    if !arguments.once {
        invite(&bound);
        signals.next().await;
    }
    tokio::spawn(async move {
        tokio::select! {
            () = stop.run(TIMING) => {}
            () = signals.next() => stop.now(),
        }
    });
    running.finished().await;
    examples.stop();
    Ok(good || !arguments.once)
}

/// The two example servers of this process.
struct Examples {
    notes: SocketAddr,
    clock: SocketAddr,
    over: CancellationToken,
}

impl Examples {
    async fn start() -> anyhow::Result<Self> {
        let over = CancellationToken::new();
        let notes = any_port().await.context(NO_PORT)?;
        let clock = any_port().await.context(NO_PORT)?;
        let addresses = (notes.local_addr()?, clock.local_addr()?);
        tokio::spawn(vestibule_examples::serve_notes(notes, over.clone()));
        tokio::spawn(vestibule_examples::serve_clock(clock, over.clone()));
        Ok(Self {
            notes: addresses.0,
            clock: addresses.1,
            over,
        })
    }

    fn stop(self) {
        self.over.cancel();
    }
}

/// The configuration of the demo, as an operator would write it.
fn configuration(arguments: &DemoArguments, examples: &Examples) -> anyhow::Result<Checked> {
    let program = std::env::current_exe().context("where is this program?")?;
    let program = serde_json::Value::from(program.to_string_lossy().as_ref());
    let text = format!(
        "listen: {{ address: \"{listen}\" }}
admin: {{ address: \"{admin}\" }}
store: {{ kind: embedded, path: none }}
tenants:
  default:
    auth: none
    policy: allow_all
    upstreams:
      notes: {{ url: \"http://{notes}/mcp\" }}
      clock: {{ url: \"http://{clock}/mcp\" }}
      files: {{ command: [{program}, example-files] }}
    servers:
      default: {{ upstreams: [notes, clock, files] }}
      notes: {{ upstream: notes }}
      clock: {{ upstream: clock }}
      files: {{ upstream: files }}
",
        listen = arguments.listen,
        admin = arguments.admin_listen,
        notes = examples.notes,
        clock = examples.clock,
    );
    vestibule_registry::parse(&text, "demo", &|_| None).map_err(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        anyhow!("{}", lines.join("\n"))
    })
}

/// Prints what was asked and answered; true when all of it was as expected.
fn show(transcript: &Transcript) -> bool {
    for line in &transcript.lines {
        super::say(line);
    }
    let wrong = transcript.wrong.len();
    for line in &transcript.wrong {
        super::say_on_stderr(line);
    }
    super::say(&format!(
        "{} answers as expected, {wrong} not",
        transcript.right
    ));
    wrong == 0
}

/// Says where everything is and what to paste.
fn invite(bound: &Bound) {
    let url = format!("http://{}/mcp", bound.data);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"files__read_file","arguments":{"path":"data/cities.csv"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    super::say(&format!(
        "
MCP       {url}   (also {url}/default/notes, …/clock, …/files: one upstream each)
health    http://{admin}/readyz   metrics http://{admin}/metrics

A call:

  curl -s {url} -H 'Content-Type: application/json' \\
    -H 'Accept: application/json, text/event-stream' \\
    -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/call' \\
    -H 'Mcp-Name: files__read_file' \\
    -d '{call}'

For a client's configuration:

  {{ \"mcpServers\": {{ \"vestibule\": {{ \"type\": \"http\", \"url\": \"{url}\" }} }} }}

Ctrl-C stops it all.",
        admin = bound.admin,
    ));
}
