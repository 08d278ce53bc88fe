//! Round-robin over the replicas that are ready, as a Service of Kubernetes does it: readiness is
//! asked for, a refused connection goes to the next one.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::faults::Weather;
use super::pump;
use crate::history::Seat;

/// How long a replica may take to accept.
const ACCEPTS_WITHIN: Duration = Duration::from_millis(300);
/// How long a client waits at the door while no replica is there.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// One replica's life and address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) seat: Seat,
    pub(crate) address: SocketAddr,
}

#[derive(Debug, Default)]
struct State {
    /// Who is ready.
    ready: Vec<Side>,
    /// Where connections went, by the client's address.
    routes: HashMap<SocketAddr, Seat>,
    wire: BTreeMap<&'static str, u64>,
}

/// The balancer.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    state: Mutex<State>,
    turn: AtomicUsize,
    connections: AtomicU64,
    /// Connections that a ready replica refused, and those that found none.
    refused: AtomicU64,
    unserved: AtomicU64,
}

impl Balancer {
    /// A door to it, with weather of its own. It stays open until the task is aborted.
    ///
    /// # Errors
    /// No free port.
    pub(crate) async fn door(
        self: &Arc<Self>,
        weather: Option<Weather>,
    ) -> io::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let balancer = Arc::clone(self);
        let open = tokio::spawn(async move {
            while let Ok((client, peer)) = listener.accept().await {
                let balancer = Arc::clone(&balancer);
                tokio::spawn(async move { balancer.serve(client, peer, weather).await });
            }
        });
        Ok((address, open))
    }

    /// Who may be chosen from now on.
    pub(crate) fn set_ready(&self, side: Side, ready: bool) {
        let mut state = self.lock();
        let before = state.ready.iter().position(|other| *other == side);
        match before {
            None if ready => {
                let replica = side.seat.replica;
                state.ready.retain(|other| other.seat.replica != replica);
                state.ready.push(side);
            }
            Some(at) if !ready => {
                state.ready.remove(at);
            }
            _ => {}
        }
    }

    /// Where the connection from this address went.
    #[must_use]
    pub(crate) fn route(&self, client: SocketAddr) -> Option<Seat> {
        self.lock().routes.get(&client).copied()
    }

    /// Connections that found no replica, and those that one refused although it was ready.
    #[must_use]
    pub(crate) fn turned_away(&self) -> u64 {
        self.unserved.load(Ordering::Relaxed) + self.refused.load(Ordering::Relaxed)
    }

    /// Faults so far, by name.
    #[must_use]
    pub(crate) fn wire(&self) -> BTreeMap<&'static str, u64> {
        self.lock().wire.clone()
    }

    async fn serve(&self, client: TcpStream, peer: SocketAddr, weather: Option<Weather>) {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let Some((seat, replica)) = self.connect().await else {
            self.unserved.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let fault = weather.and_then(|weather| weather.of(number));
        {
            let mut state = self.lock();
            state.routes.insert(peer, seat);
            if let Some(fault) = fault {
                *state.wire.entry(fault.as_str()).or_default() += 1;
            }
        }
        pump::carry(client, replica, fault).await;
    }

    async fn connect(&self) -> Option<(Seat, TcpStream)> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let Some(side) = self.next() else {
                sleep(PAUSE).await;
                continue;
            };
            match timeout(ACCEPTS_WITHIN, TcpStream::connect(side.address)).await {
                Ok(Ok(replica)) => return Some((side.seat, replica)),
                Ok(Err(_)) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    self.set_ready(side, false);
                }
                Err(_silent) => {}
            }
        }
        None
    }

    fn next(&self) -> Option<Side> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let state = self.lock();
        let index = turn.checked_rem(state.ready.len())?;
        state.ready.get(index).copied()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// A replica that says its name to everybody.
    async fn replica(number: usize) -> Side {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream
                    .write_all(number.to_string().as_bytes())
                    .await
                    .unwrap();
            }
        });
        let seat = Seat {
            replica: number,
            life: 0,
        };
        Side { seat, address }
    }

    async fn said(door: SocketAddr) -> String {
        let mut text = String::new();
        let mut stream = TcpStream::connect(door).await.unwrap();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn it_goes_round_and_passes_over_who_refuses() {
        let balancer = Arc::new(Balancer::default());
        let (door, open) = balancer.door(None).await.unwrap();
        let (one, two) = (replica(1).await, replica(2).await);
        balancer.set_ready(one, true);
        balancer.set_ready(two, true);
        let mut seen = vec![said(door).await, said(door).await];
        seen.sort();
        assert_eq!(seen, ["1", "2"]);
        // a port that nobody listens on any more
        let gone = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let dead = Side {
            address: gone.local_addr().unwrap(),
            ..two
        };
        drop(gone);
        balancer.set_ready(two, false);
        balancer.set_ready(dead, true);
        for _ in 0..3 {
            assert_eq!(said(door).await, "1");
        }
        assert_eq!(balancer.turned_away(), 1);
        open.abort();
    }
}
