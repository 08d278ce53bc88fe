//! The rules of what may be reached (OCL-16, T54). Pure: parsed URL or address in, verdict out.
//!
//! Without any configuration: public addresses over https. The operator opens private networks,
//! names and plain http; a tenant's list only narrows. The address decides, whatever the name is.

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

use crate::address::{self, Kind};
use crate::pattern::{InvalidPattern, Pattern, plain};

/// Which rule refused. The names are part of what operators see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Neither http nor https, or no host.
    Scheme,
    /// User name or password in the URL.
    Userinfo,
    /// Plain http to a name that may not be reached that way.
    Http,
    /// On the deny list.
    Deny,
    /// Not on the tenant's own list.
    Allow,
    /// A private address.
    Private,
    /// This machine.
    Loopback,
    /// A link-local address.
    LinkLocal,
    /// An address where clouds hand out credentials.
    Metadata,
    /// A multicast address.
    Multicast,
    /// An address nobody serves on.
    Reserved,
}

impl Rule {
    /// The rule's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::Scheme => "scheme",
            Rule::Userinfo => "userinfo",
            Rule::Http => "http",
            Rule::Deny => "deny",
            Rule::Allow => "allow",
            Rule::Private => "private",
            Rule::Loopback => "loopback",
            Rule::LinkLocal => "link_local",
            Rule::Metadata => "metadata",
            Rule::Multicast => "multicast",
            Rule::Reserved => "reserved",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal by one rule. It names no address: what a name resolves to is not for everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("egress_denied by rule `{rule}`")]
pub struct Denied {
    /// The rule.
    pub rule: Rule,
}

impl From<Rule> for Denied {
    fn from(rule: Rule) -> Self {
        Self { rule }
    }
}

/// The `egress` section of the configuration, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Private networks, and names whose private addresses may be reached.
    pub private: Vec<String>,
    /// Names and networks that may be reached over plain http.
    pub http: Vec<String>,
    /// Names and networks that may never be reached.
    pub deny: Vec<String>,
}

/// What may be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    private: Vec<Pattern>,
    http: Vec<Pattern>,
    deny: Vec<Pattern>,
    allow: Option<Vec<Pattern>>,
    literal_loopback: HashSet<SocketAddr>,
}

impl Policy {
    /// The operator's rules.
    pub fn new(rules: &Rules) -> Result<Self, InvalidPattern> {
        Ok(Self {
            private: Pattern::parse_all(&rules.private)?,
            http: Pattern::parse_all(&rules.http)?,
            deny: Pattern::parse_all(&rules.deny)?,
            allow: None,
            literal_loopback: HashSet::new(),
        })
    }

    /// The same, narrowed to a tenant's `egress.allow`; what the operator refuses stays refused.
    pub fn narrowed(&self, allow: &[String]) -> Result<Self, InvalidPattern> {
        Ok(Self {
            allow: Some(Pattern::parse_all(allow)?),
            ..self.clone()
        })
    }

    /// The same, with upstreams that the operator's own file names by a literal loopback address
    /// reachable, also over http. Addresses that are not loopback are left out.
    #[must_use]
    pub fn allow_literal_loopback(
        mut self,
        upstreams: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        let loopback = upstreams
            .into_iter()
            .filter(|upstream| upstream.ip().is_loopback());
        self.literal_loopback.extend(loopback);
        self
    }

    /// The loopback address and port that `url` names literally, for
    /// [`Policy::allow_literal_loopback`].
    pub fn literal_loopback(url: &Url) -> Option<SocketAddr> {
        let address = literal(url.host()?)?;
        let target = SocketAddr::new(address, url.port_or_known_default()?);
        address.is_loopback().then_some(target)
    }

    /// What can be said before a name is resolved: scheme, name, literal address. Passing it does
    /// not mean that the connection will be allowed.
    pub fn check_url(&self, url: &Url) -> Result<(), Denied> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Rule::Scheme.into());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Rule::Userinfo.into());
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(Rule::Scheme.into());
        };
        let name = host_name(&host);
        if let Some(address) = literal(host) {
            let target = SocketAddr::new(address, port);
            if self.literal_loopback.contains(&target) {
                return Ok(());
            }
            self.check_http(url, &name, Some(address))?;
            return self.check_address(&name, address);
        }
        if self.deny.iter().any(|pattern| pattern.matches_name(&name)) {
            return Err(Rule::Deny.into());
        }
        self.check_http(url, &name, None)
    }

    /// Whether a connection for `name` may go to `address`, which is one that `name` resolved to
    /// or the literal that stands in the URL itself.
    pub fn check_address(&self, name: &str, address: IpAddr) -> Result<(), Denied> {
        let name = plain(name);
        let reached = address::canonical(address);
        let meant = |pattern: &Pattern| {
            pattern.matches_name(&name)
                || pattern.matches_address(reached)
                || pattern.matches_address(address)
        };
        if self.deny.iter().any(meant) {
            return Err(Rule::Deny.into());
        }
        if let Some(allow) = &self.allow
            && !allow.iter().any(meant)
        {
            return Err(Rule::Allow.into());
        }
        self.check_kind(&name, reached)
    }

    fn check_kind(&self, name: &str, reached: IpAddr) -> Result<(), Denied> {
        let kind = address::kind(reached);
        let explicit = self.private.iter().any(|pattern| match pattern {
            Pattern::Network(network) => {
                network.contains(&reached)
                    && (kind == Kind::Private || address::names_kind(network, kind))
            }
            Pattern::Name(_) | Pattern::Below(_) | Pattern::AnyName => {
                kind == Kind::Private && pattern.matches_name(name)
            }
        });
        if explicit {
            return Ok(());
        }
        let rule = match kind {
            Kind::Public => return Ok(()),
            Kind::Private => Rule::Private,
            Kind::Loopback => Rule::Loopback,
            Kind::LinkLocal => Rule::LinkLocal,
            Kind::Metadata => Rule::Metadata,
            Kind::Multicast => Rule::Multicast,
            Kind::Reserved => Rule::Reserved,
        };
        Err(rule.into())
    }

    fn check_http(&self, url: &Url, name: &str, address: Option<IpAddr>) -> Result<(), Denied> {
        let listed = self.http.iter().any(|pattern| {
            pattern.matches_name(name)
                || address.is_some_and(|address| pattern.matches_address(address))
        });
        if url.scheme() == "https" || listed {
            Ok(())
        } else {
            Err(Rule::Http.into())
        }
    }
}

fn literal<S>(host: Host<S>) -> Option<IpAddr> {
    match host {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

fn host_name(host: &Host<&str>) -> String {
    match host {
        Host::Domain(name) => plain(name),
        Host::Ipv4(_) | Host::Ipv6(_) => String::new(), // an address is no name
    }
}

#[cfg(test)]
mod tests;
