//! Something that seldom happens, waited for beside something that happens all the time.
//!
//! A task does not know which of the things it waits for has woken it, so it would ask all of them each
//! time: most of a connection's wake-ups would be spent on locks of signals that are given once in the
//! life of a process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use pin_project_lite::pin_project;

pin_project! {
    /// A future that is polled only when it was woken itself.
    pub(crate) struct Rare<F> {
        #[pin]
        future: F,
        bell: Arc<Bell>,
        waker: Waker,
    }
}

/// What the future inside wakes.
#[derive(Debug)]
struct Bell {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F> Rare<F> {
    pub(crate) fn new(future: F) -> Self {
        let bell = Arc::new(Bell {
            rung: AtomicBool::new(true), // nobody has asked it yet
            task: AtomicWaker::new(),
        });
        Self {
            future,
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        }
    }
}

impl<F: Future> Future for Rare<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // before it is looked whether it has rung: who rings from now on wakes this task
        this.bell.task.register(cx.waker());
        if !this.bell.rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        this.future.poll(&mut Context::from_waker(this.waker))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn it_is_polled_only_when_it_was_woken() {
        let (signal, polls) = (Notify::new(), AtomicUsize::new(0));
        let mut waiting = std::pin::pin!(signal.notified());
        let mut rare = std::pin::pin!(Rare::new(poll_fn(|cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            waiting.as_mut().poll(cx)
        })));
        for _ in 0..3 {
            assert!(futures_util::poll!(rare.as_mut()).is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        signal.notify_one();
        rare.await; // and the task is woken
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
