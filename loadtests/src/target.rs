//! Where the load goes: an `http` URL on a loopback address, and nothing else.
//!
//! A load generator that can be pointed at a stranger is a weapon; this one cannot.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use http::{HeaderValue, Uri};

/// A checked URL.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where to connect.
    pub address: SocketAddr,
    /// The `Host` header.
    pub host: HeaderValue,
    /// Path and query.
    pub path: Uri,
}

/// Why a URL was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It cannot be read.
    #[error("not a URL: {0}")]
    Unreadable(String),
    /// It is not plain HTTP.
    #[error("only http:// is measured")]
    Scheme,
    /// It does not name this machine.
    #[error("only loopback addresses are loaded, and `{0}` is none")]
    NotLoopback(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let uri: Uri = text
            .parse()
            .map_err(|_| TargetError::Unreadable(text.to_owned()))?;
        if uri.scheme_str() != Some("http") {
            return Err(TargetError::Scheme);
        }
        let authority = uri
            .authority()
            .ok_or_else(|| TargetError::Unreadable(text.to_owned()))?;
        let ip = loopback(authority.host())?;
        let host = HeaderValue::from_str(authority.as_str())
            .map_err(|_| TargetError::Unreadable(text.to_owned()))?;
        let path = uri
            .path_and_query()
            .map_or("/", http::uri::PathAndQuery::as_str);
        Ok(Self {
            address: SocketAddr::new(ip, authority.port_u16().unwrap_or(80)),
            host,
            path: path
                .parse()
                .map_err(|_| TargetError::Unreadable(text.to_owned()))?,
        })
    }
}

/// The address a host names, if it is one of this machine's own. Names other than `localhost` are
/// refused unresolved: what they mean is somebody else's decision.
fn loopback(host: &str) -> Result<IpAddr, TargetError> {
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => Ok(ip),
        Ok(_) | Err(_) => Err(TargetError::NotLoopback(host.to_owned())),
    }
}

/// A socket address to listen on, loopback only.
///
/// # Errors
/// Text that is no socket address, or one of another interface.
pub fn loopback_socket(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| format!("`{text}` is no ADDRESS:PORT"))?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(TargetError::NotLoopback(address.ip().to_string()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_urls_are_taken_with_port_path_and_host() {
        let target: Target = "http://127.0.0.1:8080/mcp/acme?x=1".parse().unwrap();
        assert_eq!(target.address.to_string(), "127.0.0.1:8080");
        assert_eq!(target.host, "127.0.0.1:8080");
        assert_eq!(target.path.to_string(), "/mcp/acme?x=1");
        let six: Target = "http://[::1]:9/".parse().unwrap();
        assert_eq!(six.address.to_string(), "[::1]:9");
        let name: Target = "http://localhost/mcp".parse().unwrap();
        assert_eq!(name.address.to_string(), "127.0.0.1:80");
        assert!("http://127.8.9.1:1".parse::<Target>().is_ok());
    }

    #[test]
    fn every_other_host_is_refused_unresolved() {
        for url in [
            "http://192.0.2.1/mcp",
            "http://10.0.0.1:80/",
            "http://0.0.0.0:80/",
            "http://[::]:80/",
            "http://[::ffff:192.0.2.1]/",
            "http://localhost.example.com/",
            "http://127.0.0.1.example.com/",
            "http://user@192.0.2.1/",
        ] {
            let refused = url.parse::<Target>().unwrap_err();
            assert!(
                matches!(refused, TargetError::NotLoopback(_)),
                "{url}: {refused}"
            );
        }
    }

    #[test]
    fn other_schemes_and_half_urls_are_refused() {
        assert_eq!(
            "https://127.0.0.1/".parse::<Target>().unwrap_err(),
            TargetError::Scheme
        );
        assert_eq!("/mcp".parse::<Target>().unwrap_err(), TargetError::Scheme);
        assert!("http://".parse::<Target>().is_err());
    }

    #[test]
    fn listening_is_for_loopback_too() {
        assert!(loopback_socket("127.0.0.1:0").is_ok());
        assert!(loopback_socket("[::1]:0").is_ok());
        assert!(
            loopback_socket("0.0.0.0:0")
                .unwrap_err()
                .contains("loopback")
        );
        assert!(loopback_socket("localhost").is_err());
    }
}
