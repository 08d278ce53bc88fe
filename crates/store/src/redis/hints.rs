//! Listens on this replica's channel, on a connection of its own: a subscribed connection runs no
//! commands. What is published while there is none is lost.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use redis::aio::PubSub;
use tokio::sync::watch;
use tokio::time::{interval, sleep, timeout};

use super::client::Shared;
use super::keeper::{Link, Pause, Primary};

/// A connection on which nothing is published looks like one that is dead.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Listens until the client is dropped.
pub(super) async fn listen(shared: Arc<Shared>) {
    let mut link = shared.link.subscribe();
    let mut pause = Pause::default();
    loop {
        let Some(primary) = found(&mut link).await else {
            return;
        };
        let client = primary.client.clone();
        let client = client.or_else(|| shared.connector.next_node());
        if let Some(subscribed) = subscribe(&shared, client).await {
            pause = Pause::default();
            pass_on(&shared, subscribed, &mut link, primary.generation).await;
        }
        sleep(pause.next()).await;
    }
}

async fn found(link: &mut watch::Receiver<Link>) -> Option<Arc<Primary>> {
    let known = link.wait_for(|link| matches!(link, Link::Up(_))).await;
    match &*known.ok()? {
        Link::Up(primary) => Some(Arc::clone(primary)),
        Link::Finding | Link::Away(_) => None,
    }
}

async fn subscribe(shared: &Shared, client: Option<redis::Client>) -> Option<PubSub> {
    let client = client?;
    let connect = async {
        let mut connection = client.get_async_pubsub().await.ok()?;
        connection.subscribe(&shared.channel()[..]).await.ok()?;
        Some(connection)
    };
    let limit = shared.settings.connect_timeout * 2;
    timeout(limit, connect).await.ok().flatten()
}

/// Until the connection ends, does not answer, or the primary is another.
async fn pass_on(
    shared: &Shared,
    subscribed: PubSub,
    link: &mut watch::Receiver<Link>,
    generation: u64,
) {
    let (mut sink, mut messages) = subscribed.split();
    let mut pings = interval(PING_EVERY);
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(message) = message else { return };
                let hint = Bytes::copy_from_slice(message.get_payload_bytes());
                let _listeners = shared.hints.send(hint).unwrap_or_default();
            }
            _ = pings.tick() => {
                let pong = timeout(shared.settings.connect_timeout, sink.ping::<redis::Value>());
                if !matches!(pong.await, Ok(Ok(_))) {
                    return;
                }
            }
            () = other(link, generation) => return,
        }
    }
}

async fn other(link: &mut watch::Receiver<Link>, generation: u64) {
    let other = |link: &Link| matches!(link, Link::Up(primary) if primary.generation != generation);
    let _closed = link.wait_for(other).await.is_err();
}
