//! The processes of a run. Each dies with the harness, also when that ends badly.

mod gateway;
mod process;
mod redis;
mod store;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::arguments::StoreKind;
use crate::client::Tenant;
use crate::random::Random;

pub(crate) use gateway::Gateway;
pub(crate) use process::Process;
pub(crate) use store::Store;

/// Where programs are found and what they write.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The gateway's program.
    pub(crate) gateway: PathBuf,
    /// The upstream's program.
    pub(crate) upstream: PathBuf,
    /// A folder of this run alone.
    pub(crate) folder: PathBuf,
}

/// Two tenants whose one principal has the same subject.
#[must_use]
pub(crate) fn tenants(random: &mut Random) -> Vec<Tenant> {
    let mut tenant = |name: &'static str| {
        let secret: Vec<u8> = (0..4).flat_map(|_| random.next().to_be_bytes()).collect();
        Tenant {
            name,
            key: format!("vsk_client_{}", URL_SAFE_NO_PAD.encode(secret)),
            canary: format!("canary-{name}-{:08x}", random.next() >> 32),
        }
    };
    vec![tenant("red"), tenant("blue")]
}

/// Starts the upstream; its URL.
///
/// # Errors
/// It does not start.
pub(crate) async fn start_upstream(
    places: &Places,
    tenants: &[Tenant],
) -> anyhow::Result<(Process, String)> {
    let ledger = ledger_of(&places.folder);
    let mut arguments = vec!["--ledger".to_owned(), ledger.display().to_string()];
    for tenant in tenants {
        arguments.push("--canary".to_owned());
        arguments.push(format!("{}={}", tenant.name, tenant.canary));
    }
    let log = places.folder.join("upstream.log");
    let process = Process::start(&places.upstream, &arguments, &HashMap::new(), &log)?;
    let url = process.line("http://").await.context("the upstream")?;
    Ok((process, url))
}

/// The upstream's ledger.
#[must_use]
pub(crate) fn ledger_of(folder: &Path) -> PathBuf {
    folder.join("ledger.jsonl")
}

/// The configuration of every replica: they differ in nothing.
#[must_use]
pub(crate) fn configuration(
    tenants: &[Tenant],
    upstream: &str,
    store: &str,
    random: &mut Random,
) -> String {
    let sealing: Vec<u8> = (0..4).flat_map(|_| random.next().to_be_bytes()).collect();
    let sealing = STANDARD.encode(sealing);
    let tenants: String = tenants.iter().map(|one| tenant(one, upstream)).collect();
    format!(
        "listen: {{ address: \"127.0.0.1:0\" }}
admin: {{ address: \"127.0.0.1:0\" }}
limits: {{ address: off }}
store: {store}
sealing: {{ keys: [{{ id: k1, secret: \"{sealing}\" }}] }}
shutdown: {{ delay: 1500ms, grace: 30s }}
telemetry: {{ log: json }}
tenants:
{tenants}"
    )
}

/// Tenants differ in what their streams do while the store is away.
fn tenant(tenant: &Tenant, upstream: &str) -> String {
    let Tenant { name, key, .. } = tenant;
    let resume = if *name == "red" {
        "required"
    } else {
        "best_effort"
    };
    let kinds = ["resumable", "plain", "asking", "news"];
    let upstreams: String = kinds
        .iter()
        .map(|kind| format!("      {kind}: {{ url: \"{upstream}/{name}/{kind}\", era: legacy }}\n"))
        .collect();
    let servers: String = kinds
        .iter()
        .map(|kind| format!("      {kind}: {{ upstream: {kind}, stream_after: 200ms }}\n"))
        .collect();
    format!(
        "  {name}:
    auth: {{ keys: true }}
    keys:
      client: {{ secret: \"{key}\", subject: client }}
    policy: allow_all
    resume: {resume}
    limits:
      tenant: {{ rate: 100000/s, burst: 100000, in_flight: 10000, streams: 10000 }}
      principal: {{ rate: 100000/s, burst: 100000, in_flight: 10000, streams: 10000 }}
    upstreams:
{upstreams}    servers:
{servers}"
    )
}

/// How many replicas a form of the store can serve.
#[must_use]
pub(crate) fn replicas(kind: StoreKind) -> usize {
    match kind {
        StoreKind::Embedded => 1,
        StoreKind::Redis | StoreKind::Sentinel | StoreKind::Cluster => 3,
    }
}
