//! The end of responses whose client does not read. hyper does not poll the body of such a response, so the body's own
//! deadline does not end it: the task that sends it is dropped instead, which aborts the connection or the stream.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Time from a deadline to the abort: the error response that the deadline itself causes is sent in it.
const GRACE: Duration = Duration::from_millis(100);

tokio::task_local! {
    static CURRENT: Arc<Cutoff>;
}

/// The responses of one task: an HTTP/1.1 connection, or an HTTP/2 stream.
#[derive(Default)]
struct Cutoff(Mutex<State>);

#[derive(Default)]
struct State {
    /// Responses that have not ended.
    responses: usize,
    /// Of the latest.
    deadline: Option<Instant>,
}

/// A response in progress in the current task; dropped at its end.
pub(crate) struct Response(Option<Arc<Cutoff>>);

impl Response {
    /// A response of the current task that ends by `deadline`.
    pub(crate) fn until(deadline: Instant) -> Self {
        let cutoff = CURRENT.try_with(Arc::clone).ok();
        if let Some(cutoff) = &cutoff {
            let mut state = cutoff.0.lock();
            state.responses += 1;
            state.deadline = Some(deadline);
        }
        Self(cutoff)
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        if let Some(cutoff) = &self.0 {
            cutoff.0.lock().responses -= 1;
        }
    }
}

impl Cutoff {
    fn abort_at(&self) -> Option<Instant> {
        let state = self.0.lock();
        let deadline = state.deadline.filter(|_| state.responses > 0);
        deadline.map(|deadline| deadline + GRACE)
    }
}

/// Runs a connection or stream; `None` if a response in it did not end by its deadline.
pub(crate) async fn enforced<F: Future>(task: F) -> Option<F::Output> {
    let cutoff = Arc::new(Cutoff::default());
    let mut task = std::pin::pin!(CURRENT.scope(Arc::clone(&cutoff), task));
    let mut timer = None;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = task.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        // Responses begin while the task is polled, so no other wakeup is needed.
        let Some(at) = cutoff.abort_at() else {
            return Poll::Pending;
        };
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        // A timer of an earlier response is moved when it fires, not for each response.
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= at {
                return Poll::Ready(None);
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    })
    .await
}
