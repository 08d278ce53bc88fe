//! Names become addresses inside the connector, and only addresses that pass the policy go on to
//! be connected to (T55).

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

use crate::error::ConnectFailure;
use crate::filter::{Denied, Policy, Rule};

/// Turns a name into addresses.
pub trait Lookup: Send + Sync + 'static {
    /// Every address of `name`, in order of preference.
    fn lookup(&self, name: String)
    -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;
}

/// The machine's own resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(
        &self,
        name: String,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The connector's resolver: look up, then filter.
#[derive(Clone)]
pub(crate) struct FilteredResolver {
    policy: Arc<Policy>,
    lookup: Arc<dyn Lookup>,
}

impl FilteredResolver {
    pub(crate) fn new(policy: Arc<Policy>, lookup: Arc<dyn Lookup>) -> Self {
        Self { policy, lookup }
    }
}

impl std::fmt::Debug for FilteredResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilteredResolver").finish_non_exhaustive()
    }
}

impl Service<Name> for FilteredResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = ConnectFailure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectFailure>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ConnectFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let policy = Arc::clone(&self.policy);
        let found = self.lookup.lookup(name.as_str().to_owned());
        Box::pin(async move {
            let found = found.await.map_err(ConnectFailure::Connect)?;
            let allowed = allowed(&policy, name.as_str(), found)?;
            Ok(allowed.into_iter())
        })
    }
}

/// The addresses that may be connected to; none at all is the refusal of the first one.
fn allowed(
    policy: &Policy,
    name: &str,
    found: Vec<IpAddr>,
) -> Result<Vec<SocketAddr>, ConnectFailure> {
    let mut first: Option<Denied> = None;
    let mut allowed = Vec::with_capacity(found.len());
    for address in found {
        match policy.check_address(name, address) {
            Ok(()) => allowed.push(SocketAddr::new(address, 0)),
            Err(denied) => first = first.or(Some(denied)),
        }
    }
    match first {
        Some(denied) if allowed.is_empty() => {
            tracing::warn!(
                host = name,
                rule = denied.rule.as_str(),
                "egress denied: no address of the name may be reached"
            );
            Err(denied.into())
        }
        None if allowed.is_empty() => {
            let error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            Err(ConnectFailure::Connect(error))
        }
        Some(_) | None => Ok(allowed),
    }
}

/// Judges a URL that is about to be connected to by what stands in it.
pub(crate) fn check_target(policy: &Policy, uri: &http::Uri) -> Result<(), Denied> {
    let url = url::Url::parse(&uri.to_string()).map_err(|_| Rule::Scheme)?;
    policy.check_url(&url)
}
