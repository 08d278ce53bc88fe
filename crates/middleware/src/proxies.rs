//! Whose address a request comes from, by the rules of `listen.proxies`: what a trusted proxy says
//! counts, what anybody else says does not.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderMap;
use http::header::FORWARDED;
use ipnet::IpNet;

/// Which proxies are trusted, and the header they write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// Their networks; empty: the peer is the client.
    pub trusted: Vec<IpNet>,
    /// The header they write.
    pub header: ProxyHeader,
}

/// The header in which proxies name the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl Proxies {
    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted
            .iter()
            .any(|network| network.contains(&address))
    }
}

/// The client's address: the right-most one that is not a trusted proxy's. An entry that is not an
/// address ends the search: what stands left of it was written by somebody nobody vouches for.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, proxies: &Proxies) -> IpAddr {
    let peer = peer.to_canonical();
    let mut client = peer;
    if !proxies.trusts(client) {
        return client;
    }
    for entry in entries(headers, proxies.header).iter().rev() {
        let Some(address) = entry else { break };
        client = *address;
        if !proxies.trusts(client) {
            break;
        }
    }
    client
}

/// The addresses the header names, left to right; absent where an entry is not an address.
fn entries(headers: &HeaderMap, header: ProxyHeader) -> Vec<Option<IpAddr>> {
    let values = match header {
        ProxyHeader::XForwardedFor => headers.get_all("x-forwarded-for"),
        ProxyHeader::Forwarded => headers.get_all(FORWARDED),
    };
    let texts = values
        .iter()
        .map(|value| value.to_str().unwrap_or_default());
    let entries = texts.flat_map(|text| text.split(','));
    entries
        .map(|entry| match header {
            ProxyHeader::XForwardedFor => node(entry.trim()),
            ProxyHeader::Forwarded => forwarded_for(entry),
        })
        .collect()
}

fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    let value = value.trim();
    let quoted = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'));
    node(quoted.unwrap_or(value))
}

/// An address with or without a port.
fn node(text: &str) -> Option<IpAddr> {
    let bracketed = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let address = match bracketed {
        Some(text) => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text
            .parse()
            .ok()
            .or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip())),
    };
    address.map(|address: IpAddr| address.to_canonical())
}

/// What limits count by: the address, or for IPv6 its /64, since that is what one customer gets.
pub fn limit_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn client(peer: &str, name: &str, values: &[&str], header: ProxyHeader) -> String {
        let proxies = Proxies {
            trusted: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            header,
        };
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        client_address(peer.parse().unwrap(), &headers, &proxies).to_string()
    }

    /// T22: what an untrusted peer claims is nothing.
    #[test]
    fn t22_only_trusted_proxies_are_believed() {
        let xff = |peer, values: &[&str]| {
            client(peer, "x-forwarded-for", values, ProxyHeader::XForwardedFor)
        };
        assert_eq!(xff("192.0.2.9", &["198.51.100.1"]), "192.0.2.9");
        assert_eq!(xff("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(xff("10.0.0.1", &["1.1.1.1, 198.51.100.1"]), "198.51.100.1");
        assert_eq!(
            xff("10.0.0.1", &["1.1.1.1, 198.51.100.1", "10.2.2.2"]),
            "198.51.100.1"
        );
        assert_eq!(xff("10.0.0.1", &["10.9.9.9"]), "10.9.9.9");
        assert_eq!(xff("10.0.0.1", &["198.51.100.1, junk"]), "10.0.0.1");
        assert_eq!(xff("10.0.0.1", &["junk, 10.3.3.3"]), "10.3.3.3");
        assert_eq!(xff("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(xff("::ffff:10.0.0.1", &["2001:db8::1"]), "2001:db8::1");
        assert_eq!(xff("10.0.0.1", &["198.51.100.1:4711"]), "198.51.100.1");
        let other = client(
            "10.0.0.1",
            "forwarded",
            &["for=198.51.100.1"],
            ProxyHeader::XForwardedFor,
        );
        assert_eq!(other, "10.0.0.1", "only the configured header counts");
    }

    #[test]
    fn the_forwarded_header_is_read_by_its_grammar() {
        let forwarded =
            |values: &[&str]| client("10.0.0.1", "forwarded", values, ProxyHeader::Forwarded);
        assert_eq!(
            forwarded(&["for=192.0.2.43, for=198.51.100.17;by=x"]),
            "198.51.100.17"
        );
        assert_eq!(
            forwarded(&["proto=https;For=\"[2001:db8::1]:4711\""]),
            "2001:db8::1"
        );
        assert_eq!(forwarded(&["for=\"192.0.2.43:47011\""]), "192.0.2.43");
        assert_eq!(forwarded(&["for=unknown"]), "10.0.0.1");
        assert_eq!(forwarded(&["for=_hidden, for=10.1.1.1"]), "10.1.1.1");
    }

    #[test]
    fn ipv6_is_counted_by_its_64() {
        let key = |text: &str| limit_key(text.parse().unwrap()).to_string();
        assert_eq!(key("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(key("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(key("192.0.2.1"), "192.0.2.1");
    }
}
