//! Idle connections of clients that have shown no certificate: they are closed, so that they keep no places of others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

/// The requests of a connection, as its server counts them.
#[derive(Clone, Debug)]
pub struct Requests(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    open: usize,
    /// The end of the last one, or the begin of the connection.
    since: Instant,
}

/// A request whose response is not complete; it ends when this is dropped.
#[derive(Debug)]
pub struct OpenRequest(Requests);

impl Requests {
    pub(crate) fn new() -> Self {
        let since = Instant::now();
        Self(Arc::new(Mutex::new(State { open: 0, since })))
    }

    /// Begins a request.
    pub fn begin(&self) -> OpenRequest {
        self.0.lock().open += 1;
        OpenRequest(self.clone())
    }
}

impl State {
    /// The earliest time at which there can have been no request for so long.
    fn idle_at(&self, now: Instant, longest: Duration) -> Instant {
        let since = if self.open == 0 { self.since } else { now };
        since + longest
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.open -= 1;
        state.since = Instant::now();
    }
}

/// The limit of a connection without requests.
#[derive(Debug)]
pub(crate) struct Limit {
    requests: Requests,
    longest: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Limit {
    pub(crate) fn new(requests: Requests, longest: Duration) -> Self {
        Self {
            requests,
            longest,
            timer: Box::pin(tokio::time::sleep(longest)),
        }
    }

    /// Ready when there was no request for so long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let until = self.requests.0.lock().idle_at(now, self.longest);
            if until <= now {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(10);

    #[test]
    fn a_connection_is_idle_when_its_last_request_has_ended_for_the_limit() {
        let requests = Requests::new();
        let idle_at = |now| requests.0.lock().idle_at(now, LONGEST);
        let began = requests.0.lock().since;
        let later = began + 5 * LONGEST;
        assert_eq!(idle_at(later), began + LONGEST);
        let open = [requests.begin(), requests.begin()];
        assert_eq!(idle_at(later), later + LONGEST);
        let [first, second] = open;
        drop(first);
        assert_eq!(idle_at(later), later + LONGEST);
        drop(second);
        let ended = requests.0.lock().since;
        assert!(ended > began);
        assert_eq!(idle_at(later), ended + LONGEST);
    }
}
