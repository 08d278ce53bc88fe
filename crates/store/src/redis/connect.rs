//! Finds the primary and connects to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, Value,
};
use tokio::time::timeout;

use super::endpoint::{Endpoint, Form, Login};
use super::settings::Settings;

/// A connection whose clones share it.
#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    /// Connections to every primary, chosen by slot; refreshed on `MOVED` and `ASK` by itself.
    Cluster(ClusterConnection),
}

impl Connection {
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        let answer = match self {
            Connection::Single(connection) => connection.req_packed_command(command).await,
            Connection::Cluster(connection) => connection.req_packed_command(command).await,
        };
        answer?.extract_error()
    }

    /// Asks the server, or some node, whether it is there.
    pub(super) async fn ping(&mut self) -> Result<(), RedisError> {
        let ping = redis::cmd("PING");
        match self {
            Connection::Single(_) => self.send(&ping).await.map(drop),
            Connection::Cluster(connection) => {
                let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                connection.route_command(ping, anywhere).await.map(drop)
            }
        }
    }

    /// How many failures in a row say that it must be replaced. A cluster's connection replaces those
    /// to single nodes by itself, and one node that is down is no reason to leave the others.
    pub(super) fn patience(&self) -> usize {
        match self {
            Connection::Single(_) => 1,
            Connection::Cluster(_) => 5,
        }
    }
}

/// Knows where to look.
pub(super) struct Connector {
    endpoint: Endpoint,
    ca: Option<TlsCertificates>,
    connect_timeout: Duration,
    command_timeout: Duration,
    /// The node that is asked next.
    first: AtomicUsize,
    /// The primary that sentinels have named.
    named: Mutex<Option<Named>>,
}

/// A primary, as a sentinel names it.
#[derive(Debug)]
struct Named {
    /// Grows with each failover.
    epoch: u64,
    host: String,
    port: u16,
    /// Whether it is being replaced: it may answer, and loses what it is told from now on.
    leaves: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection, and for one to a single server how to make another to the same.
type Connected = (Connection, Option<Client>);

/// So much longer than others a command with much in it may take.
const LARGE: Duration = Duration::from_secs(2);
/// A cluster is joined through several of its nodes, some of which may hang.
const JOIN: u32 = 4;

impl Connector {
    pub(super) fn new(endpoint: Endpoint, settings: &Settings) -> Result<Self, &'static str> {
        let has_one = |pem: &Bytes| {
            let mark = b"-----BEGIN CERTIFICATE-----";
            pem.windows(mark.len()).any(|part| part == mark)
        };
        if !settings.ca.as_ref().is_none_or(has_one) {
            return Err("goes with certificates that hold none");
        }
        let connector = Self {
            endpoint,
            ca: settings.ca.as_ref().map(|pem| TlsCertificates {
                client_tls: None,
                root_cert: Some(pem.to_vec()),
            }),
            connect_timeout: settings.connect_timeout,
            command_timeout: settings.command_timeout,
            first: AtomicUsize::new(0),
            named: Mutex::default(),
        };
        let (host, port) = &connector.endpoint.addresses[0];
        let client = connector.client(host, *port, &connector.endpoint.login);
        client.map_err(|_certificates| "goes with certificates that cannot be read")?;
        Ok(connector)
    }

    /// The primary, or why there is none.
    pub(super) async fn connect(&self) -> Result<Connected, String> {
        match &self.endpoint.form {
            Form::Single => {
                let (host, port) = &self.endpoint.addresses[0];
                self.connect_to(host, *port).await
            }
            Form::Sentinel { master } => self.ask_sentinels(master).await,
            Form::Cluster => self.join_cluster().await,
        }
    }

    async fn connect_to(&self, host: &str, port: u16) -> Result<Connected, String> {
        let client = self.client(host, port, &self.endpoint.login);
        let client = client.map_err(|error| what(&error))?;
        let mut connection = self.open(&client).await?;
        let role = self.in_time(role(&mut connection)).await?;
        if role.is_some_and(|role| role != "master") {
            return Err("the server is not a primary".to_owned());
        }
        Ok((Connection::Single(connection), Some(client)))
    }

    /// The primary that the newest configuration names. A sentinel that has not heard of a failover
    /// names the one before, which may be back and think that it is still what it was; and while one
    /// replaces it, it is nobody's: what it took would be lost.
    async fn ask_sentinels(&self, master: &str) -> Result<Connected, String> {
        let (mut newest, mut leaving) = (None::<Named>, None);
        let mut why = String::new();
        for said in self.ask_all(master).await {
            match said {
                Ok(named) if named.leaves => leaving = leaving.max(Some(named.epoch)),
                Ok(named)
                    if newest
                        .as_ref()
                        .is_none_or(|known| known.epoch < named.epoch) =>
                {
                    newest = Some(named);
                }
                Ok(_older) => {}
                Err(error) => why = error,
            }
        }
        if leaving.is_some() {
            why = "the primary is being replaced".to_owned();
        }
        let named = newest.filter(|named| Some(named.epoch) > leaving);
        let named = named.ok_or(why)?;
        let connected = self.connect_to(&named.host, named.port).await?;
        *locked(&self.named) = Some(named);
        Ok(connected)
    }

    /// Whether a sentinel names a newer primary than the one that was connected to.
    pub(super) async fn is_superseded(&self) -> bool {
        let Form::Sentinel { master } = &self.endpoint.form else {
            return false;
        };
        let said = self.ask_all(master).await;
        let known = locked(&self.named);
        let newer = |now: &Named| {
            known.as_ref().is_some_and(|known| {
                let another = (&known.host, known.port) != (&now.host, now.port);
                another && now.epoch > known.epoch
            })
        };
        said.iter().flatten().any(newer)
    }

    async fn ask_all(&self, master: &str) -> Vec<Result<Named, String>> {
        let asking = self.endpoint.addresses.iter();
        let asking = asking.map(|(host, port)| self.ask_sentinel(host, *port, master));
        join_all(asking).await
    }

    async fn ask_sentinel(&self, host: &str, port: u16, master: &str) -> Result<Named, String> {
        let client = self.client(host, port, &self.endpoint.sentinel_login);
        let client = client.map_err(|error| what(&error))?;
        let mut connection = self.open(&client).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let answer = self.in_time(question.query_async(&mut connection)).await?;
        let known: Option<(String, u16)> = answer;
        let (host, port) = known.ok_or("the sentinel does not know the primary")?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("MASTER").arg(master);
        let answer = self.in_time(question.query_async::<HashMap<String, String>>(&mut connection));
        // who may not ask that is told of no failover
        let known = answer.await.unwrap_or_default();
        let epoch = known
            .get("config-epoch")
            .and_then(|epoch| epoch.parse().ok());
        let flags = known.get("flags").map_or("", String::as_str);
        let replaced = flags.split(',').any(|flag| flag == "failover_in_progress");
        // these change when a failover ends, the address above as soon as the new primary leads
        let before = known.get("ip") == Some(&host) && known.get("port") == Some(&port.to_string());
        Ok(Named {
            epoch: epoch.unwrap_or(0),
            leaves: replaced && before,
            host,
            port,
        })
    }

    async fn join_cluster(&self) -> Result<Connected, String> {
        let infos = self.endpoint.addresses.iter();
        let infos: Vec<_> = infos
            .map(|(host, port)| self.info(host, *port, &self.endpoint.login))
            .collect::<RedisResult<_>>()
            .map_err(|error| what(&error))?;
        let mut builder = ClusterClient::builder(infos)
            .connection_timeout(self.connect_timeout)
            .response_timeout(self.command_timeout + LARGE);
        if let (true, Some(ca)) = (self.endpoint.tls, &self.ca) {
            builder = builder.certs(ca.clone());
        }
        let client = builder.build().map_err(|error| what(&error))?;
        let connection = timeout(self.connect_timeout * JOIN, client.get_async_connection());
        match connection.await {
            Ok(Ok(connection)) => Ok((Connection::Cluster(connection), None)),
            Ok(Err(error)) => Err(what(&error)),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// The next of the nodes that the URL names: what is published at one is heard at every one.
    pub(super) fn next_node(&self) -> Option<Client> {
        let addresses = &self.endpoint.addresses;
        let number = self.first.fetch_add(1, Ordering::Relaxed) % addresses.len();
        let (host, port) = &addresses[number];
        self.client(host, *port, &self.endpoint.login).ok()
    }

    async fn open(&self, client: &Client) -> Result<MultiplexedConnection, String> {
        // Times are kept by the caller of each command, who knows the whole.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        self.in_time(client.get_multiplexed_async_connection_with_config(&config))
            .await
    }

    fn client(&self, host: &str, port: u16, login: &Login) -> RedisResult<Client> {
        let info = self.info(host, port, login)?;
        match &self.ca {
            Some(ca) if self.endpoint.tls => Client::build_with_tls(info, ca.clone()),
            _ => Client::open(info),
        }
    }

    fn info(&self, host: &str, port: u16, login: &Login) -> RedisResult<ConnectionInfo> {
        let host = host.to_owned();
        let address = if self.endpoint.tls {
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password.expose());
        }
        if !std::ptr::eq(login, &self.endpoint.sentinel_login) {
            settings = settings.set_db(self.endpoint.database);
        }
        Ok(address.into_connection_info()?.set_redis_settings(settings))
    }

    async fn in_time<T>(&self, work: impl Future<Output = RedisResult<T>>) -> Result<T, String> {
        match timeout(self.connect_timeout, work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(what(&error)),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }
}

/// What the server says it is; servers before version 6 and users who may not ask get no answer.
async fn role(connection: &mut MultiplexedConnection) -> RedisResult<Option<String>> {
    let answer = redis::cmd("HELLO").query_async::<Value>(connection).await;
    match answer {
        Ok(Value::Array(parts)) => Ok(parts.chunks_exact(2).find_map(|pair| {
            let name: String = redis::from_redis_value_ref(&pair[0]).ok()?;
            let value = redis::from_redis_value_ref(&pair[1]).ok()?;
            (name == "role").then_some(value)
        })),
        Ok(_) => Ok(None),
        Err(error) if error.code().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error without what it was about: the code of the server's answer, else the kind.
fn what(error: &RedisError) -> String {
    error.code().unwrap_or(error.category()).to_owned()
}
