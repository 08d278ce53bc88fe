//! What upstreams are, remembered: a probe runs once for everybody who waits, and an upstream that
//! cannot be reached is what it last was for ten minutes (translation rules, section 2.2).

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::time::Instant;
use vestibule_exchange::{BoxFuture, Connector, Profile, RpcError};
use vestibule_terms::{Era, TenantId, UpstreamId};

/// How long the last good profile counts.
const MEMORY: Duration = Duration::from_secs(10 * 60);
/// How long a failed probe is not repeated.
const FAILURE: Duration = Duration::from_secs(5);
/// How often the time of a known profile is noted.
const NOTE_EVERY: Duration = Duration::from_secs(30);

/// An upstream, as clients of that era meet it.
type Key = (TenantId, UpstreamId, Era);
type Outcome = Result<Arc<Profile>, RpcError>;

#[derive(Default)]
struct Probes {
    good: DashMap<Key, (Arc<Profile>, Instant)>,
    failed: DashMap<Key, (Instant, RpcError)>,
    running: DashMap<Key, Shared<BoxFuture<Outcome>>>,
}

/// The profiles of all upstreams.
pub(crate) struct Profiles {
    connector: Arc<dyn Connector>,
    probes: Arc<Probes>,
}

impl Profiles {
    pub(crate) fn new(connector: Arc<dyn Connector>) -> Self {
        Self {
            connector,
            probes: Arc::default(),
        }
    }

    /// What the upstream is: at once when that is known, else after a probe, waiting `wait` at most.
    pub(crate) async fn get(
        &self,
        tenant: &TenantId,
        upstream: &UpstreamId,
        era: Era,
        wait: Duration,
    ) -> Outcome {
        let key = (tenant.clone(), upstream.clone(), era);
        if let Some(known) = self.connector.known_profile(tenant, upstream, era) {
            self.probes.note(key, &known);
            return Ok(known);
        }
        // on the heap, like all that is seldom done: it would make every call's future larger
        Box::pin(self.probed(key, wait)).await
    }

    async fn probed(&self, key: Key, wait: Duration) -> Outcome {
        if let Some(failure) = self.probes.failed.get(&key)
            && failure.0.elapsed() < FAILURE
        {
            let error = failure.1.clone();
            drop(failure);
            return self.probes.last_good(&key, error);
        }
        match tokio::time::timeout(wait, self.probe(key.clone())).await {
            Ok(Ok(profile)) => Ok(profile),
            Ok(Err(error)) => self.probes.last_good(&key, error),
            Err(_) => self.probes.last_good(&key, RpcError::timeout(&key.1)),
        }
    }

    pub(crate) fn retain(&self, keep: impl Fn(&TenantId, &UpstreamId) -> bool) {
        self.probes
            .good
            .retain(|(tenant, upstream, _), _| keep(tenant, upstream));
        self.probes
            .failed
            .retain(|(tenant, upstream, _), _| keep(tenant, upstream));
    }

    /// Joins the probe that is running, or starts one that ends whoever waits.
    fn probe(&self, key: Key) -> Shared<BoxFuture<Outcome>> {
        let entry = self.probes.running.entry(key.clone());
        let running = entry.or_insert_with(|| {
            let probe = self.connector.profile(key.0.clone(), key.1.clone(), key.2);
            let probes = Arc::clone(&self.probes);
            let lost = RpcError::unavailable(&key.1, "probe");
            let task = tokio::spawn(async move {
                let ending = Ending {
                    probes: &probes,
                    key: &key,
                };
                let outcome = probe.await;
                ending.probes.settle(&key, &outcome);
                outcome
            });
            let joined = async move { task.await.unwrap_or(Err(lost)) };
            (Box::pin(joined) as BoxFuture<Outcome>).shared()
        });
        running.clone()
    }
}

/// Takes a probe off the list of running ones however it ends.
struct Ending<'a> {
    probes: &'a Probes,
    key: &'a Key,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.probes.running.remove(self.key);
    }
}

impl Probes {
    fn note(&self, key: Key, profile: &Arc<Profile>) {
        let noted = self
            .good
            .get(&key)
            .is_some_and(|entry| Arc::ptr_eq(&entry.0, profile) && entry.1.elapsed() < NOTE_EVERY);
        if !noted {
            self.good.insert(key, (Arc::clone(profile), Instant::now()));
        }
    }

    fn settle(&self, key: &Key, outcome: &Outcome) {
        match outcome {
            Ok(profile) => {
                self.failed.remove(key);
                self.note(key.clone(), profile);
            }
            Err(error) => {
                self.failed
                    .insert(key.clone(), (Instant::now(), error.clone()));
            }
        }
    }

    fn last_good(&self, key: &Key, error: RpcError) -> Outcome {
        match self.good.get(key) {
            Some(entry) if entry.1.elapsed() < MEMORY => Ok(Arc::clone(&entry.0)),
            Some(_) | None => Err(error),
        }
    }
}
