//! Threads that serve connections, each with a runtime of its own (ADR 11).
//!
//! A connection is given to the worker that has the fewest and stays there with everything that is done
//! for it: its requests, their upstream connections, its timers. So no call wakes another thread, which
//! costs more than most calls do, and none waits for one. The price: a connection is not moved away
//! from a worker that happens to be busy.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The workers. Clones are the same ones; they end when the last is dropped, and what still runs on
/// them ends with them.
///
/// The default has none: connections are then served by the runtime that accepts them.
#[derive(Debug, Clone, Default)]
pub struct Workers(Option<Arc<Pool>>);

#[derive(Debug)]
struct Pool {
    workers: Vec<Worker>,
    _over: DropGuard,
}

#[derive(Debug)]
struct Worker {
    handle: Handle,
    /// Connections it has now.
    open: Arc<AtomicUsize>,
}

/// A connection's place on its worker, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

// === impl Workers ===

impl Workers {
    /// Starts so many.
    ///
    /// # Errors
    /// A thread or a runtime that the system does not give.
    pub fn start(count: usize) -> io::Result<Self> {
        let over = CancellationToken::new();
        let workers = (0..count.max(1))
            .map(|number| Worker::start(number, over.clone()))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self(Some(Arc::new(Pool {
            workers,
            _over: over.drop_guard(),
        }))))
    }

    /// Starts as many as this process may use processors at a time.
    ///
    /// # Errors
    /// A thread or a runtime that the system does not give.
    pub fn start_all() -> io::Result<Self> {
        Self::start(thread::available_parallelism().map_or(1, usize::from))
    }

    /// The runtime of each.
    pub fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        let pool = self.0.as_deref();
        pool.into_iter()
            .flat_map(|pool| pool.workers.iter().map(|worker| &worker.handle))
    }

    /// The worker with the fewest connections, which has one more from now on; none without workers.
    /// Asked by one task only: two at a time could choose the same one.
    pub(crate) fn choose(&self) -> Option<(&Handle, Place)> {
        let workers = &self.0.as_deref()?.workers;
        let count = |worker: &&Worker| worker.open.load(Ordering::Relaxed);
        let worker = workers.iter().min_by_key(count)?;
        worker.open.fetch_add(1, Ordering::Relaxed);
        Some((&worker.handle, Place(Arc::clone(&worker.open))))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Worker ===

impl Worker {
    fn start(number: usize, over: CancellationToken) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || {
                runtime.block_on(over.cancelled());
                // what waits in a thread of its own (a name that is looked up) holds up no end
                runtime.shutdown_background();
            })?;
        Ok(Self {
            handle,
            open: Arc::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_goes_to_the_worker_with_the_fewest() {
        let workers = Workers::start(2).unwrap();
        let all: Vec<_> = workers.runtimes().map(Handle::id).collect();
        let (first, place) = workers.choose().unwrap();
        let (second, _kept) = workers.choose().unwrap();
        assert_eq!([first.id(), second.id()], [all[0], all[1]]);
        drop(place);
        for _ in 0..2 {
            let (next, place) = workers.choose().unwrap();
            assert_eq!(next.id(), all[0], "it has none");
            drop(place);
        }
        assert!(Workers::default().choose().is_none());
    }

    /// What runs on a worker ends with the workers.
    #[tokio::test]
    async fn the_last_handle_ends_the_workers() {
        let workers = Workers::start(1).unwrap();
        let running = {
            let runtime = workers.runtimes().next().unwrap();
            runtime.spawn(std::future::pending::<()>())
        };
        let other = workers.clone();
        drop(workers);
        assert!(!running.is_finished());
        drop(other);
        assert!(running.await.unwrap_err().is_cancelled());
    }
}
