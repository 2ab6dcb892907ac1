//! Connections that are closed so that they keep no places and no memory: those of clients that have shown no certificate and send no request,
//! and those whose client does not read a response on.

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
    open: Vec<Arc<Unread>>,
    /// The end of the last one, or the begin of the connection.
    since: Instant,
}

/// A request whose response is not complete; it ends when this is dropped.
#[derive(Debug)]
pub struct OpenRequest {
    requests: Requests,
    unread: Arc<Unread>,
}

/// Since when a response has something that its client does not read; none: it waits for the server, as a watch without changes does.
#[derive(Debug, Default)]
pub(crate) struct Unread(Mutex<Option<Instant>>);

/// The longest times of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Without a request; of a client without a certificate.
    pub(crate) idle: Option<Duration>,
    /// Without reading what an open response has.
    pub(crate) unread: Option<Duration>,
}

impl Requests {
    pub(crate) fn new() -> Self {
        let (open, since) = (Vec::new(), Instant::now());
        Self(Arc::new(Mutex::new(State { open, since })))
    }

    /// Begins a request.
    pub fn begin(&self) -> OpenRequest {
        let unread = Arc::<Unread>::default();
        self.0.lock().open.push(Arc::clone(&unread));
        let requests = self.clone();
        OpenRequest { requests, unread }
    }

    #[cfg(test)]
    pub(crate) fn is_any_open(&self) -> bool {
        !self.0.lock().open.is_empty()
    }
}

impl OpenRequest {
    pub(crate) fn unread(&self) -> &Arc<Unread> {
        &self.unread
    }
}

impl Unread {
    /// The response has something for its client, if it had nothing before.
    pub(crate) fn begin(&self) {
        self.0.lock().get_or_insert_with(Instant::now);
    }

    /// The client has taken what the response had.
    pub(crate) fn end(&self) {
        *self.0.lock() = None;
    }

    #[cfg(test)]
    pub(crate) fn is_begun(&self) -> bool {
        self.0.lock().is_some()
    }
}

impl State {
    /// The earliest time at which a limit can be exceeded; none: there is no limit.
    fn ends_at(&self, now: Instant, limits: Limits) -> Option<Instant> {
        let idle = || {
            if self.open.is_empty() {
                self.since
            } else {
                now
            }
        };
        let unread = || {
            let unread = self.open.iter().filter_map(|one| *one.0.lock());
            unread.min().unwrap_or(now)
        };
        let idle = limits.idle.map(|longest| idle() + longest);
        let unread = limits.unread.map(|longest| unread() + longest);
        idle.into_iter().chain(unread).min()
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.requests.0.lock();
        state.open.retain(|one| !Arc::ptr_eq(one, &self.unread));
        state.since = Instant::now();
    }
}

/// The limits of a connection at work.
#[derive(Debug)]
pub(crate) struct Limit {
    requests: Requests,
    limits: Limits,
    timer: Pin<Box<Sleep>>,
}

impl Limit {
    /// None: there is no limit.
    pub(crate) fn new(requests: Requests, limits: Limits) -> Option<Self> {
        let first = requests.0.lock().ends_at(Instant::now(), limits)?;
        Some(Self {
            requests,
            limits,
            timer: Box::pin(tokio::time::sleep_until(first)),
        })
    }

    /// Ready when a limit is exceeded.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            match self.requests.0.lock().ends_at(now, self.limits) {
                Some(until) if until > now => self.timer.as_mut().reset(until),
                _ => return Poll::Ready(()),
            }
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
        let limits = Limits {
            idle: Some(LONGEST),
            unread: None,
        };
        let requests = Requests::new();
        let idle_at = |now| requests.0.lock().ends_at(now, limits).unwrap();
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

    #[test]
    fn a_connection_is_unread_from_the_oldest_of_what_its_open_responses_have() {
        let limits = Limits {
            idle: None,
            unread: Some(LONGEST),
        };
        let requests = Requests::new();
        let later = Instant::now() + 5 * LONGEST;
        let waits = || later + LONGEST;
        let ends_at = || requests.0.lock().ends_at(later, limits).unwrap();
        assert_eq!(ends_at(), waits());
        let [first, second] = [requests.begin(), requests.begin()];
        assert_eq!(ends_at(), waits());
        first.unread().begin();
        let oldest = ends_at();
        assert!(oldest < waits());
        second.unread().begin();
        first.unread().begin();
        assert_eq!(ends_at(), oldest);
        first.unread().end();
        assert!(ends_at() > oldest && ends_at() < waits());
        drop(second);
        assert_eq!(ends_at(), waits());
    }
}
