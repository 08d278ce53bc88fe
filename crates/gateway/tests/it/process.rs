//! The program as a process: its configuration file, its log lines, signals and exit.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;
use vestibule_testkit::{PATIENCE, RawClient, RawRequest, RawResponse};

use crate::talk::HOST;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_vestibule");

/// A folder of a test's own, removed with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("vestibule-it-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Replaces a file as editors do: written beside it and renamed over it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let (path, beside) = (self.0.join(name), self.0.join(format!(".{name}.new")));
        std::fs::write(&beside, text).unwrap();
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // what is left in the temporary folder harms nobody
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A configuration on free ports that logs JSON, with more top-level keys and the tenants.
pub(crate) fn configuration(top: &str, tenants: &str) -> String {
    format!(
        "listen: {{ address: \"127.0.0.1:0\" }}
admin: {{ address: \"127.0.0.1:0\" }}
store: {{ kind: embedded, path: none }}
telemetry: {{ log: json }}
{top}
tenants:
{tenants}"
    )
}

/// What a stream of a process has said so far, line by line.
#[derive(Clone)]
pub(crate) struct Lines(watch::Receiver<Vec<String>>);

impl Lines {
    fn of(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let (sender, lines) = watch::channel(Vec::new());
        tokio::spawn(async move {
            let mut reader = BufReader::new(stream).lines();
            while let Ok(Some(line)) = reader.next_line().await {
                sender.send_modify(|lines| lines.push(line));
            }
        });
        Self(lines)
    }

    /// The first line that holds `text`; waits for it.
    pub(crate) async fn with(&self, text: &str) -> String {
        self.nth_with(text, 0).await
    }

    /// The line that holds `text` after `before` others that do.
    pub(crate) async fn nth_with(&self, text: &str, before: usize) -> String {
        let find = |lines: &Vec<String>| {
            let mut holding = lines.iter().filter(|line| line.contains(text));
            holding.nth(before).cloned()
        };
        let mut lines = self.0.clone();
        let came = timeout(PATIENCE, lines.wait_for(|lines| find(lines).is_some())).await;
        match came {
            Ok(Ok(lines)) => find(&lines).unwrap(),
            _ => panic!("no line with {text:?} in {:#?}", self.all()),
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Everything, once the process has closed the stream.
    pub(crate) async fn whole(&self) -> Vec<String> {
        let mut lines = self.0.clone();
        let over = timeout(PATIENCE, async { while lines.changed().await.is_ok() {} });
        over.await.expect("the stream ends with the process");
        self.all()
    }
}

/// A running program; dropping it kills it.
pub(crate) struct Program {
    child: Child,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(arguments)
            .env_remove("VESTIBULE_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self {
            child,
            stdout,
            stderr,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = std::process::Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .unwrap();
        assert!(sent.success(), "kill -{name}");
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self, within: Duration) -> ExitStatus {
        match timeout(within, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("still running after {within:?}: {:#?}", self.stderr.all()),
        }
    }

    /// Its direct children, by pid.
    pub(crate) fn children(&self) -> Vec<u32> {
        children_of(self.pid())
    }
}

/// `vestibule serve` with its addresses.
pub(crate) struct Served {
    pub(crate) program: Program,
    pub(crate) data: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Served {
    pub(crate) async fn start(file: &Path) -> Self {
        let program = Program::start(&["serve", "--config", file.to_str().unwrap()]);
        let address = async |what: &str| {
            let line = program.stderr.with(what).await;
            let line: Value = serde_json::from_str(&line).unwrap();
            line["address"].as_str().unwrap().parse().unwrap()
        };
        let data = address("serving MCP").await;
        let admin = address("serving health and metrics").await;
        Self {
            program,
            data,
            admin,
        }
    }

    pub(crate) async fn connect(&self) -> RawClient {
        RawClient::connect(self.data).await.unwrap()
    }

    pub(crate) async fn ask(&self, request: &RawRequest) -> RawResponse {
        self.connect().await.ask(request).await.unwrap()
    }

    /// A page of the admin listener.
    pub(crate) async fn page(&self, path: &str) -> RawResponse {
        let request = RawRequest::new("GET", path).field("Host", HOST);
        let mut client = RawClient::connect(self.admin).await.unwrap();
        client.ask(&request).await.unwrap()
    }
}

pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(of, state)| of == parent && state != "Z"))
        .collect()
}

/// Parent and state of a process.
fn stat(pid: u32) -> Option<(u32, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.to_owned();
    Some((words.next()?.parse().ok()?, state))
}

/// Waits until a process is no more.
pub(crate) async fn gone(pid: u32) {
    let over = timeout(PATIENCE, async {
        while stat(pid).is_some_and(|(_, state)| state != "Z") {
            tokio::task::yield_now().await;
        }
    });
    over.await
        .unwrap_or_else(|_| panic!("process {pid} has survived"));
}
