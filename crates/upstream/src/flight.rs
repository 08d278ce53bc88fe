//! One attempt at a time, shared by all who need its outcome.
//!
//! The attempt runs in a task of its own: a waiter that gives up does not take it away from the
//! others, and a slow start (a container that is being pulled) goes on while callers with short
//! patience come and go.

use std::future::Future;
use std::sync::Mutex;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::locked;

/// A single flight of something that yields `T`.
#[derive(Debug)]
pub(crate) struct Flight<T>(Mutex<Option<watch::Receiver<Option<T>>>>);

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone + Send + Sync + 'static> Flight<T> {
    /// Joins the attempt that is under way, or starts one. None when the attempt died.
    pub(crate) async fn run<F>(&self, on: &Handle, start: impl FnOnce() -> F) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut outcome = self.join(on, start);
        let found = outcome.wait_for(Option::is_some).await.ok()?;
        (*found).clone()
    }

    /// Starts an attempt unless one is under way; does not wait.
    pub(crate) fn begin<F>(&self, on: &Handle, start: impl FnOnce() -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        drop(self.join(on, start));
    }

    fn join<F>(&self, on: &Handle, start: impl FnOnce() -> F) -> watch::Receiver<Option<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut slot = locked(&self.0);
        if let Some(running) = slot.as_ref().filter(|running| is_running(running)) {
            return running.clone();
        }
        let (tell, outcome) = watch::channel(None);
        let attempt = start();
        on.spawn(async move {
            let reached = attempt.await;
            tell.send_replace(Some(reached));
        });
        *slot = Some(outcome.clone());
        outcome
    }
}

/// Whether the attempt has neither ended nor died.
fn is_running<T>(outcome: &watch::Receiver<Option<T>>) -> bool {
    outcome.borrow().is_none() && outcome.has_changed().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Notify;

    /// Case 113: fifty callers at once make one attempt.
    #[tokio::test]
    async fn case_113_fifty_waiters_share_one_attempt() {
        let flight = Arc::new(Flight::default());
        let (starts, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let mut waiters = Vec::new();
        for _ in 0..50 {
            let (flight, starts, go) = (Arc::clone(&flight), Arc::clone(&starts), Arc::clone(&go));
            let attempt = async move {
                starts.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                7
            };
            waiters.push(tokio::spawn(async move {
                flight.run(&Handle::current(), || attempt).await
            }));
        }
        while starts.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        waiters.pop().unwrap().abort(); // one gives up
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap(), Some(7));
        }
        assert_eq!(starts.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn an_ended_attempt_is_not_joined() {
        let flight = Flight::default();
        let on = Handle::current();
        assert_eq!(flight.run(&on, || async { 1 }).await, Some(1));
        assert_eq!(flight.run(&on, || async { 2 }).await, Some(2));
    }
}
