//! The accept loop: it ends when it is told to, never because one accept failed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::bind::Listener;

/// Longest TLS handshake (T24).
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long to wait before accepting again when the system is out of something; doubled while it
/// lasts.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// When a silent TCP connection is probed, how often, and after how many lost probes it is dead:
/// streams may be silent for long, and a peer that is gone must not hold one.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

impl Listener {
    /// The next connection, however long accepting fails meanwhile.
    pub(crate) async fn next(&self) -> (TcpStream, SocketAddr) {
        let mut wait = BACK_OFF.0;
        loop {
            match self.socket.accept().await {
                Ok((stream, peer)) => {
                    tune(&stream);
                    return (stream, peer);
                }
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    tracing::warn!(
                        address = %self.local,
                        error = %error,
                        "cannot accept connections, trying again"
                    );
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(BACK_OFF.1);
                }
            }
        }
    }
}

/// The connection was gone before it was accepted; the next one may be fine.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn tune(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_EVERY)
        .with_retries(PROBES);
    let tuned = stream
        .set_nodelay(true)
        .and_then(|()| SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = tuned {
        tracing::debug!(error = %error, "a connection keeps the system's socket options");
    }
}

/// The TLS handshake, or the reason why there is none.
pub(crate) async fn handshake(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(result) => result,
        Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
    }
}
