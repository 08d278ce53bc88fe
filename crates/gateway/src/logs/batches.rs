//! Lines on their way to stderr: gathered, and written together by a thread of their own.
//!
//! The thread is woken by the first line after a pause, lets a few milliseconds of lines gather and
//! writes them at once, so that the number of system calls does not grow with the number of
//! requests. What waits is bounded: whoever finds the buffer full writes it out himself, as slowly
//! as stderr takes it. Nothing is dropped.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long lines gather.
const GATHER: Duration = Duration::from_millis(5);
/// Bytes that may wait; a line more than that is written by whoever says it.
const MAX_WAITING: usize = 1024 * 1024;
/// Bytes of an empty buffer that are kept for the next lines.
const KEPT: usize = 64 * 1024;

/// Where lines are handed over.
#[derive(Clone)]
pub(super) struct Batches(Arc<Shared>);

/// Writes what still waits, and ends the thread, when dropped.
#[must_use = "lines that still wait are written when this value is dropped"]
pub struct Flush {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// Held while a batch is written, so that batches do not overtake each other; between two it
    /// keeps the buffer that will be filled next.
    output: Mutex<Vec<u8>>,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    urgent: bool,
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Batches ===

impl Batches {
    /// Starts the thread. Without one (the system gives none) lines are written when the buffer is
    /// full and at the end.
    pub(super) fn start() -> (Self, Flush) {
        let shared = Arc::new(Shared::default());
        let writing = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writing.write_until_over());
        let flush = Flush {
            shared: Arc::clone(&shared),
            thread: thread.ok(),
        };
        (Self(shared), flush)
    }

    /// Hands over one line with its end. An urgent one does not wait for others.
    pub(super) fn push(&self, line: &[u8], urgent: bool) {
        let mut waiting = lock(&self.0.waiting);
        let first = waiting.lines.is_empty();
        waiting.lines.extend_from_slice(line);
        waiting.urgent |= urgent;
        let full = waiting.lines.len() >= MAX_WAITING;
        let over = waiting.over;
        drop(waiting);
        if full || over {
            self.0.write();
        } else if first || urgent {
            self.0.wake.notify_one();
        }
    }
}

// === impl Shared ===

impl Shared {
    fn write_until_over(&self) {
        let mut waiting = lock(&self.waiting);
        while !waiting.over {
            waiting = self
                .wake
                .wait_while(waiting, |waiting| waiting.lines.is_empty() && !waiting.over)
                .unwrap_or_else(PoisonError::into_inner);
            waiting = self
                .wake
                .wait_timeout_while(waiting, GATHER, |waiting| !waiting.urgent && !waiting.over)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            drop(waiting);
            self.write();
            waiting = lock(&self.waiting);
        }
    }

    /// Writes what waits.
    fn write(&self) {
        let mut output = lock(&self.output);
        {
            let mut waiting = lock(&self.waiting);
            std::mem::swap(&mut waiting.lines, &mut output);
            waiting.urgent = false;
        }
        // nobody is left to be told that stderr is closed
        let _closed = std::io::stderr().lock().write_all(&output);
        output.clear();
        output.shrink_to(KEPT);
    }
}

// === impl Flush ===

impl Drop for Flush {
    fn drop(&mut self) {
        lock(&self.shared.waiting).over = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
        self.shared.write();
    }
}

impl std::fmt::Debug for Flush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flush")
    }
}
