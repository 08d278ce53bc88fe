//! Changes the fixture announces: to every `subscriptions/listen` stream of
//! the process, and to the legacy session whose tool call caused the change.

use std::{collections::HashSet, sync::Mutex};

use rmcp::{
    ErrorData, RoleServer,
    model::{ResourceUpdatedNotificationParam, SubscriptionFilter},
    service::{Peer, ServiceError, SubscriptionContext, SubscriptionSendError, SubscriptionSink},
};
use tokio::sync::broadcast;

/// What changed.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Tools,
    Prompts,
    Resources,
    Resource(String),
}

/// The listeners of one server instance. A listener is registered when its
/// filter is accepted, before the acknowledgment leaves: a change announced as
/// soon as the client has seen that must not be lost.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    waiting: Mutex<Vec<broadcast::Receiver<Change>>>,
    watched: Mutex<HashSet<String>>,
}

impl Listeners {
    /// Registers a listener and accepts what it asked for.
    pub(super) fn accept(
        &self,
        changes: &broadcast::Sender<Change>,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.waiting
            .lock()
            .expect("no holder panics")
            .push(changes.subscribe());
        Some(requested.clone())
    }

    /// Forwards changes until the client or the connection ends the subscription.
    pub(super) async fn serve(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let changes = self.waiting.lock().expect("no holder panics").pop();
        let mut changes =
            changes.ok_or_else(|| ErrorData::internal_error("no filter was accepted", None))?;
        loop {
            let change = tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let goes_on = match change {
                Ok(change) => forward(subscription.sink(), change).await,
                Err(broadcast::error::RecvError::Lagged(_)) => true,
                Err(broadcast::error::RecvError::Closed) => false,
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Remembers or forgets a legacy subscription to one resource.
    pub(super) fn watch(&self, uri: String, on: bool) {
        let mut watched = self.watched.lock().expect("no holder panics");
        if on {
            watched.insert(uri);
        } else {
            watched.remove(&uri);
        }
    }

    /// Tells a legacy session of a change.
    pub(super) async fn tell(
        &self,
        peer: &Peer<RoleServer>,
        change: Change,
    ) -> Result<(), ServiceError> {
        match change {
            Change::Tools => peer.notify_tool_list_changed().await,
            Change::Prompts => peer.notify_prompt_list_changed().await,
            Change::Resources => peer.notify_resource_list_changed().await,
            Change::Resource(uri) => {
                if !self
                    .watched
                    .lock()
                    .expect("no holder panics")
                    .contains(&uri)
                {
                    return Ok(());
                }
                peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri))
                    .await
            }
        }
    }
}

/// Sends one change, if the listener's filter lets it through; false when the
/// subscription is over.
async fn forward(sink: &SubscriptionSink, change: Change) -> bool {
    let sent = match change {
        Change::Tools => sink.notify_tool_list_changed().await,
        Change::Prompts => sink.notify_prompt_list_changed().await,
        Change::Resources => sink.notify_resource_list_changed().await,
        Change::Resource(uri) => sink.notify_resource_updated(uri).await,
    };
    matches!(
        sent,
        Ok(()) | Err(SubscriptionSendError::NotificationNotAccepted(_))
    )
}
