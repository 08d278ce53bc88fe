//! Plain connections between two requests.
//!
//! By origin, and within it by the runtime that they were made on: a connection wakes the threads of
//! its own runtime only, so whoever used one of another would be woken from there, call after call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::uri::Authority;
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, sleep_until};
use vestibule_terms::FastHash;

use crate::plain::Link;

/// Connections that wait for their next request.
pub(crate) struct Pool {
    state: Mutex<State>,
    idle_timeout: Duration,
    max_idle: usize,
}

#[derive(Default)]
struct State {
    /// By host and port as they are written: who writes them otherwise shares nothing.
    resting: HashMap<Box<str>, Origin, FastHash>,
    /// Whether a task closes what rests for too long.
    swept: bool,
}

/// The connections to one origin.
#[derive(Default)]
struct Origin {
    /// How many there are, whosever they are.
    count: usize,
    /// There are as many runtimes as processors, so looking through them is no search.
    of_runtime: Vec<(Id, Vec<Resting>)>,
}

struct Resting {
    link: Box<Link>,
    since: Instant,
}

// === impl Origin ===

impl Origin {
    fn of(&mut self, runtime: Id) -> Option<&mut Vec<Resting>> {
        let mut all = self.of_runtime.iter_mut();
        all.find(|(id, _)| *id == runtime).map(|(_, links)| links)
    }

    fn put(&mut self, runtime: Id, resting: Resting) {
        self.count += 1;
        match self.of(runtime) {
            Some(links) => links.push(resting),
            None => self.of_runtime.push((runtime, vec![resting])),
        }
    }

    fn pop(&mut self, runtime: Id) -> Option<Box<Link>> {
        let resting = self.of(runtime)?.pop()?;
        self.count -= 1;
        Some(resting.link)
    }

    /// Moves those that are over to `closed`; since when the oldest of the others rests.
    fn close(
        &mut self,
        mut is_over: impl FnMut(&mut Resting) -> bool,
        closed: &mut Vec<Resting>,
    ) -> Option<Instant> {
        for (_, links) in &mut self.of_runtime {
            closed.extend(links.extract_if(.., &mut is_over));
        }
        self.of_runtime.retain(|(_, links)| !links.is_empty());
        let rest = self.of_runtime.iter().flat_map(|(_, links)| links);
        self.count = rest.clone().count();
        rest.map(|resting| resting.since).min()
    }
}

// === impl Pool ===

impl Pool {
    /// At most `max_idle` connections rest for one origin, none longer than `idle_timeout`.
    pub(crate) fn new(idle_timeout: Duration, max_idle: usize) -> Self {
        Self {
            state: Mutex::default(),
            idle_timeout,
            max_idle,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to `origin` that was used last and still lives.
    pub(crate) fn take(&self, origin: &Authority) -> Option<Box<Link>> {
        let runtime = Handle::try_current().ok()?.id();
        loop {
            let mut link = self.lock().resting.get_mut(origin.as_str())?.pop(runtime)?;
            if link.is_fit() {
                return Some(link);
            }
        }
    }

    pub(crate) fn put(self: &Arc<Self>, origin: &Authority, link: Box<Link>) {
        // where nothing runs, nothing is asked for again
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut state = self.lock();
        let links = match state.resting.get_mut(origin.as_str()) {
            Some(links) => links,
            None => state.resting.entry(Box::from(origin.as_str())).or_default(),
        };
        if links.count >= self.max_idle {
            drop(state); // sockets are closed without the lock
            return;
        }
        let since = Instant::now();
        links.put(runtime.id(), Resting { link, since });
        if !state.swept {
            state.swept = true;
            runtime.spawn(sweep(Arc::downgrade(self), self.idle_timeout));
        }
    }

    /// Closes what has rested for too long; when to look again, if anything is left.
    fn close_idle(&self, now: Instant) -> Option<Instant> {
        let mut closed = Vec::new();
        let mut next = None::<Instant>;
        let mut state = self.lock();
        state.resting.retain(|_, links| {
            let is_over = |rested: &mut Resting| now >= rested.since + self.idle_timeout;
            let oldest = links.close(is_over, &mut closed);
            next = next.into_iter().chain(oldest).min();
            oldest.is_some()
        });
        state.swept = next.is_some();
        drop(state); // sockets are closed without the lock
        next.map(|since| since + self.idle_timeout)
    }
}

/// Closes connections that nobody has used, as long as there are some.
async fn sweep(pool: Weak<Pool>, idle_timeout: Duration) {
    let mut next = Instant::now() + idle_timeout;
    loop {
        sleep_until(next).await;
        let Some(pool) = pool.upgrade() else { return };
        match pool.close_idle(Instant::now()) {
            Some(later) => next = later,
            None => return,
        }
    }
}
