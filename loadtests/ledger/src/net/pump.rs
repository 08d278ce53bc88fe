//! The bytes of one connection, with its fault.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::sleep;

use super::faults::Fault;

const PIECE: usize = 16 * 1024;
/// Between two drips.
const DRIP: Duration = Duration::from_millis(2);
/// How long the rest of a half-closed connection stays.
const REST: Duration = Duration::from_secs(10);

/// Carries both directions until either ends or the fault strikes.
pub(super) async fn carry(client: TcpStream, replica: TcpStream, fault: Option<Fault>) {
    // a socket that cannot be set so is about to fail anyway
    let _failed = (client.set_nodelay(true), replica.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_replica, to_replica) = replica.into_split();
    let up = tokio::spawn(forward(from_client, to_replica));
    let mut down = Down {
        from: from_replica,
        to: to_client,
        fault,
    };
    let strike = async {
        match fault.and_then(Fault::after) {
            Some(after) => sleep(after).await,
            None => std::future::pending().await,
        }
    };
    let struck = tokio::select! {
        _ended = down.forward() => false,
        () = strike => true,
    };
    match fault {
        Some(Fault::Reset(_)) if struck => {
            // without it the end is an ordinary one, which is a fault as well
            let _unset = down.to.as_ref().set_zero_linger();
        }
        Some(Fault::HalfClose(_)) if struck => {
            let _gone = down.to.shutdown().await;
            let mut rest = Vec::new();
            let _over = tokio::time::timeout(REST, down.from.read_to_end(&mut rest)).await;
        }
        _ => {}
    }
    // the way up goes with it: what the client still sends meets a closed connection
    up.abort();
    let _ended = up.await;
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await?;
        let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else {
            return to.shutdown().await;
        };
        to.write_all(read).await?;
    }
}

struct Down {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    fault: Option<Fault>,
}

impl Down {
    async fn forward(&mut self) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            let read = self.from.read(&mut piece).await?;
            let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else {
                return self.to.shutdown().await;
            };
            match self.fault {
                Some(Fault::Latency(late)) => {
                    sleep(late).await;
                    self.to.write_all(read).await?;
                }
                Some(Fault::Drip(bytes)) => {
                    for drop in read.chunks(bytes.max(1)) {
                        self.to.write_all(drop).await?;
                        sleep(DRIP).await;
                    }
                }
                Some(Fault::Cut(_) | Fault::Reset(_) | Fault::HalfClose(_)) | None => {
                    self.to.write_all(read).await?;
                }
            }
        }
    }
}
