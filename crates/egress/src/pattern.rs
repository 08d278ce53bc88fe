//! What an entry of an egress list means: a network, or a host name with an optional leading `*.`.

use std::net::IpAddr;

use ipnet::IpNet;

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    Network(IpNet),
    /// Exactly this name.
    Name(String),
    /// Every name below this one, at any depth.
    Below(String),
    /// Every name.
    AnyName,
}

/// An entry of an egress list that is neither a network nor a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither an address, a network (10.0.0.0/8) nor a host name (a.example, *.example)"
)]
pub struct InvalidPattern(String);

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidPattern> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self::Network(network.trunc()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(IpNet::from(address)));
        }
        if text == "*" {
            return Ok(Self::AnyName);
        }
        let invalid = || InvalidPattern(text.chars().take(80).collect());
        let (below, name) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        // the same parser that reads URLs, so that both sides are written alike
        match url::Host::parse(name) {
            Ok(url::Host::Domain(name)) if !name.contains('*') => {
                let name = plain(&name);
                Ok(if below {
                    Self::Below(name)
                } else {
                    Self::Name(name)
                })
            }
            Ok(_) | Err(_) => Err(invalid()),
        }
    }

    /// Whether the (plain) name is meant.
    pub(crate) fn matches_name(&self, name: &str) -> bool {
        match self {
            Pattern::Network(_) => false,
            Pattern::Name(own) => own == name,
            Pattern::Below(own) => name
                .strip_suffix(own.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            Pattern::AnyName => true,
        }
    }

    /// Whether the address is meant.
    pub(crate) fn matches_address(&self, address: IpAddr) -> bool {
        match self {
            Pattern::Network(network) => network.contains(&address),
            Pattern::Name(_) | Pattern::Below(_) | Pattern::AnyName => false,
        }
    }

    pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Self>, InvalidPattern> {
        texts.iter().map(|text| Self::parse(text)).collect()
    }
}

/// A name as it is compared: lower case, without the dot of the root.
pub(crate) fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_cover_every_depth_below_and_not_the_name_itself() {
        let pattern = Pattern::parse("*.Mcp.svc.cluster.local").unwrap();
        assert!(pattern.matches_name("docs.mcp.svc.cluster.local"));
        assert!(pattern.matches_name("a.docs.mcp.svc.cluster.local"));
        for other in [
            "mcp.svc.cluster.local",
            ".mcp.svc.cluster.local",
            "evilmcp.svc.cluster.local",
        ] {
            assert!(!pattern.matches_name(other), "{other}");
        }
    }

    #[test]
    fn entries_that_mean_nothing_are_refused() {
        for bad in [
            "",
            "a b",
            "*.*.example",
            "10.0.0.0/40",
            "https://a.example",
            "*.",
        ] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(
            Pattern::parse("127.0.0.1").unwrap(),
            Pattern::Network("127.0.0.1/32".parse().unwrap())
        );
    }
}
