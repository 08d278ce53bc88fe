//! One way through the gateway: clients that make generated calls, the upstream that answers them,
//! and a ledger in which both sides write down what differs from what it should be.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use vestibule_testkit::binaries::binary;
use vestibule_testkit::recording::{Answer, legacy_basics, modern_basics};
use vestibule_testkit::scripted_stdio::Script;
use vestibule_testkit::{RawClient, RawRequest, RawResponse, RecordingUpstream, sse};

use super::compare::{compare, without_line_ends};
use super::exchange::{Era, Exchange};
use crate::harness::Gateway;
use crate::talk::{SESSIONS, Session, at, modern_text, open_tenant};

/// Clients that call at the same time, each on a connection, and in a session, of its own.
const CLIENTS: usize = 6;
const TARGET: &str = "/mcp/t/up";

/// How messages travel, on both sides of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transport {
    /// JSON bodies.
    Json,
    /// Answers as events, to the gateway and from it.
    Events,
    /// Lines of a process; JSON bodies to the client.
    Stdio,
}

/// What went over the wires.
#[derive(Default)]
pub(super) struct Ledger {
    /// What the upstream got, by exchange, and what the client got.
    pub(super) calls: BTreeMap<u64, String>,
    pub(super) answers: BTreeMap<u64, String>,
    faults: Vec<String>,
    own_ids: HashSet<String>,
}

/// The exchanges of one way.
pub(super) struct World {
    era: Era,
    transport: Transport,
    pub(super) exchanges: BTreeMap<u64, Exchange>,
    pub(super) ledger: Mutex<Ledger>,
}

impl World {
    pub(super) fn new(era: Era, transport: Transport, numbers: std::ops::Range<u64>) -> Arc<Self> {
        let exchanges = numbers.map(|number| (number, Exchange::new(number, era)));
        Arc::new(Self {
            era,
            transport,
            exchanges: exchanges.collect(),
            ledger: Mutex::default(),
        })
    }

    /// Makes every exchange; afterwards the ledger is complete and without a fault.
    pub(super) async fn run(self: &Arc<Self>) {
        let (how, _kept) = self.upstream().await;
        let gateway = Gateway::with("limits: { address: off }", &open_tenant(&[("up", how)], ""));
        let numbers: Vec<u64> = self.exchanges.keys().copied().collect();
        let share = numbers.len().div_ceil(CLIENTS);
        let clients = numbers
            .chunks(share)
            .map(|share| self.client(&gateway, share));
        join_all(clients).await;
        let ledger = self.ledger.lock().unwrap();
        let faults: Vec<&String> = ledger.faults.iter().take(3).collect();
        assert!(
            ledger.faults.is_empty(),
            "{}: {faults:#?}",
            ledger.faults.len()
        );
        assert_eq!(ledger.calls.len(), numbers.len(), "calls at the upstream");
        assert_eq!(ledger.answers.len(), numbers.len(), "answers at the client");
        assert_eq!(ledger.own_ids.len(), numbers.len(), "FRM-25: no id twice");
    }

    /// An expectation as this transport leaves it: lines and events lose CR and LF between tokens
    /// (SSE-01, STD-01), bodies nothing.
    pub(super) fn expected(&self, text: &str, to_client: bool) -> String {
        let lines = match self.transport {
            Transport::Json => false,
            Transport::Events => to_client,
            Transport::Stdio => true,
        };
        if lines {
            return without_line_ends(text);
        }
        text.to_owned()
    }

    // === the client's side ===

    async fn client(&self, gateway: &Gateway, numbers: &[u64]) {
        let session = match self.era {
            Era::Stateless => None,
            Era::Sessions => Some(Session::open(gateway, TARGET, SESSIONS[0]).await),
        };
        let mut connection = gateway.connect().await;
        for number in numbers {
            let exchange = &self.exchanges[number];
            let call = exchange.sent();
            let request = match &session {
                None => modern_text(TARGET, "tools/call", Some(exchange.name), call),
                Some(session) => session.text(call),
            };
            let got = self.ask(&mut connection, request).await;
            self.returned(*number, got);
        }
    }

    async fn ask(&self, connection: &mut RawClient, request: RawRequest) -> String {
        let events = self.transport == Transport::Events;
        let request = match events {
            true => request
                .without("Accept")
                .field("Accept", "text/event-stream"),
            false => request,
        };
        let answer = connection.ask(&request).await.unwrap();
        assert_eq!(answer.status, 200, "{:?} to {request:?}", answer.body);
        let kind = answer.head.field("content-type").unwrap_or_default();
        assert_eq!(kind.starts_with("text/event-stream"), events, "{kind}");
        match events {
            true => last_event(&answer),
            false => String::from_utf8(answer.body.to_vec()).unwrap(),
        }
    }

    fn returned(&self, number: u64, got: String) {
        let expected = self.expected(&self.exchanges[&number].returned(None), true);
        let mut ledger = self.ledger.lock().unwrap();
        if let Err(fault) = compare(&expected, &got) {
            ledger.faults.push(format!("answer {number}: {fault}"));
        }
        ledger.answers.insert(number, got);
    }

    // === the upstream's side ===

    /// How the upstream is reached, and what keeps it running.
    async fn upstream(self: &Arc<Self>) -> (String, Box<dyn std::any::Any>) {
        if self.transport == Transport::Stdio {
            let (how, script) = self.process().await;
            return (how, Box::new(script));
        }
        let world = Arc::clone(self);
        let capabilities = json!({ "tools": {} });
        let peer = RecordingUpstream::start(move |request| {
            let call = String::from_utf8_lossy(&request.body);
            if let Some(answer) = world.arrived(&call) {
                return world.dressed(&answer);
            }
            let basics = match world.era {
                Era::Stateless => modern_basics(request, &capabilities),
                Era::Sessions => legacy_basics(request, &capabilities),
            };
            basics.unwrap_or_else(|| Answer::empty(404))
        });
        let peer = peer.await.unwrap();
        (at(&peer.url()), Box::new(peer))
    }

    fn dressed(&self, answer: &str) -> Answer {
        let (kind, body) = match self.transport {
            Transport::Events => ("text/event-stream", event(answer)),
            Transport::Json | Transport::Stdio => ("application/json", answer.to_owned()),
        };
        Answer::Full {
            status: 200,
            fields: vec![("content-type".to_owned(), kind.to_owned())],
            body: body.into(),
        }
    }

    /// Notes a call; gives its answer. None when it is no call of ours.
    fn arrived(&self, call: &str) -> Option<String> {
        let number = Exchange::number_of(call)?;
        let exchange = self.exchanges.get(&number)?;
        let expected = self.expected(&exchange.forwarded(None), false);
        let mut ledger = self.ledger.lock().unwrap();
        let own = match compare(&expected, call) {
            Ok(own) => own,
            Err(fault) => {
                ledger.faults.push(format!("call {number}: {fault}"));
                return None;
            }
        };
        let answer = exchange.answered(&own);
        ledger.own_ids.insert(own);
        let again = ledger.calls.insert(number, call.to_owned());
        if again.is_some() {
            ledger.faults.push(format!("call {number} came twice"));
        }
        Some(answer)
    }

    /// An upstream that is a process, whose standard streams end here.
    async fn process(self: &Arc<Self>) -> (String, Script) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let script = Script::new(&[json!({ "relay": address.to_string() })]).unwrap();
        let world = Arc::clone(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&world).lines(stream));
            }
        });
        let program = tokio::task::spawn_blocking(|| binary("scripted-stdio").unwrap());
        let mut command = vec![program.await.unwrap().display().to_string()];
        command.extend(script.arguments());
        (format!("command: {}", json!(command)), script)
    }

    async fn lines(self: Arc<Self>, stream: TcpStream) {
        let (input, mut output) = stream.into_split();
        let mut lines = BufReader::new(input).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let answer = match self.arrived(&line) {
                Some(answer) => Some(without_line_ends(&answer)),
                None => self.greeted(&line),
            };
            if let Some(answer) = answer {
                let sent = output.write_all(format!("{answer}\n").as_bytes()).await;
                if sent.is_err() {
                    return;
                }
            }
        }
    }

    /// The answer of a process to what comes before calls.
    fn greeted(&self, line: &str) -> Option<String> {
        let message: Value = serde_json::from_str(line).ok()?;
        let id = message.get("id")?;
        let (method, capabilities) = (message["method"].as_str()?, json!({ "tools": {} }));
        let result = match (self.era, method) {
            (Era::Stateless, "server/discover") => json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities,
                "ttlMs": 0,
                "cacheScope": "private",
            }),
            (Era::Sessions, "initialize") => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": { "name": "process", "version": "1" },
            }),
            _ => {
                let error = json!({ "code": -32601, "message": "Method not found" });
                return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
            }
        };
        Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
    }
}

/// The data of the one event that has some.
fn last_event(answer: &RawResponse) -> String {
    let data = answer.events().into_iter().filter_map(|event| event.data);
    let mut data: Vec<String> = data.filter(|data| !data.is_empty()).collect();
    assert_eq!(data.len(), 1, "one answer: {data:?}");
    data.remove(0)
}

/// A message as an event, its line ends as lines of data.
fn event(message: &str) -> String {
    let message = message.replace("\r\n", "\n").replace('\r', "\n");
    let last = if message.ends_with('\n') { "\n" } else { "" };
    sse::encode(None, &format!("{message}{last}"))
}
