//! An address becomes a listening socket, or an error that names it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

use crate::caps::Limits;
use crate::tls::{TlsError, TlsFiles};
use crate::workers::Workers;

/// Connections the kernel holds before they are accepted.
const BACKLOG: u32 = 1024;

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process has the port.
    #[error("address {address} is already in use")]
    Busy {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The address cannot be bound for another reason.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Certificate or key.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A socket that listens, not yet served. Peers can connect from now on and wait.
pub struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) local: SocketAddr,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limits: Limits,
    pub(crate) workers: Workers,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("local", &self.local)
            .field("tls", &self.tls.is_some())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Listener {
    /// Binds `address` (port 0 is any free port), with TLS where files are given. Must run inside
    /// a runtime.
    pub fn bind(
        address: SocketAddr,
        tls: Option<&TlsFiles>,
        limits: Limits,
    ) -> Result<Self, ListenError> {
        let tls = match tls {
            Some(files) => Some(TlsAcceptor::from(Arc::new(files.load()?))),
            None => None,
        };
        let bound = listen(address).and_then(|socket| Ok((socket.local_addr()?, socket)));
        let (local, socket) = bound.map_err(|source| {
            if source.kind() == io::ErrorKind::AddrInUse {
                ListenError::Busy { address }
            } else {
                ListenError::Bind { address, source }
            }
        })?;
        Ok(Self {
            socket,
            local,
            tls,
            limits,
            workers: Workers::default(),
        })
    }

    /// Takes over a socket that somebody else has bound.
    pub fn from_socket(socket: TcpListener, limits: Limits) -> io::Result<Self> {
        Ok(Self {
            local: socket.local_addr()?,
            socket,
            tls: None,
            limits,
            workers: Workers::default(),
        })
    }

    /// The same, with its connections served by `workers`.
    #[must_use]
    pub fn on(self, workers: Workers) -> Self {
        Self { workers, ..self }
    }

    /// The address, with the port that was chosen where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whether connections are encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // a restart must not wait for the connections of the process before it
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
