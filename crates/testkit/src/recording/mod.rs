//! An upstream that records every request as it came over the wire and
//! answers by a script.
//!
//! It reads the connection itself instead of using an HTTP library, so that
//! tests see fields in their order and case, and answers can be as wrong as a
//! test needs them. HTTP/1.1 only.

mod answer;
mod basics;
mod serve;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use anyhow::Context;
use bytes::Bytes;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};

pub use answer::{Answer, AnswerStream};
pub use basics::{legacy_basics, modern_basics};

use crate::{PATIENCE, wire::Head};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its method.
    pub method: String,
    /// Its target: path and query.
    pub target: String,
    /// Its request line and fields, in wire order.
    pub head: Head,
    /// Its body, unchunked.
    pub body: Bytes,
    /// The connection it came on, counted from 0.
    pub connection: usize,
}

impl Recorded {
    /// The first value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// The body as JSON; null when it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The JSON-RPC method; empty when there is none.
    #[must_use]
    pub fn rpc_method(&self) -> String {
        self.json()["method"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The JSON-RPC id; null when there is none.
    #[must_use]
    pub fn rpc_id(&self) -> Value {
        self.json()["id"].clone()
    }
}

/// What the test and the serving tasks share.
struct Log {
    requests: Mutex<Vec<Recorded>>,
    count: watch::Sender<usize>,
    abandoned: watch::Sender<usize>,
    script: Box<dyn Fn(&Recorded) -> Answer + Send + Sync>,
}

/// The running upstream; it stops when dropped.
pub struct RecordingUpstream {
    address: SocketAddr,
    log: Arc<Log>,
    accepting: JoinHandle<()>,
}

impl std::fmt::Debug for RecordingUpstream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RecordingUpstream")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl RecordingUpstream {
    /// Starts on a free loopback port. `script` answers each request; it may
    /// hand [`AnswerStream`]s to the test through a channel of its own.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn start(
        script: impl Fn(&Recorded) -> Answer + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("no free port")?;
        let address = listener
            .local_addr()
            .context("a listening socket has an address")?;
        let log = Arc::new(Log {
            requests: Mutex::default(),
            count: watch::channel(0).0,
            abandoned: watch::channel(0).0,
            script: Box::new(script),
        });
        let accepting = tokio::spawn(serve::accept(listener, Arc::clone(&log)));
        Ok(Self {
            address,
            log,
            accepting,
        })
    }

    /// Starts with answers to be given in order; what comes after them gets a 500.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub async fn with_answers(answers: impl IntoIterator<Item = Answer>) -> anyhow::Result<Self> {
        let answers = Mutex::new(
            answers
                .into_iter()
                .collect::<std::collections::VecDeque<_>>(),
        );
        Self::start(move |_| {
            let next = answers.lock().expect("no holder panics").pop_front();
            next.unwrap_or_else(|| Answer::text(500, "the script has no more answers"))
        })
        .await
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its MCP endpoint. Every path is answered by the same script.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// All requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.log.requests.lock().expect("no holder panics").clone()
    }

    /// The requests so far of one JSON-RPC method.
    #[must_use]
    pub fn calls(&self, method: &str) -> Vec<Recorded> {
        self.requests()
            .into_iter()
            .filter(|request| request.rpc_method() == method)
            .collect()
    }

    /// Waits for the request with this index, counted from 0.
    ///
    /// # Panics
    ///
    /// It did not come in time.
    pub async fn nth(&self, index: usize) -> Recorded {
        let mut count = self.log.count.subscribe();
        if timeout(PATIENCE, count.wait_for(|count| *count > index))
            .await
            .is_err()
        {
            panic!(
                "waited too long for request {index}; there were {:#?}",
                self.requests()
            );
        }
        let requests = self.log.requests.lock().expect("no holder panics");
        requests.get(index).expect("it has come").clone()
    }

    /// Waits for the first request of one JSON-RPC method.
    ///
    /// # Panics
    ///
    /// It did not come in time.
    pub async fn call(&self, method: &str) -> Recorded {
        let mut count = self.log.count.subscribe();
        let came = count.wait_for(|_| !self.calls(method).is_empty());
        if timeout(PATIENCE, came).await.is_err() {
            panic!(
                "waited too long for {method}; there were {:#?}",
                self.requests()
            );
        }
        self.calls(method).swap_remove(0)
    }

    /// Waits until clients have closed `count` connections whose answer was
    /// not finished: what cancelling looks like from here.
    ///
    /// # Panics
    ///
    /// They did not in time.
    pub async fn abandoned(&self, count: usize) {
        let mut abandoned = self.log.abandoned.subscribe();
        if timeout(
            PATIENCE,
            abandoned.wait_for(|abandoned| *abandoned >= count),
        )
        .await
        .is_err()
        {
            panic!(
                "waited too long for {count} abandoned answers; there were {}",
                *abandoned.borrow()
            );
        }
    }
}

impl Drop for RecordingUpstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
