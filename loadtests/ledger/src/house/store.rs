//! The store of a run: the gateway's own, or Redis in one of its forms.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::{Instant, sleep};

use super::redis::{Server, words};
use crate::arguments::StoreKind;
use crate::random::Random;

/// How long the primary writes on alone before it is killed: the tail that is lost.
const TAIL: (u64, u64) = (100, 600);
const FAILS_OVER_WITHIN: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);
const SLOTS: usize = 16384;
/// Slots that are moved at a time.
const MOVES: usize = 4;

/// The store's processes.
#[derive(Debug)]
pub(crate) struct Store {
    kind: StoreKind,
    /// Data nodes; with sentinels, a primary and its replica.
    nodes: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Store {
    /// Starts it.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) async fn start(kind: StoreKind, folder: &Path) -> anyhow::Result<Self> {
        let mut store = Self {
            kind,
            nodes: Vec::new(),
            sentinels: Vec::new(),
        };
        match kind {
            StoreKind::Embedded => {}
            StoreKind::Redis => store.nodes.push(Server::start(folder, "redis", &[]).await?),
            StoreKind::Sentinel => store.start_sentinels(folder).await?,
            StoreKind::Cluster => store.start_cluster(folder).await?,
        }
        Ok(store)
    }

    /// What stands behind `store:` in the configuration.
    #[must_use]
    pub(crate) fn configuration(&self, folder: &Path) -> String {
        let list = |servers: &[Server]| {
            let ports = servers.iter().map(|server| server.port);
            let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
            hosts.join(",")
        };
        let url = match self.kind {
            StoreKind::Embedded => {
                let path = folder.join("state").display().to_string();
                return format!("{{ kind: embedded, path: \"{path}\", fsync: always }}");
            }
            StoreKind::Redis => format!("redis://{}", list(&self.nodes)),
            StoreKind::Sentinel => {
                format!("redis-sentinel://{}/mymaster", list(&self.sentinels))
            }
            StoreKind::Cluster => format!("redis-cluster://{}", list(&self.nodes)),
        };
        format!("{{ kind: redis, url: \"{url}\" }}")
    }

    /// `kill -9` of a node that holds data, and its return with all it acknowledged.
    ///
    /// # Errors
    /// It does not return.
    pub(crate) async fn kill(&mut self, random: &mut Random) -> anyhow::Result<()> {
        let nodes = u64::try_from(self.nodes.len())?;
        let index = usize::try_from(random.between(0, nodes))?;
        let node = self.nodes.get_mut(index).context("there is no store")?;
        node.kill().await;
        sleep(Duration::from_millis(random.between(50, 800))).await;
        node.run().await
    }

    /// Cuts the replica off, lets the primary go on for a moment, and kills it: what it wrote
    /// alone is lost. Returns when the replica is the primary and the killed one follows it.
    ///
    /// # Errors
    /// Nobody takes over.
    pub(crate) async fn fail_over(&mut self, random: &mut Random) -> anyhow::Result<()> {
        let (primary, replica) = self.roles().await?;
        let follower = self.nodes.get(replica).context("no replica")?;
        // to a port where nobody is: it keeps its data and gets nothing more
        follower.ask(&["REPLICAOF", "127.0.0.1", "1"]).await?;
        sleep(Duration::from_millis(random.between(TAIL.0, TAIL.1))).await;
        let leader = self.nodes.get_mut(primary).context("no primary")?;
        leader.kill().await;
        let until = Instant::now() + FAILS_OVER_WITHIN;
        while self.role(replica).await != Some(true) {
            if Instant::now() > until {
                bail!("no failover within {FAILS_OVER_WITHIN:?}");
            }
            sleep(PAUSE).await;
        }
        let leader = self.nodes.get_mut(primary).context("no primary")?;
        leader.run().await
    }

    /// Moves some slots that hold keys to other nodes, while they are used.
    ///
    /// # Errors
    /// A node refuses.
    pub(crate) async fn move_slots(&mut self, random: &mut Random) -> anyhow::Result<()> {
        let nodes = u64::try_from(self.nodes.len())?;
        let mut ids = Vec::new();
        for node in &self.nodes {
            let id = node.ask(&["CLUSTER", "MYID"]).await?;
            ids.push(words(&id).first().context("no id")?.clone());
        }
        for _ in 0..MOVES {
            let from = random.between(0, nodes);
            let to = (from + random.between(1, nodes)) % nodes;
            let (from, to) = (usize::try_from(from)?, usize::try_from(to)?);
            let node = self.nodes.get(from).context("no node")?;
            // what stands in a slot is hit: a key of it names it
            let key = node.ask(&["RANDOMKEY"]).await?;
            let Some(key) = words(&key).first().cloned() else {
                continue;
            };
            let slot = node.ask(&["CLUSTER", "KEYSLOT", &key]).await?;
            let slot = slot.trim_start_matches(':').trim().to_owned();
            self.move_slot(&slot, (from, &ids[from]), (to, &ids[to]))
                .await
                .with_context(|| format!("slot {slot}"))?;
        }
        Ok(())
    }

    async fn move_slot(
        &self,
        slot: &str,
        (from, source): (usize, &str),
        (to, target): (usize, &str),
    ) -> anyhow::Result<()> {
        let source_node = self.nodes.get(from).context("no node")?;
        let target_node = self.nodes.get(to).context("no node")?;
        let set = |state: &'static str, id: &str| {
            ["CLUSTER", "SETSLOT", slot, state, id].map(str::to_owned)
        };
        target_node.must(&set("IMPORTING", source)).await?;
        source_node.must(&set("MIGRATING", target)).await?;
        let port = target_node.port.to_string();
        loop {
            let keys = source_node
                .ask(&["CLUSTER", "GETKEYSINSLOT", slot, "10"])
                .await?;
            let keys = words(&keys);
            if keys.is_empty() {
                break;
            }
            let command = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            let mut command = command.map(str::to_owned).to_vec();
            command.extend(keys);
            source_node.must(&command).await?;
        }
        for node in [target_node, source_node] {
            node.must(&set("NODE", target)).await?;
        }
        for (number, node) in self.nodes.iter().enumerate() {
            if number != from && number != to {
                node.must(&set("NODE", target)).await?;
            }
        }
        Ok(())
    }

    /// Whether a failover is possible: one leads, the other follows and has caught up.
    pub(crate) async fn can_fail_over(&self) -> bool {
        let Ok((_, replica)) = self.roles().await else {
            return false;
        };
        let Some(follower) = self.nodes.get(replica) else {
            return false;
        };
        let said = follower.ask(&["INFO", "replication"]).await;
        said.is_ok_and(|said| said.contains("master_link_status:up"))
    }

    async fn roles(&self) -> anyhow::Result<(usize, usize)> {
        match (self.role(0).await, self.role(1).await) {
            (Some(true), Some(false)) => Ok((0, 1)),
            (Some(false), Some(true)) => Ok((1, 0)),
            roles => bail!("no primary with its replica: {roles:?}"),
        }
    }

    /// Whether a node is a primary; none when it does not answer.
    async fn role(&self, node: usize) -> Option<bool> {
        let node = self.nodes.get(node).filter(|node| node.runs())?;
        let said = node.ask(&["INFO", "replication"]).await.ok()?;
        Some(said.contains("role:master"))
    }

    async fn start_sentinels(&mut self, folder: &Path) -> anyhow::Result<()> {
        let primary = Server::start(folder, "redis-0", &[]).await?;
        let port = primary.port;
        self.nodes.push(primary);
        let follow = ["--replicaof".to_owned(), format!("127.0.0.1 {port}")];
        self.nodes
            .push(Server::start(folder, "redis-1", &follow).await?);
        for number in 0..3 {
            let name = format!("sentinel-{number}");
            self.sentinels
                .push(Server::sentinel(folder, &name, port).await?);
        }
        let until = Instant::now() + FAILS_OVER_WITHIN;
        while !(self.can_fail_over().await && self.sentinels_agree().await) {
            if Instant::now() > until {
                bail!("the sentinels do not find each other");
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Whether every sentinel knows the others and the replica.
    async fn sentinels_agree(&self) -> bool {
        for sentinel in &self.sentinels {
            let said = sentinel.ask(&["INFO", "sentinel"]).await;
            if !said.is_ok_and(|said| said.contains("slaves=1,sentinels=3")) {
                return false;
            }
        }
        true
    }

    async fn start_cluster(&mut self, folder: &Path) -> anyhow::Result<()> {
        const NODES: usize = 3;
        let words =
            "--cluster-enabled yes --cluster-node-timeout 2000 --cluster-require-full-coverage no";
        let more: Vec<String> = words.split(' ').map(str::to_owned).collect();
        for number in 0..NODES {
            let name = format!("redis-{number}");
            self.nodes.push(Server::start(folder, &name, &more).await?);
        }
        let first = self.nodes.first().context("no node")?.port.to_string();
        for (number, node) in self.nodes.iter().enumerate() {
            let (from, to) = (SLOTS * number / NODES, SLOTS * (number + 1) / NODES - 1);
            let range = [from.to_string(), to.to_string()];
            node.ask(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]])
                .await?;
            let epoch = (number + 1).to_string();
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await?;
            if number > 0 {
                node.ask(&["CLUSTER", "MEET", "127.0.0.1", &first]).await?;
            }
        }
        let until = Instant::now() + FAILS_OVER_WITHIN;
        while !self.cluster_is_whole().await {
            if Instant::now() > until {
                bail!("the cluster does not come together");
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn cluster_is_whole(&self) -> bool {
        for node in &self.nodes {
            let said = node.ask(&["CLUSTER", "INFO"]).await.unwrap_or_default();
            let whole = said.contains("cluster_state:ok")
                && said.contains("cluster_slots_ok:16384")
                && said.contains("cluster_known_nodes:3");
            if !whole {
                return false;
            }
        }
        true
    }
}
