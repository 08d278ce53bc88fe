//! Everything of a run that is started before its first blow, and what is left of it in the end.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::arguments::Arguments;
use crate::client::{Session, World, forge, watcher, worker};
use crate::history::{Fault, History, Kind};
use crate::house::{self, Gateway, Places, Process, Store};
use crate::net::{Balancer, Weather};
use crate::random::Random;
use crate::upstream::read_ledger;

/// Sessions of each tenant and kind, and calls at the same time in each.
const SESSIONS: usize = 2;
const CALLS: u64 = 6;
/// Connections with a fault, in percent.
const FAULTS: u64 = 35;
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Longer than any client waits for anything.
const CLIENTS_END_WITHIN: Duration = Duration::from_secs(150);
const PAUSE: Duration = Duration::from_millis(50);

/// A running stage.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) gateways: Vec<Arc<tokio::sync::Mutex<Gateway>>>,
    pub(crate) store: Arc<tokio::sync::Mutex<Store>>,
    pub(crate) world: Arc<World>,
    pub(crate) faults: Arc<Mutex<Vec<Fault>>>,
    balancer: Arc<Balancer>,
    clients: JoinSet<()>,
    workers: u64,
    doors: Vec<JoinHandle<()>>,
    folder: PathBuf,
    /// Dies with the stage.
    _upstream: Process,
}

impl Stage {
    /// Starts processes and clients; returns when calls run.
    ///
    /// # Errors
    /// Something does not start.
    pub(crate) async fn set(arguments: &Arguments, places: &Places) -> anyhow::Result<Self> {
        let mut random = Random::of(arguments.seed, 0x57A6E);
        let tenants = house::tenants(&mut random);
        let (upstream, url) = house::start_upstream(places, &tenants).await?;
        let store = Store::start(arguments.store, &places.folder).await?;
        let form = store.configuration(&places.folder);
        // a folder of its own: the gateway watches it for changes
        let folder = places.folder.join("etc");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("vestibule.yaml");
        let text = house::configuration(&tenants, &url, &form, &mut random);
        std::fs::write(&file, text)?;
        let balancer = Arc::new(Balancer::default());
        let weather = Weather {
            seed: arguments.seed,
            faults: FAULTS,
        };
        let weather = arguments.rolling.is_none().then_some(weather);
        let (rough, door) = balancer.door(weather).await?;
        let (calm, other) = balancer.door(None).await?;
        let world = World::new(
            (rough, calm),
            Arc::clone(&balancer),
            tenants,
            arguments.seed,
            arguments.last_words(),
        );
        let mutation = arguments.mutation.as_deref();
        let gateway = |number| Gateway::new(places, file.clone(), mutation, &balancer, number);
        let gateways = (0..house::replicas(arguments.store)).map(gateway);
        let mut stage = Self {
            gateways: gateways
                .map(|gateway| Arc::new(tokio::sync::Mutex::new(gateway)))
                .collect(),
            store: Arc::new(tokio::sync::Mutex::new(store)),
            world,
            faults: Arc::default(),
            balancer,
            clients: JoinSet::new(),
            workers: 0,
            doors: vec![door, other],
            folder: places.folder.clone(),
            _upstream: upstream,
        };
        for gateway in &stage.gateways {
            gateway.lock().await.start().await?;
        }
        stage.let_clients_in().await?;
        Ok(stage)
    }

    async fn let_clients_in(&mut self) -> anyhow::Result<()> {
        for tenant in 0..self.world.tenants() {
            for _ in 0..SESSIONS {
                self.let_sessions_in(tenant).await?;
            }
        }
        self.clients.spawn(forge(Arc::clone(&self.world)));
        let until = Instant::now() + READY_WITHIN;
        while self.world.open_calls(true).values().sum::<usize>() < 5 * self.gateways.len() {
            if Instant::now() > until {
                bail!("no calls run; see the logs in {}", self.folder.display());
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// A session of each kind.
    async fn let_sessions_in(&mut self, tenant: usize) -> anyhow::Result<()> {
        for kind in Kind::ALL {
            let session = self.open(tenant, kind.as_str()).await?;
            for _ in 0..CALLS {
                let (world, session) = (Arc::clone(&self.world), session.clone());
                self.workers += 1;
                self.clients
                    .spawn(worker(world, session, kind, self.workers));
            }
        }
        let session = self.open(tenant, "news").await?;
        self.clients
            .spawn(watcher(Arc::clone(&self.world), session));
        Ok(())
    }

    async fn open(&self, tenant: usize, server: &str) -> anyhow::Result<Session> {
        let opened = Session::open(&self.world, tenant, server).await;
        opened.with_context(|| format!("no session; see the logs in {}", self.folder.display()))
    }

    /// Writes a blow down.
    pub(crate) fn note(&self, fault: Fault) {
        note(&self.faults, fault);
    }

    /// Lets everything come to its end; what was written down.
    ///
    /// # Errors
    /// Clients that do not end, a ledger that cannot be read.
    pub(crate) async fn end(mut self) -> anyhow::Result<History> {
        self.world.finish();
        let ended = timeout(CLIENTS_END_WITHIN, async {
            while let Some(ended) = self.clients.join_next().await {
                ended.context("a client panicked")?;
            }
            anyhow::Ok(())
        });
        ended.await.context("clients did not end")??;
        for door in &self.doors {
            door.abort();
        }
        for gateway in &self.gateways {
            gateway.lock().await.kill().await;
        }
        let ledger = read_ledger(&house::ledger_of(&self.folder)).context("the ledger")?;
        let records = self.world.take_records();
        let faults =
            std::mem::take(&mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(History {
            ledger,
            calls: records.calls,
            news: records.news,
            answers: records.answers,
            cancels: records.cancels,
            forgeries: records.forgeries,
            faults,
            lost_sessions: records.lost_sessions,
            wire: self.balancer.wire(),
            unserved: self.balancer.turned_away(),
        })
    }

    /// Calls that run (`owners`) or are read at each replica that nothing is being done to.
    #[must_use]
    pub(crate) fn standing(&self, owners: bool) -> Vec<(usize, usize)> {
        let open: HashMap<_, _> = self.world.open_calls(owners);
        let mut standing = Vec::new();
        for (number, gateway) in self.gateways.iter().enumerate() {
            if let Ok(gateway) = gateway.try_lock() {
                standing.push((number, open.get(&gateway.seat()).copied().unwrap_or(0)));
            }
        }
        standing
    }
}

/// Writes a blow down.
pub(crate) fn note(faults: &Mutex<Vec<Fault>>, fault: Fault) {
    let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
    faults.push(fault);
}
