//! One client session of one server.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::http::{Broken, Opened, Outgoing, send};
use super::world::{Seen, Tenant, World};
use crate::history::Seat;

/// How long the opening may take, replicas dying meanwhile.
const OPENS_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// A session.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// The harness's own name for it.
    pub(crate) number: usize,
    pub(super) tenant: usize,
    pub(super) path: String,
    pub(super) id: String,
}

impl Session {
    /// Opens one. An opening that broke is followed by another one: it left nothing that anybody
    /// could ask for.
    pub(crate) async fn open(world: &Arc<World>, tenant: usize, server: &str) -> Option<Self> {
        let until = Instant::now() + OPENS_WITHIN;
        let number = world.next_session();
        let path = format!("/mcp/{}/{server}", world.tenants.get(tenant)?.name);
        while Instant::now() < until {
            if let Ok(id) = handshake(world, tenant, &path).await {
                return Some(Self {
                    number,
                    tenant,
                    path,
                    id,
                });
            }
            sleep(PAUSE).await;
        }
        None
    }

    pub(super) fn tenant<'a>(&self, world: &'a World) -> &'a Tenant {
        // opened with a tenant that is there
        &world.tenants[self.tenant]
    }

    /// Posts a message through the rough door. `owner` is told who takes it.
    pub(super) async fn post(
        &self,
        world: &World,
        message: &Value,
        owner: &mut Option<Seat>,
    ) -> Result<Opened, Broken> {
        let outgoing = Outgoing {
            body: message.to_string(),
            ..self.outgoing(world, Method::POST)
        };
        let mut local = None;
        let opened = send(world.rough, outgoing, |address| local = Some(address)).await;
        *owner = local.and_then(|local| world.route(local));
        opened
    }

    /// Opens a GET stream, behind an event or a new one.
    pub(super) async fn get(&self, world: &World, last: Option<&str>) -> Result<Opened, Broken> {
        let outgoing = Outgoing {
            last_event_id: last,
            ..self.outgoing(world, Method::GET)
        };
        send(world.rough, outgoing, |_| {}).await
    }

    pub(super) fn outgoing<'a>(&'a self, world: &'a World, method: Method) -> Outgoing<'a> {
        Outgoing {
            method,
            path: &self.path,
            key: &self.tenant(world).key,
            session: Some(&self.id),
            last_event_id: None,
            body: String::new(),
        }
    }

    /// Keeps an id for forgeries.
    pub(super) fn keep_id(&self, world: &World, id: &str) {
        world.keep_id(Seen {
            tenant: self.tenant,
            number: self.number,
            path: self.path.clone(),
            session: self.id.clone(),
            id: id.to_owned(),
        });
    }

    /// The gateway says that it does not know the session.
    pub(super) fn lost(&self, world: &World, what: &str) {
        let lost = format!("session {} ({}): {what}", self.number, self.path);
        world.write(|records| records.lost_sessions.push(lost));
    }
}

async fn handshake(world: &World, tenant: usize, path: &str) -> Result<String, Broken> {
    let key = &world.tenants.get(tenant).ok_or(Broken)?.key;
    // only who can be asked is asked
    let capabilities = if path.ends_with("/asking") {
        json!({ "elicitation": {} })
    } else {
        json!({})
    };
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": { "name": "ledger", "version": env!("CARGO_PKG_VERSION") },
    });
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let opening = |session: Option<String>, body: Value| async move {
        let outgoing = Outgoing {
            method: Method::POST,
            path,
            key,
            session: session.as_deref(),
            last_event_id: None,
            body: body.to_string(),
        };
        let mut opened = send(world.calm, outgoing, |_| {}).await?;
        opened.whole().await?;
        Ok(opened)
    };
    let opened: Opened = opening(None, initialize).await?;
    let id = opened.session.clone().filter(|_| opened.status == 200);
    let id = id.ok_or(Broken)?;
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let answered = opening(Some(id.clone()), ready).await?;
    if answered.status == 202 {
        Ok(id)
    } else {
        Err(Broken)
    }
}
