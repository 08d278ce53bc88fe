//! Real servers of Redis (or Valkey) for tests: one, a primary watched by sentinels, a cluster.
//!
//! Each runs as a process of its own on a free port of the loopback, keeps nothing on disk unless it
//! is told to, and is killed by its id when it is dropped, also when the test panics. They are waited
//! for by what they log.
//!
//! Where no server is installed `start` says so and returns `None`, and the test has nothing to do;
//! with `VESTIBULE_TEST_STRICT=1` it panics. `VESTIBULE_TEST_REDIS_SERVER` names another command, such
//! as `chroot DIR valkey-server`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a server may take for what it must do. Machines that test are busy.
const PATIENCE: Duration = Duration::from_secs(30);
const READY: &str = "Ready to accept connections";
const DEFAULT: &str = "redis-server";
/// What a replica says when it has what its primary has, also in the words of Valkey.
const IN_STEP: &str = "<-> REPLICA sync: Finished";
const SENTINEL: &str = "sentinel.conf";
/// A free port may be somebody else's a moment later.
const ATTEMPTS: usize = 10;

/// The command that starts a server, if there is one.
fn program() -> Option<Vec<String>> {
    let named = std::env::var("VESTIBULE_TEST_REDIS_SERVER").unwrap_or_else(|_| DEFAULT.to_owned());
    let words: Vec<String> = named.split_whitespace().map(str::to_owned).collect();
    let (first, rest) = words.split_first()?;
    let mut version = Command::new(first);
    version
        .args(rest)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if version.status().is_ok_and(|status| status.success()) {
        return Some(words);
    }
    skip(&named);
    None
}

#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn skip(named: &str) {
    let strict = std::env::var_os("VESTIBULE_TEST_STRICT").is_some_and(|value| value == "1");
    assert!(
        !strict,
        "{named} is not installed and nothing may be skipped"
    );
    eprintln!("skipped: {named} is not installed");
}

/// A port that was free just now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has free ports");
    listener.local_addr().expect("it is bound").port()
}

/// A folder of its own for each server, removed with it.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new(program: &[String]) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("vestibule-redis-{}-{number}", std::process::id());
        let path = match root(program) {
            Some(root) => Path::new(root).join("tmp").join(name),
            None => std::env::temp_dir().join(name),
        };
        std::fs::create_dir_all(&path).expect("temporary folders can be made");
        Self(path)
    }

    /// Its path, or that of a file in it, as the server sees it.
    fn seen(&self, program: &[String], file: &str) -> String {
        let path = self.0.join(file);
        let inside = root(program).and_then(|root| path.strip_prefix(root).ok());
        match inside {
            Some(inside) => format!("/{}", inside.display()),
            None => path.display().to_string(),
        }
    }
}

/// What the server takes for the root of all files, if that is another.
fn root(program: &[String]) -> Option<&str> {
    match program {
        [first, root, ..] if first == "chroot" => Some(root),
        _ => None,
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_dir_all(&self.0).is_err();
    }
}

#[derive(Debug, Default)]
struct Log {
    lines: Mutex<(Vec<String>, bool)>,
    grown: Condvar,
}

impl Log {
    fn read(self: &Arc<Self>, from: impl Read + Send + 'static) {
        let log = Arc::clone(self);
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                log.lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
                    .push(line);
                log.grown.notify_all();
            }
            log.lines.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
            log.grown.notify_all();
        });
    }

    /// Waits for that many lines with that text; `false` when the process ends without them.
    fn wait(&self, text: &str, times: usize) -> bool {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = |lines: &[String]| lines.iter().filter(|line| line.contains(text)).count();
        let (lines, out_of_time) = self
            .grown
            .wait_timeout_while(lines, PATIENCE, |(lines, over)| {
                !*over && seen(lines) < times
            })
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!out_of_time.timed_out(), "no {text:?} in {:#?}", lines.0);
        seen(&lines.0) >= times
    }
}

#[derive(Debug)]
struct Process {
    child: Child,
    log: Arc<Log>,
}

impl Process {
    fn spawn(program: &[String], args: &[String]) -> Self {
        let mut child = Command::new(&program[0])
            .args(&program[1..])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts, as it did for its version");
        let log = Arc::<Log>::default();
        log.read(child.stdout.take().expect("it is piped"));
        Self { child, log }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "cannot send {name}"
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone_already = self.child.kill().is_err();
        let _gone_already = self.child.wait().is_err();
    }
}

/// One server.
#[derive(Debug)]
pub struct RedisServer {
    program: Vec<String>,
    args: Vec<String>,
    port: u16,
    process: Option<Process>,
    folder: Folder,
}

impl RedisServer {
    /// An empty server that keeps nothing on disk.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with more arguments, such as `--requirepass`.
    pub fn start_with(args: &[&str]) -> Option<Self> {
        let program = program()?;
        for _ in 0..ATTEMPTS {
            let mut server = Self {
                folder: Folder::new(&program),
                program: program.clone(),
                args: args.iter().map(|arg| (*arg).to_owned()).collect(),
                port: free_port(),
                process: None,
            };
            if server.try_start() {
                return Some(server);
            }
        }
        panic!("{program:?} does not start with {args:?}");
    }

    /// `false` when somebody else has taken the port.
    fn try_start(&mut self) -> bool {
        let mut args = vec!["--port".to_owned(), self.port.to_string()];
        args.extend(["--bind", "127.0.0.1", "--save", ""].map(str::to_owned));
        args.extend(["--appendonly", "no", "--dir"].map(str::to_owned));
        args.push(self.folder.seen(&self.program, ""));
        args.extend(self.args.clone());
        let process = Process::spawn(&self.program, &args);
        let ready = process.log.wait(READY, 1);
        self.process = ready.then_some(process);
        ready
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it, if it runs. What is not on disk is lost.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again on the same port.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs");
        assert!(self.try_start(), "the port was taken meanwhile");
    }

    /// Stops its process: connections stay, nothing answers.
    pub fn pause(&self) {
        self.running().signal("STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.running().signal("CONT");
    }

    /// Waits for the n-th line of its log with that text.
    pub fn wait_for_log(&self, text: &str, times: usize) {
        assert!(self.running().log.wait(text, times), "it ended");
    }

    fn running(&self) -> &Process {
        self.process.as_ref().expect("the server runs")
    }

    /// Its name in a cluster.
    fn id(&self) -> String {
        let id = self.ask(&["CLUSTER", "MYID"]);
        id.lines().nth(1).expect("a node has an id").to_owned()
    }

    /// Sends a command and returns the answer as it comes over the wire.
    pub fn ask(&self, command: &[&str]) -> String {
        ask(self.port, command)
    }

    /// Sends a command whose answer is a number.
    pub fn ask_number(&self, command: &[&str]) -> i64 {
        number(&self.ask(command))
    }
}

/// The number in an answer.
fn number(answer: &str) -> i64 {
    let number = answer.strip_prefix(':').map(str::trim_end);
    let number = number.and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no number: {answer:?}"))
}

/// Sends one command to a port of the loopback; the answer as it comes over the wire.
pub fn ask(port: u16, command: &[&str]) -> String {
    let question = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = format!("*{}\r\n", command.len());
        for word in command {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        while end_of_answer(&answer, 0).is_none() {
            let length = stream.read(&mut part)?;
            if length == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            answer.extend_from_slice(&part[..length]);
        }
        Ok(answer)
    };
    let answer = question().expect("the server answers");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Where the answer that begins at `from` ends, if it is whole.
fn end_of_answer(answer: &[u8], from: usize) -> Option<usize> {
    let length = answer
        .get(from..)?
        .windows(2)
        .position(|two| two == b"\r\n")?;
    let line = std::str::from_utf8(&answer[from..from + length]).ok()?;
    let mut end = from + length + 2;
    let (kind, number) = line.split_at_checked(1)?;
    let number = number.parse::<usize>().unwrap_or(0);
    match kind {
        "$" if line != "$-1" => end += number + 2,
        "*" => {
            for _ in 0..number {
                end = end_of_answer(answer, end)?;
            }
        }
        _ => {}
    }
    (end <= answer.len()).then_some(end)
}

/// A primary, a replica of it, and three sentinels that watch them under the name `main`.
#[derive(Debug)]
pub struct Sentinels {
    /// The server that is the primary at first.
    pub primary: RedisServer,
    /// The one that is its replica at first.
    pub replica: RedisServer,
    sentinels: Vec<RedisServer>,
}

impl Sentinels {
    /// Starts them; when it returns, the sentinels know of the replica and of each other, so that a
    /// failover can happen.
    pub fn start() -> Option<Self> {
        let primary = RedisServer::start()?;
        let port = primary.port.to_string();
        let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port])?;
        replica.wait_for_log(IN_STEP, 1);
        let sentinels: Vec<_> = (0..3).map_while(|_| sentinel(primary.port)).collect();
        for sentinel in &sentinels {
            sentinel.wait_for_log("+slave ", 1);
            sentinel.wait_for_log("+sentinel ", 2);
        }
        Some(Self {
            primary,
            replica,
            sentinels,
        })
    }

    /// `redis-sentinel://…/main`.
    pub fn url(&self) -> String {
        let sentinels = self.sentinels.iter();
        let addresses: Vec<_> = sentinels
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port))
            .collect();
        format!("redis-sentinel://{}/main", addresses.join(","))
    }

    /// Waits until the sentinels have made another server the primary.
    pub fn wait_for_failover(&self) {
        for sentinel in &self.sentinels {
            sentinel.wait_for_log("+switch-master main", 1);
        }
    }

    /// Makes the replica the primary while both live: the old one answers `READONLY` from then on.
    pub fn fail_over(&self) {
        let answer = self.sentinels[0].ask(&["SENTINEL", "FAILOVER", "main"]);
        assert_eq!(answer, "+OK\r\n");
        self.wait_for_failover();
    }
}

fn sentinel(primary: u16) -> Option<RedisServer> {
    let program = program()?;
    for _ in 0..ATTEMPTS {
        let folder = Folder::new(&program);
        let port = free_port();
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n"
        );
        std::fs::write(folder.0.join(SENTINEL), text).expect("the folder is ours");
        let args = [folder.seen(&program, SENTINEL), "--sentinel".to_owned()];
        let process = Process::spawn(&program, &args);
        if process.log.wait("+monitor master main", 1) {
            return Some(RedisServer {
                program,
                args: args.into(),
                port,
                process: Some(process),
                folder,
            });
        }
    }
    panic!("{program:?} starts no sentinel");
}

/// A node that knows no others, and its port for those.
fn cluster_node() -> Option<(RedisServer, u16)> {
    let bus = free_port();
    let node = RedisServer::start_with(&[
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus.to_string(),
        "--cluster-node-timeout",
        "2000",
        "--cluster-require-full-coverage",
        "no",
        "--cluster-config-file",
        &format!("nodes-{bus}.conf"),
    ])?;
    Some((node, bus))
}

/// A cluster.
#[derive(Debug)]
pub struct RedisCluster {
    /// Its primaries. The slots are shared out in order.
    pub nodes: Vec<RedisServer>,
    /// A replica of each, if there are any.
    pub replicas: Vec<RedisServer>,
}

const SLOTS: usize = 16_384;

impl RedisCluster {
    /// Starts them; when it returns, every node knows the whole cluster.
    pub fn start(primaries: usize) -> Option<Self> {
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for number in 0..primaries {
            let (node, bus) = cluster_node()?;
            let (from, to) = (
                SLOTS * number / primaries,
                SLOTS * (number + 1) / primaries - 1,
            );
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            node.ask(&[
                "CLUSTER",
                "ADDSLOTSRANGE",
                &from.to_string(),
                &to.to_string(),
            ]);
            buses.push(bus);
            nodes.push(node);
        }
        for (node, bus) in nodes.iter().zip(&buses).skip(1) {
            let (port, bus) = (node.port.to_string(), bus.to_string());
            nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let cluster = Self {
            nodes,
            replicas: Vec::new(),
        };
        cluster.wait_until(|info| info.contains(&format!("cluster_slots_ok:{SLOTS}")));
        Some(cluster)
    }

    /// The same with a replica of each primary, so that it can be replaced.
    pub fn start_with_replicas(primaries: usize) -> Option<Self> {
        let mut cluster = Self::start(primaries)?;
        for number in 0..primaries {
            let (replica, bus) = cluster_node()?;
            let (port, bus) = (replica.port.to_string(), bus.to_string());
            cluster.nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            cluster.replicas.push(replica);
            let known = format!("cluster_known_nodes:{}", primaries + number + 1);
            cluster.wait_until(|info| info.contains(&known));
        }
        for (primary, replica) in cluster.nodes.iter().zip(&cluster.replicas) {
            let id = primary.id();
            let answer = replica.ask(&["CLUSTER", "REPLICATE", &id]);
            assert_eq!(answer, "+OK\r\n");
            replica.wait_for_log(IN_STEP, 1);
        }
        Some(cluster)
    }

    /// Nodes tell each other what they know by gossip, and log nothing of it: they are asked.
    fn wait_until(&self, known: impl Fn(&str) -> bool) {
        let mut rounds = 0;
        let knows = |node: &RedisServer| {
            let info = node.ask(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && known(&info)
        };
        while !self.nodes.iter().chain(&self.replicas).all(knows) {
            rounds += 1;
            assert!(rounds < 600, "the nodes do not find each other");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// `redis-cluster://…` with all nodes.
    pub fn url(&self) -> String {
        let nodes = self.nodes.iter();
        let addresses: Vec<_> = nodes
            .map(|node| format!("127.0.0.1:{}", node.port))
            .collect();
        format!("redis-cluster://{}", addresses.join(","))
    }

    /// Gives an empty slot to another node, and every node knows.
    pub fn move_slot(&self, slot: u16, to: usize) {
        let id = self.nodes[to].id();
        let slot = slot.to_string();
        // The new owner first: a node that gave a slot away must know who has it.
        let first = std::iter::once(&self.nodes[to]);
        for node in first.chain(&self.nodes) {
            let answer = node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
            assert_eq!(answer, "+OK\r\n");
        }
    }
}
