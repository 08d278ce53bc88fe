//! One child process: in a group of its own, with an environment of what was named, written to by
//! one task, read by another, stopped in steps, and never left behind.
//!
//! Dropping the last handle stops it: stdin is closed, after five seconds it is asked to end, after
//! five more its group is killed (STD-05). Should the runtime itself end first, the group is killed
//! at once.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use vestibule_exchange::BoxFuture;
use vestibule_frame::encode;
use vestibule_terms::UpstreamId;

use crate::background::Background;
use crate::calls::Calls;
use crate::carrier::Carrier;
use crate::fault::Fault;
use crate::stdio::hear::{Hearing, Mode};
use crate::stdio::lines::{End, Lines};
use crate::targets::{Reach, Target};

/// What of our own environment a child sees (STD-08).
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];
/// Messages that wait to be written.
const QUEUE: usize = 64;
/// Time for each step of stopping.
const STEP: Duration = Duration::from_secs(5);
/// Lines of stderr that are logged in one second, and their length.
const STDERR_PER_SECOND: u32 = 20;
const STDERR_LINE: usize = 8 * 1024;

/// One child process.
#[derive(Debug)]
pub(crate) struct Process {
    calls: Arc<Calls>,
    mode: Arc<ArcSwap<Mode>>,
    pipe: Pipe,
    spoke: CancellationToken,
    stop: CancellationToken,
    /// Whether it is us who want it to end.
    asked: Arc<AtomicBool>,
    since: Instant,
}

/// The way in: messages become lines, written one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Pipe {
    lines: mpsc::Sender<Bytes>,
    exited: CancellationToken,
}

/// Kills the whole group when dropped, unless it was found empty.
#[derive(Debug)]
struct Group(Option<Pid>);

// === impl Process ===

impl Process {
    /// Starts the child of `target`. `ended` is told how long it lived when it ends unasked.
    pub(crate) fn start(
        target: &Target,
        background: &Background,
        ended: impl FnOnce(Duration) + Send + 'static,
    ) -> Result<Arc<Self>, Fault> {
        let mut child = command(target)?.spawn().map_err(|error| {
            tracing::error!(upstream.id = %target.id, %error, "could not start an upstream");
            Fault::NotSent("spawn")
        })?;
        let group = Group(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Fault::NotSent("spawn"));
        };
        tracing::info!(upstream.id = %target.id, pid = child.id(), "started an upstream");
        let (lines, queue) = mpsc::channel(QUEUE);
        let process = Arc::new(Self {
            calls: Arc::default(),
            mode: Arc::new(ArcSwap::from_pointee(Mode::Opening)),
            pipe: Pipe {
                lines,
                exited: CancellationToken::new(),
            },
            spoke: CancellationToken::new(),
            stop: CancellationToken::new(),
            asked: Arc::default(),
            since: Instant::now(),
        });
        let closing = CancellationToken::new();
        background.task(write(stdin, queue, closing.clone()));
        background.task(log(stderr, target.id.clone()));
        let reader = background.handle().spawn(process.reader(target, stdout));
        let keeper = Keeper {
            child,
            group,
            calls: Arc::clone(&process.calls),
            exited: process.pipe.exited.clone(),
            stop: process.stop.clone(),
            asked: Arc::clone(&process.asked),
            closing,
            reader,
            since: process.since,
        };
        background.task(keeper.keep(target.id.clone(), ended));
        Ok(process)
    }

    /// Its open calls.
    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// The way in.
    pub(crate) fn pipe(&self) -> &Pipe {
        &self.pipe
    }

    /// From now on it is understood so.
    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode.store(Arc::new(mode));
    }

    /// Writes one message. An error means that nothing was written.
    pub(crate) async fn write(&self, message: &[Bytes]) -> Result<(), Fault> {
        self.pipe.write(message).await
    }

    /// Whether it has ended.
    pub(crate) fn has_exited(&self) -> bool {
        self.pipe.exited.is_cancelled() || self.stop.is_cancelled()
    }

    /// Resolves at its first byte on stdout.
    pub(crate) fn spoke(&self) -> &CancellationToken {
        &self.spoke
    }

    /// When it was started.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Stops it; returns at once.
    pub(crate) fn stop(&self) {
        self.asked.store(true, Ordering::Relaxed);
        self.stop.cancel();
    }

    /// The task that reads stdout; ends when that closes, and stops the child when it cannot be
    /// read on.
    fn reader(&self, target: &Target, stdout: ChildStdout) -> impl Future<Output = ()> + use<> {
        let (calls, mode) = (Arc::clone(&self.calls), Arc::clone(&self.mode));
        let mut hearing = Hearing::new(target.id.clone(), Arc::clone(&calls), mode);
        let mut lines = Lines::new(stdout, target.max_response);
        let (spoke, stop) = (self.spoke.clone(), self.stop.clone());
        async move {
            let unfit = read(&mut lines, &mut hearing, &spoke).await;
            if let Some(reason) = unfit {
                let upstream = &hearing.upstream;
                tracing::error!(upstream.id = %upstream, reason, "cannot read an upstream; restarting it");
                calls.fail_all(&Fault::Protocol(reason));
            }
            // without stdout a process is of no use
            stop.cancel();
        }
    }
}

/// Reads until the end of stdout, or until it is unfit to be read, for the reason returned.
async fn read(
    lines: &mut Lines<ChildStdout>,
    hearing: &mut Hearing,
    spoke: &CancellationToken,
) -> Option<&'static str> {
    loop {
        let line = match lines.next().await {
            Ok(line) => line,
            Err(End::TooLong) => return Some("too_large"),
            Err(End::Closed) => return None,
        };
        spoke.cancel();
        if hearing.line(line).is_err() {
            return Some("noise");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

fn command(target: &Target) -> Result<Command, Fault> {
    let Reach::Stdio { command, env, cwd } = &target.reach else {
        return Err(Fault::NotSent("spawn"));
    };
    let (program, arguments) = command.split_first().ok_or(Fault::NotSent("spawn"))?;
    let mut child = Command::new(program);
    child
        .args(arguments)
        .env_clear()
        .process_group(0)
        .kill_on_drop(true);
    child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            child.env(name, value);
        }
    }
    for (name, value) in env {
        child.env(name, value.expose());
    }
    if let Some(cwd) = cwd {
        child.current_dir(cwd);
    }
    Ok(child)
}

// === impl Pipe ===

impl Pipe {
    async fn write(&self, message: &[Bytes]) -> Result<(), Fault> {
        if self.exited.is_cancelled() {
            return Err(Fault::NotSent("exited"));
        }
        let line = encode::single_line(message);
        self.lines
            .send(line)
            .await
            .map_err(|_closed| Fault::NotSent("exited"))
    }
}

impl Carrier for Pipe {
    fn carry(&self, message: Vec<Bytes>) -> BoxFuture<Result<(), Fault>> {
        let pipe = self.clone();
        Box::pin(async move { pipe.write(&message).await })
    }
}

/// The one task that writes to stdin (STD-02).
async fn write(stdin: ChildStdin, mut queue: mpsc::Receiver<Bytes>, closing: CancellationToken) {
    let mut stdin = BufWriter::new(stdin);
    loop {
        let written = tokio::select! {
            biased;
            () = closing.cancelled() => return,
            line = queue.recv() => match line {
                Some(line) => line,
                None => return,
            },
        };
        let writing = async {
            stdin.write_all(&written).await?;
            stdin.write_all(b"\n").await?;
            stdin.flush().await
        };
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            done = writing => if done.is_err() { return },
        }
    }
}

/// Stderr goes to the log, a bounded number of lines a second (STD-04).
async fn log(stderr: ChildStderr, upstream: UpstreamId) {
    let mut lines = Lines::new(stderr, STDERR_LINE);
    let (mut window, mut count) = (Instant::now(), 0_u32);
    loop {
        let line = match lines.next().await {
            Ok(line) => line,
            Err(End::TooLong) => {
                lines.skip();
                continue;
            }
            Err(End::Closed) => return,
        };
        if window.elapsed() >= Duration::from_secs(1) {
            if count > STDERR_PER_SECOND {
                let skipped = count - STDERR_PER_SECOND;
                tracing::info!(upstream.id = %upstream, skipped, "left out lines of stderr");
            }
            (window, count) = (Instant::now(), 0);
        }
        count += 1;
        if count <= STDERR_PER_SECOND {
            let text = String::from_utf8_lossy(&line);
            let text: String = text
                .chars()
                .filter(|c| !c.is_control())
                .take(1024)
                .collect();
            tracing::info!(upstream.id = %upstream, stderr = %text, "upstream wrote to stderr");
        }
    }
}

/// Waits for the end of a child, brings it about when asked to, and cleans up behind it.
struct Keeper {
    child: Child,
    group: Group,
    calls: Arc<Calls>,
    exited: CancellationToken,
    stop: CancellationToken,
    asked: Arc<AtomicBool>,
    closing: CancellationToken,
    reader: JoinHandle<()>,
    since: Instant,
}

impl Keeper {
    async fn keep(mut self, upstream: UpstreamId, ended: impl FnOnce(Duration)) {
        tokio::select! {
            status = self.child.wait() => {
                tracing::warn!(upstream.id = %upstream, status = ?status.ok(), "an upstream has exited");
            }
            () = self.stop.cancelled() => {
                self.exited.cancel();
                self.end().await;
            }
        }
        self.exited.cancel();
        self.closing.cancel();
        // grandchildren hold the pipes open; with them gone stdout ends
        self.group.signal(Signal::KILL);
        self.group.0 = None;
        // what was written before the exit still counts
        if timeout(Duration::from_secs(1), &mut self.reader)
            .await
            .is_err()
        {
            self.reader.abort();
        }
        self.calls.fail_all(&Fault::Broken);
        if !self.asked.load(Ordering::Relaxed) {
            ended(self.since.elapsed());
        }
    }

    /// STD-05: close stdin, wait, SIGTERM, wait, SIGKILL.
    async fn end(&mut self) {
        self.closing.cancel();
        if timeout(STEP, self.child.wait()).await.is_ok() {
            return;
        }
        self.group.signal(Signal::TERM);
        if timeout(STEP, self.child.wait()).await.is_ok() {
            return;
        }
        self.group.signal(Signal::KILL);
        let _reaped = self.child.wait().await;
    }
}

// === impl Group ===

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0
            && let Err(error) = kill_process_group(group, signal)
        {
            // ESRCH: nobody is left, which is what was wanted
            tracing::trace!(%error, "no process to signal");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
