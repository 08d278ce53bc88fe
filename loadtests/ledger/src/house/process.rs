//! One child process: its lines, its signals, its end.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a program may take to say that it serves.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// Lines kept for who waits for one; all of them go to the log.
const KEPT: usize = 64;

/// A running program; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    lines: watch::Receiver<Vec<String>>,
}

impl Process {
    /// Starts a program whose output is added to a log.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        environment: &HashMap<&str, String>,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let name = program.display();
        let mut child = Command::new(program)
            .args(arguments)
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            // a Ctrl-C at the terminal is the harness's: it ends its children itself
            .process_group(0)
            .spawn()
            .with_context(|| format!("{name} cannot be started"))?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw).context("it has no pid")?;
        let (sender, lines) = watch::channel(Vec::new());
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read(stdout, sender.clone(), log.to_owned()));
        }
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(read(stderr, sender, log.to_owned()));
        }
        Ok(Self { child, pid, lines })
    }

    /// The first line that holds this; waits for it.
    ///
    /// # Errors
    /// It ended before, or does not come.
    pub(crate) async fn line(&self, holding: &str) -> anyhow::Result<String> {
        let find = |lines: &Vec<String>| {
            let mut lines = lines.iter();
            lines.find(|line| line.contains(holding)).cloned()
        };
        let mut lines = self.lines.clone();
        let came = timeout(STARTS_WITHIN, lines.wait_for(|lines| find(lines).is_some())).await;
        match came {
            Ok(Ok(lines)) => find(&lines).context("it was there"),
            Ok(Err(_)) => bail!("it ended: {}", self.lines.borrow().join("\n")),
            Err(_) => bail!("no {holding:?}: {}", self.lines.borrow().join("\n")),
        }
    }

    /// Sends a signal. One that has ended cannot get any.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.child.id().is_some() {
            // between its end and our knowing of it
            let _ended = kill_process(self.pid, signal);
        }
    }

    /// Kills it and waits for its end.
    pub(crate) async fn kill(mut self) {
        // ended already: what was wanted
        let _ended = self.child.kill().await;
    }

    /// Waits for its end; whether it ended well, and in time.
    pub(crate) async fn ended(&mut self, within: Duration) -> bool {
        let ended = timeout(within, self.child.wait()).await;
        matches!(ended, Ok(Ok(status)) if status.success())
    }
}

async fn read(
    stream: impl AsyncRead + Unpin,
    lines: watch::Sender<Vec<String>>,
    log: std::path::PathBuf,
) {
    let file = std::fs::File::options().create(true).append(true).open(log);
    let mut reader = BufReader::new(stream).lines();
    while let Ok(Some(line)) = reader.next_line().await {
        if let Ok(mut file) = file.as_ref() {
            // a log that cannot be written is missed only by who looks for a cause
            let _full = writeln!(file, "{line}");
        }
        lines.send_modify(|lines| {
            if lines.len() < KEPT {
                lines.push(line);
            }
        });
    }
}
