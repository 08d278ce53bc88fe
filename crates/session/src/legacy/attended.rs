//! A call while its client waits for the first answer: it runs inside that wait, and in a task of
//! its own only from the moment it has to outlive it.
//!
//! Most calls end before anything else is said. They need no task, no queue and no second thread
//! to wake; a call whose client goes, or whose answer becomes a stream, goes on by itself (SSE-09).

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::sink::First;

/// The wait for what comes first. Dropping it lets the call go on.
pub(super) struct Attended {
    call: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    first: oneshot::Receiver<First>,
}

impl Attended {
    /// Runs `call`, which says what comes first to the other end of `first`.
    pub(super) fn new(
        call: impl Future<Output = ()> + Send + 'static,
        first: oneshot::Receiver<First>,
    ) -> Self {
        Self {
            call: Some(Box::pin(call)),
            first,
        }
    }
}

impl Future for Attended {
    type Output = Result<First, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(mut call) = self.call.take() {
            // As a task would: a panic ends the call and says so by the end of `first` (ERR-01).
            let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
            if matches!(polled, Ok(Poll::Pending)) {
                self.call = Some(call);
            }
        }
        Pin::new(&mut self.first).poll(cx)
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        // without a runtime the process is over, and the call with it
        if let (Some(call), Ok(runtime)) = (self.call.take(), Handle::try_current()) {
            runtime.spawn(call);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    /// SSE-09: whoever waits may go at any time; the call does not notice.
    #[tokio::test]
    async fn sse_09_a_call_that_nobody_waits_for_goes_on() {
        let (go, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (sender, first) = oneshot::channel();
        let call = {
            let (go, done) = (Arc::clone(&go), Arc::clone(&done));
            async move {
                go.notified().await;
                let nobody_waits = sender.send(First::Json(vec![None])).is_err();
                assert!(nobody_waits);
                done.notify_one();
            }
        };
        let mut attended = Attended::new(call, first);
        assert!(futures_util::poll!(&mut attended).is_pending());
        drop(attended);
        go.notify_one();
        done.notified().await;
    }

    #[tokio::test]
    async fn a_call_that_ends_at_once_needs_no_task() {
        let (sender, first) = oneshot::channel();
        let call = async move {
            let _waits = sender.send(First::Json(vec![None]));
        };
        let mut attended = Attended::new(call, first);
        let polled = futures_util::poll!(&mut attended);
        assert!(matches!(polled, Poll::Ready(Ok(First::Json(_)))));
        assert!(attended.call.is_none());
    }
}
