//! Real `redis-server` processes on free ports, and the few commands that a failover needs.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::process::Process;

const SERVER: &str = "redis-server";
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
const STARTS_WITHIN: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// One server of a fixed port, through all its lives.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) port: u16,
    folder: PathBuf,
    arguments: Vec<String>,
    process: Option<Process>,
}

impl Server {
    /// Starts one that keeps everything it acknowledges: `kill -9` loses nothing that it has
    /// written to its log, and it answers only after that write.
    pub(super) async fn start(folder: &Path, name: &str, more: &[String]) -> anyhow::Result<Self> {
        let port = free_port()?;
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut arguments = words(&format!("--port {port} --bind 127.0.0.1 --loglevel notice"));
        // never forced to the disk, which a killed process does not need: with a thread that forces
        // it, writes of the log are put off while it is busy, and are lost although they were answered
        arguments.extend(words("--appendonly yes --appendfsync no"));
        arguments.extend(["--save".to_owned(), String::new()]);
        arguments.extend(["--dir".to_owned(), folder.display().to_string()]);
        arguments.extend(more.iter().cloned());
        Self::begin(port, folder, arguments).await
    }

    async fn begin(port: u16, folder: PathBuf, arguments: Vec<String>) -> anyhow::Result<Self> {
        let mut server = Self {
            port,
            folder,
            arguments,
            process: None,
        };
        server.run().await?;
        Ok(server)
    }

    /// A sentinel, whose configuration is a file that it writes itself.
    pub(super) async fn sentinel(folder: &Path, name: &str, primary: u16) -> anyhow::Result<Self> {
        let port = free_port()?;
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("sentinel.conf");
        let text = format!(
            "port {port}
bind 127.0.0.1
dir {}
sentinel monitor mymaster 127.0.0.1 {primary} 2
sentinel down-after-milliseconds mymaster 1000
sentinel failover-timeout mymaster 3000
sentinel parallel-syncs mymaster 1
",
            folder.display()
        );
        std::fs::write(&file, text)?;
        let arguments = vec![file.display().to_string(), "--sentinel".to_owned()];
        Self::begin(port, folder, arguments).await
    }

    /// Starts it again after a kill; returns when it answers and has read its log.
    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        let log = self.folder.join("redis.log");
        let program = Path::new(SERVER);
        let process = Process::start(program, &self.arguments, &HashMap::new(), &log)?;
        self.process = Some(process);
        let until = Instant::now() + STARTS_WITHIN;
        while Instant::now() < until {
            if self
                .ask(&["PING"])
                .await
                .is_ok_and(|answer| answer.contains("PONG"))
            {
                return Ok(());
            }
            sleep(PAUSE).await;
        }
        bail!("{SERVER} on port {} does not answer", self.port)
    }

    pub(super) async fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// A command that is not refused.
    pub(super) async fn must(&self, command: &[String]) -> anyhow::Result<()> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let said = self.ask(&words).await?;
        if said.starts_with('-') {
            bail!("{}: {}", words[..2].join(" "), said.trim());
        }
        Ok(())
    }

    /// One command on a connection of its own.
    pub(super) async fn ask(&self, command: &[&str]) -> anyhow::Result<String> {
        timeout(ANSWERS_WITHIN, ask(self.port, command))
            .await
            .context("no answer")?
    }
}

/// The texts of an answer, without the protocol around them.
pub(super) fn words(answer: &str) -> Vec<String> {
    let lines = answer.lines();
    let texts = lines.filter(|line| !line.is_empty() && !line.starts_with(['*', '$', ':', '+']));
    texts.map(str::to_owned).collect()
}

pub(super) async fn ask(port: u16, command: &[&str]) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut text = format!("*{}\r\n", command.len());
    for word in command {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(text.as_bytes()).await?;
    let mut answer = vec![0; 64 * 1024];
    let read = stream.read(&mut answer).await?;
    answer.truncate(read);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A port that was free a moment ago; of a cluster's node the port above by 10,000 must be, too.
fn free_port() -> anyhow::Result<u16> {
    for _ in 0..100 {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let bus = port.checked_add(10_000);
        if bus.is_some_and(|bus| TcpListener::bind(("127.0.0.1", bus)).is_ok()) {
            return Ok(port);
        }
    }
    bail!("no free port")
}
