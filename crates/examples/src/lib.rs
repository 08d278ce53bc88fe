//! Three small MCP servers, written by hand without an SDK. The demo puts the gateway in front of
//! them, and they show what a correct server of each kind looks like:
//!
//! - [`notes`]: revision 2025-11-25 over Streamable HTTP, with sessions;
//! - [`clock`]: revision 2026-07-28, stateless;
//! - [`files`]: revision 2025-11-25 over stdin and stdout.
//!
//! They keep everything in memory, listen where they are told to and know nothing of the gateway.

pub mod clock;
pub mod files;
mod http;
pub mod notes;
mod rpc;
#[cfg(test)]
mod testing;

pub use clock::serve_clock;
pub use files::run_files;
pub use notes::serve_notes;

/// A loopback port of the system's choice, for [`serve_notes`] and [`serve_clock`].
///
/// # Errors
/// No port is free.
pub async fn any_port() -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await
}
