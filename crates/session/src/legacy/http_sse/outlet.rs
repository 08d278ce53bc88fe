//! Where the answers to a POST go: each a message of the session's stream, after what its call said
//! before it, and none pushed out by another (HSE-03).

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::runtime::Handle;
use vestibule_exchange::RpcError;
use vestibule_frame::Id;
use vestibule_store::SessionKey;
use vestibule_streamlog::LogError;
use vestibule_terms::reject::code;

use super::connection::finish;
use crate::encode::Reply;
use crate::legacy::live::Live;
use crate::legacy::question::lost;
use crate::legacy::sink::one_piece;
use crate::room::Shared;

/// The answers to one POST.
pub(in crate::legacy) struct Outlet {
    shared: Arc<Shared>,
    live: Arc<Live>,
    /// By request; none where it has its answer.
    open: Mutex<Vec<Option<Id>>>,
}

impl Outlet {
    /// For the requests with these ids.
    pub(in crate::legacy) fn new(shared: &Arc<Shared>, live: &Arc<Live>, ids: &[Id]) -> Self {
        if let Some(line) = &live.line {
            line.accepted(ids.len());
        }
        Self {
            shared: Arc::clone(shared),
            live: Arc::clone(live),
            open: Mutex::new(ids.iter().cloned().map(Some).collect()),
        }
    }

    /// Sends a message that is no response.
    pub(in crate::legacy) async fn send(&self, message: Bytes) {
        send(&self.shared, &self.live, message).await;
    }

    /// The request at `index` is done, with a response or (a cancelled one) without.
    pub(in crate::legacy) async fn done(&self, index: usize, reply: Option<Reply>) {
        let mine = self.open().get_mut(index).and_then(Option::take);
        if mine.is_none() {
            return;
        }
        if let Some(reply) = reply {
            self.send(one_piece(reply.chunks)).await;
        }
        answered(&self.live, 1);
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<Option<Id>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that a bug took down has its one answer too (EL-14).
impl Drop for Outlet {
    fn drop(&mut self) {
        let left: Vec<Id> = self.open().drain(..).flatten().collect();
        if left.is_empty() {
            return;
        }
        let (shared, live) = (Arc::clone(&self.shared), Arc::clone(&self.live));
        // without a runtime the process is over, and the stream with it
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let error = RpcError::new(code::INTERNAL, "internal error");
            for id in &left {
                let reply = Reply::error(Some(id), &error);
                send(&shared, &live, one_piece(reply.chunks)).await;
            }
            answered(&live, left.len());
        });
    }
}

fn answered(live: &Live, requests: usize) {
    if let Some(line) = &live.line {
        line.answered(requests);
    }
}

async fn send(shared: &Arc<Shared>, live: &Live, message: Bytes) {
    match deliver(shared, &live.key, message).await {
        Ok(pushed_out) => lost(shared, live, &pushed_out),
        Err(error) => tracing::debug!(%error, "a message of a session found no stream"),
    }
}

/// Hands a message to the stream of the session. A client that has not made room for it in a minute
/// is too slow, and as it could not come back its session ends (EL-21).
pub(super) async fn deliver(
    shared: &Arc<Shared>,
    key: &SessionKey,
    message: Bytes,
) -> Result<Vec<Arc<str>>, LogError> {
    if let Some(pushed_out) = shared.rooms.log.deliver(key, message).await? {
        return Ok(pushed_out);
    }
    tracing::debug!("a session ends because its client is too slow");
    let (shared, key) = (Arc::clone(shared), key.clone());
    // Aside: the end of the session cancels the call that has found out.
    tokio::spawn(async move { finish(&shared, &key).await });
    Err(LogError::Gone)
}
