//! One replica through all its lives.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Places;
use super::process::Process;
use crate::history::Seat;
use crate::net::{Balancer, Side};

/// Between two questions whether it is ready.
const EVERY: Duration = Duration::from_millis(100);
/// A replica that does not answer for so long is not ready.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);

/// A replica.
#[derive(Debug)]
pub(crate) struct Gateway {
    places: Places,
    configuration: PathBuf,
    environment: HashMap<&'static str, String>,
    balancer: Arc<Balancer>,
    seat: Seat,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    process: Process,
    side: Side,
    watching: JoinHandle<()>,
}

impl Gateway {
    /// The replica of that number, not yet started.
    #[must_use]
    pub(crate) fn new(
        places: &Places,
        configuration: PathBuf,
        mutation: Option<&str>,
        balancer: &Arc<Balancer>,
        replica: usize,
    ) -> Self {
        let mut environment = HashMap::new();
        environment.insert("VESTIBULE_LOG", "info,access=off".to_owned());
        if let Some(mutation) = mutation {
            environment.insert("VESTIBULE_MUTATION", mutation.to_owned());
        }
        Self {
            places: places.clone(),
            configuration,
            environment,
            balancer: Arc::clone(balancer),
            seat: Seat { replica, life: 0 },
            running: None,
        }
    }

    /// Who it is now.
    #[must_use]
    pub(crate) fn seat(&self) -> Seat {
        self.seat
    }

    /// Starts its next life; returns when it serves.
    ///
    /// # Errors
    /// It does not.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let configuration = self.configuration.display().to_string();
        let arguments = ["serve".to_owned(), "--config".to_owned(), configuration];
        let log = format!("gateway-{}.log", self.seat.replica);
        let log = self.places.folder.join(log);
        let process = Process::start(&self.places.gateway, &arguments, &self.environment, &log)?;
        let data = address(&process, "serving MCP").await?;
        let admin = address(&process, "serving health and metrics").await?;
        let side = Side {
            seat: self.seat,
            address: data,
        };
        let watching = tokio::spawn(watch(Arc::clone(&self.balancer), side, admin));
        self.running = Some(Running {
            process,
            side,
            watching,
        });
        Ok(())
    }

    /// `kill -9`; the next start is another life.
    pub(crate) async fn kill(&mut self) {
        if let Some(running) = self.leave() {
            running.process.kill().await;
        }
        self.seat.life += 1;
    }

    /// SIGTERM, and its end; whether that was a good one.
    pub(crate) async fn terminate(&mut self, within: Duration) -> bool {
        let Some(mut running) = self.running.take() else {
            return false;
        };
        // readiness says by itself that nobody is to be sent here
        running.process.signal(Signal::TERM);
        let well = running.process.ended(within).await;
        running.watching.abort();
        self.balancer.set_ready(running.side, false);
        self.seat.life += 1;
        well
    }

    /// SIGSTOP or SIGCONT.
    pub(crate) fn pause(&self, stop: bool) {
        let signal = if stop { Signal::STOP } else { Signal::CONT };
        if let Some(running) = &self.running {
            running.process.signal(signal);
        }
    }

    fn leave(&mut self) -> Option<Running> {
        let running = self.running.take()?;
        running.watching.abort();
        self.balancer.set_ready(running.side, false);
        Some(running)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The address in the line that tells it.
async fn address(process: &Process, line: &str) -> anyhow::Result<SocketAddr> {
    let line = process.line(line).await.context("a gateway")?;
    let said: Value = serde_json::from_str(&line)?;
    let address = said["address"].as_str().context("no address")?;
    Ok(address.parse()?)
}

/// Keeps the balancer told whether a replica is ready.
async fn watch(balancer: Arc<Balancer>, side: Side, admin: SocketAddr) {
    loop {
        let ready = timeout(ANSWERS_WITHIN, is_ready(admin)).await;
        balancer.set_ready(side, ready.unwrap_or(false));
        sleep(EVERY).await;
    }
}

async fn is_ready(admin: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(admin).await?;
        let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        Ok::<_, std::io::Error>(head)
    };
    asked.await.is_ok_and(|head| head == *b"HTTP/1.1 200")
}
