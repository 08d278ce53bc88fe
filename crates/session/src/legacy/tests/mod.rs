//! Behaviour of sessions, over the real store and log, without sockets.

mod answers;
mod batches;
mod calls;
mod http_sse;
mod ledger;
mod lifecycle;
mod questions;
mod rounds;
mod streams;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use vestibule_exchange::{Call, Event, Events, Final, Inlet};

use crate::testing::{House, result};

pub(super) const RESULT: &str = r#"{"content":[{"type":"text","text":"hi"}]}"#;

/// A room below which every call ends at once.
pub(super) fn quick() -> House {
    House::new(|_| Events::ready(result(RESULT)))
}

/// What a test has in hand of the calls that reached the stage below.
#[derive(Clone, Default)]
pub(super) struct Below(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    calls: Vec<(Call, mpsc::Sender<Event>)>,
}

impl Below {
    /// A room whose calls say what the test tells them to.
    pub(super) fn house(&self) -> House {
        House::new(self.stage())
    }

    /// A room that comes after another one.
    pub(super) fn after(&self, house: &House) -> House {
        house.succeeded_by(self.stage())
    }

    fn stage(&self) -> impl Fn(Call) -> Events + Send + Sync + 'static {
        let seen = Arc::clone(&self.0);
        move |call| {
            let (events, mut told) = mpsc::channel(4096);
            seen.lock().unwrap().calls.push((call, events));
            Events::stream(futures_util::stream::poll_fn(move |cx| told.poll_recv(cx)))
        }
    }

    /// Tells the call number `index` an event; false when it has been dropped.
    pub(super) fn tell(&self, index: usize, event: Event) -> bool {
        self.0.lock().unwrap().calls[index]
            .1
            .try_send(event)
            .is_ok()
    }

    pub(super) fn end(&self, index: usize) -> bool {
        self.tell(index, Event::Final(result(RESULT)))
    }

    pub(super) fn is_dropped(&self, index: usize) -> bool {
        self.0.lock().unwrap().calls[index].1.is_closed()
    }

    pub(super) fn calls(&self) -> usize {
        self.0.lock().unwrap().calls.len()
    }

    pub(super) fn with<T>(&self, index: usize, look: impl FnOnce(&Call) -> T) -> T {
        look(&self.0.lock().unwrap().calls[index].0)
    }

    pub(super) fn inlet(&self, index: usize) -> Arc<dyn Inlet> {
        self.with(index, |call| {
            Arc::clone(call.inlet.as_ref().expect("a session's call has one"))
        })
    }
}

/// Lets everything that can run do so.
pub(super) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(super) fn error(code: i64) -> Final {
    Final::Error(vestibule_exchange::RpcError::new(code, "no"))
}
