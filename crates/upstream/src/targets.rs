//! The upstreams there are and how each is reached: a checked snapshot, swapped as a whole.
//!
//! The gateway builds it from the configuration at each change. What lives under an upstream
//! (sessions, processes, the remembered era) belongs to one [`Target`] and is given up when a
//! snapshot holds another one in its place, or none.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use url::Url;
use vestibule_terms::{FastHash, Secret, TenantId, UpstreamId};

/// Where an upstream is.
#[derive(Clone)]
pub enum Reach {
    /// An MCP endpoint over Streamable HTTP.
    Http {
        /// Its URL.
        url: Url,
    },
    /// A child process that speaks over stdin and stdout.
    Stdio {
        /// Program and arguments; never empty.
        command: Vec<String>,
        /// Variables beside PATH, HOME, LANG and TZ, which are all that is passed on (STD-08).
        env: Vec<(String, Secret<String>)>,
        /// Its working directory; ours when none.
        cwd: Option<PathBuf>,
    },
}

/// Which era an upstream is taken to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraChoice {
    /// Found out by asking.
    #[default]
    Auto,
    /// Stateless revisions, without asking.
    Modern,
    /// Revisions with a handshake, without asking.
    Legacy,
}

/// How long an upstream may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection stands.
    pub connect: Duration,
    /// Longest silence of a call.
    pub idle: Duration,
    /// Longest call.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(600),
        }
    }
}

/// One upstream.
#[derive(Clone)]
pub struct Target {
    /// Its id within the tenant.
    pub id: UpstreamId,
    /// Where it is.
    pub reach: Reach,
    /// The era it speaks.
    pub era: EraChoice,
    /// Headers of every request to it: its credential, usually. HTTP only.
    pub headers: Vec<(HeaderName, Secret<String>)>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// The largest answer, event or line that is read, in bytes.
    pub max_response: usize,
    /// Processes at the same time (stdio), besides the one that lists are fetched with unless this
    /// is one; or upstream sessions of one kind that must each be
    /// held by one call (legacy HTTP).
    pub max_sessions: usize,
}

/// Why a target cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The URL is not a plain `http` or `https` address.
    #[error(
        "upstream `{0}`: the URL must be http or https, with a host, without user name, password and fragment"
    )]
    Url(UpstreamId),
    /// There is no program to start.
    #[error("upstream `{0}`: the command is empty")]
    Command(UpstreamId),
    /// A header that the gateway itself writes or that belongs to one connection.
    #[error("upstream `{0}`: the header `{1}` is set by the gateway")]
    ReservedHeader(UpstreamId, HeaderName),
    /// A value that no header can hold. The value is a secret and is not shown.
    #[error("upstream `{0}`: the value of header `{1}` holds characters that no header can carry")]
    HeaderValue(UpstreamId, HeaderName),
    /// A limit of nothing.
    #[error("upstream `{0}`: timeouts, max_response and max_sessions must be larger than zero")]
    Limit(UpstreamId),
    /// The same upstream twice.
    #[error("upstream `{0}` occurs twice in one tenant")]
    Twice(UpstreamId),
}

/// Every upstream of every tenant.
#[derive(Default)]
pub struct Targets(Map<TenantId, Map<UpstreamId, Arc<Target>>>);

type Map<K, V> = HashMap<K, V, FastHash>;

/// Headers that belong to one connection or that this crate writes itself.
const RESERVED: [HeaderName; 12] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

// === impl Target ===

impl Target {
    /// An upstream with the default limits.
    pub fn new(id: UpstreamId, reach: Reach) -> Self {
        Self {
            id,
            reach,
            era: EraChoice::Auto,
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            max_response: 16 * 1024 * 1024,
            max_sessions: 8,
        }
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), TargetError> {
        match &self.reach {
            Reach::Http { url } if !is_plain(url) => return Err(TargetError::Url(self.id.clone())),
            Reach::Stdio { command, .. } if command.first().is_none_or(String::is_empty) => {
                return Err(TargetError::Command(self.id.clone()));
            }
            Reach::Http { .. } | Reach::Stdio { .. } => {}
        }
        for (name, value) in &self.headers {
            if is_reserved(name) {
                return Err(TargetError::ReservedHeader(self.id.clone(), name.clone()));
            }
            if HeaderValue::from_str(value.expose()).is_err() {
                return Err(TargetError::HeaderValue(self.id.clone(), name.clone()));
            }
        }
        let times = [
            self.timeouts.connect,
            self.timeouts.idle,
            self.timeouts.total,
        ];
        if times.contains(&Duration::ZERO) || self.max_response == 0 || self.max_sessions == 0 {
            return Err(TargetError::Limit(self.id.clone()));
        }
        Ok(())
    }

    /// Whether `other` describes the same upstream in every respect, so that what lives under
    /// this one may stay.
    pub fn is_same_as(&self, other: &Target) -> bool {
        self.id == other.id
            && self.reach.is_same_as(&other.reach)
            && self.era == other.era
            && pairs(&self.headers).eq(pairs(&other.headers))
            && self.timeouts == other.timeouts
            && self.max_response == other.max_response
            && self.max_sessions == other.max_sessions
    }

    /// Whether it is reached over HTTP.
    pub fn is_over_http(&self) -> bool {
        matches!(self.reach, Reach::Http { .. })
    }
}

fn pairs<K>(list: &[(K, Secret<String>)]) -> impl Iterator<Item = (&K, &str)> {
    list.iter()
        .map(|(key, value)| (key, value.expose().as_str()))
}

fn is_plain(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
}

fn is_reserved(name: &HeaderName) -> bool {
    RESERVED.contains(name)
        || name.as_str().starts_with("mcp-")
        || matches!(
            name.as_str(),
            "last-event-id" | "keep-alive" | "proxy-connection" | "origin"
        )
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reach = if self.is_over_http() { "http" } else { "stdio" };
        f.debug_struct("Target")
            .field("id", &self.id)
            .field("reach", &reach)
            .field("era", &self.era)
            .finish_non_exhaustive()
    }
}

// === impl Reach ===

impl Reach {
    fn is_same_as(&self, other: &Reach) -> bool {
        match (self, other) {
            (Reach::Http { url }, Reach::Http { url: theirs }) => url == theirs,
            (
                Reach::Stdio { command, env, cwd },
                Reach::Stdio {
                    command: their_command,
                    env: their_env,
                    cwd: their_cwd,
                },
            ) => command == their_command && pairs(env).eq(pairs(their_env)) && cwd == their_cwd,
            (Reach::Http { .. }, Reach::Stdio { .. })
            | (Reach::Stdio { .. }, Reach::Http { .. }) => false,
        }
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // neither paths nor arguments: both have carried secrets
        f.write_str(match self {
            Reach::Http { .. } => "Reach::Http",
            Reach::Stdio { .. } => "Reach::Stdio",
        })
    }
}

// === impl Targets ===

impl Targets {
    /// Takes the targets of all tenants.
    ///
    /// # Errors
    /// The first target that cannot be used.
    pub fn new(targets: impl IntoIterator<Item = (TenantId, Target)>) -> Result<Self, TargetError> {
        let mut map: Map<TenantId, Map<UpstreamId, Arc<Target>>> = Map::default();
        for (tenant, target) in targets {
            target.check()?;
            let id = target.id.clone();
            if map
                .entry(tenant)
                .or_default()
                .insert(id.clone(), Arc::new(target))
                .is_some()
            {
                return Err(TargetError::Twice(id));
            }
        }
        Ok(Self(map))
    }

    /// One upstream of one tenant.
    pub fn get(&self, tenant: &TenantId, upstream: &UpstreamId) -> Option<&Arc<Target>> {
        self.0.get(tenant)?.get(upstream)
    }

    /// Every upstream with its tenant.
    pub fn iter(&self) -> impl Iterator<Item = (&TenantId, &Arc<Target>)> {
        self.0
            .iter()
            .flat_map(|(tenant, of)| of.values().map(move |target| (tenant, target)))
    }
}

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|(tenant, target)| (tenant, &target.id)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(url: &str) -> Target {
        let reach = Reach::Http {
            url: Url::parse(url).unwrap(),
        };
        Target::new(UpstreamId::new("up").unwrap(), reach)
    }

    #[test]
    fn targets_that_cannot_work_are_refused() {
        for bad in ["ftp://h/", "http://u:p@h/", "https://h/#f", "data:x"] {
            assert!(
                matches!(http(bad).check(), Err(TargetError::Url(_))),
                "{bad}"
            );
        }
        assert_eq!(http("https://h:8443/mcp?x=1").check(), Ok(()));
        let reach = Reach::Stdio {
            command: vec![],
            env: vec![],
            cwd: None,
        };
        let stdio = Target::new(UpstreamId::new("up").unwrap(), reach);
        assert!(matches!(stdio.check(), Err(TargetError::Command(_))));
        let none = Target {
            max_sessions: 0,
            ..http("http://h/")
        };
        assert!(matches!(none.check(), Err(TargetError::Limit(_))));
    }

    /// HDR-24: headers that the gateway writes cannot be configured away.
    #[test]
    fn hdr_24_headers_of_the_gateway_are_not_configurable() {
        for name in [
            "content-type",
            "mcp-session-id",
            "host",
            "accept",
            "mcp-param-x",
            "origin",
        ] {
            let name = HeaderName::from_static(name);
            let headers = vec![(name, Secret::new("x".to_owned()))];
            let target = Target {
                headers,
                ..http("http://h/")
            };
            assert!(matches!(
                target.check(),
                Err(TargetError::ReservedHeader(..))
            ));
        }
        let headers = vec![(header::AUTHORIZATION, Secret::new("a\nb".to_owned()))];
        let error = Target {
            headers,
            ..http("http://h/")
        }
        .check()
        .unwrap_err();
        assert!(!error.to_string().contains("a\nb"));
    }

    #[test]
    fn any_difference_makes_another_target() {
        let with = |value: &str| Target {
            headers: vec![(header::AUTHORIZATION, Secret::new(value.to_owned()))],
            ..http("http://h/")
        };
        assert!(with("a").is_same_as(&with("a")));
        assert!(!with("a").is_same_as(&with("b")));
        assert!(!http("http://h/").is_same_as(&http("http://h/x")));
        let idle = Timeouts {
            idle: Duration::from_secs(1),
            ..Timeouts::default()
        };
        assert!(!http("http://h/").is_same_as(&Target {
            timeouts: idle,
            ..http("http://h/")
        }));
    }

    /// T69: neither a URL, a command nor a header shows in debug output.
    #[test]
    fn t69_debug_shows_no_credential() {
        let headers = vec![(header::AUTHORIZATION, Secret::new("hunter2".to_owned()))];
        let target = Target {
            headers,
            ..http("http://h/?key=hunter2")
        };
        assert!(!format!("{target:?} {:?}", target.reach).contains("hunter2"));
    }
}
