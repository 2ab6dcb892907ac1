//! The client of control's fleet stream: connects, reconnects with backoff, and reports what happened to the node's loop.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use dormouse_fleet::client::{Backoff, Link, LinkError, Target, connect, jitter};
use dormouse_fleet::proto::{Down, Up};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Channel;

use super::fleet_logs::FleetLogs;

/// Time over which nodes spread their attempts to connect when control is probably back.
const SOON: Duration = Duration::from_secs(1);

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, LinkError>> + Send>>;

/// Events of the stream.
#[derive(Debug)]
pub enum Signal {
    /// The connection is established: answer with [`Source::open`].
    Connected,
    /// A message from control.
    Down(Box<Down>),
    /// The stream, or the attempt to connect, has ended; the next attempt follows without a call.
    Lost(LinkError),
}

enum State {
    Waiting(Instant),
    Connecting(Pending<Channel>),
    Connected(Channel),
    Opening(Pending<Link>),
    Open(Box<Link>),
}

/// The node's end of the fleet stream.
pub struct Source {
    target: Target,
    backoff: Backoff,
    state: State,
    logs: Option<FleetLogs>,
    /// Offers the logs on the connection of the stream.
    offer: Option<AbortOnDropHandle<()>>,
}

impl Source {
    /// A source that will connect to control, and offer these logs there.
    pub fn new(target: Target, logs: Option<FleetLogs>) -> Self {
        Self {
            target,
            backoff: Backoff::new(),
            state: State::Waiting(Instant::now()),
            logs,
            offer: None,
        }
    }

    /// The next event. Cancel safe: an attempt in progress continues with the next call.
    pub async fn next(&mut self) -> Signal {
        loop {
            match &mut self.state {
                State::Waiting(until) => {
                    // A deadline, not a sleep: the node's loop drops this future at every other event.
                    tokio::time::sleep_until(*until).await;
                    self.state = State::Connecting(Box::pin(connect(self.target.clone())));
                }
                State::Connecting(attempt) => match attempt.await {
                    Ok(channel) => {
                        self.state = State::Connected(channel);
                        return Signal::Connected;
                    }
                    Err(error) => return self.lost(error),
                },
                State::Connected(_) => return Signal::Connected,
                State::Opening(attempt) => match attempt.await {
                    Ok(link) => self.state = State::Open(Box::new(link)),
                    Err(error) => return self.lost(error),
                },
                State::Open(link) => {
                    let received = link.receive().await;
                    return match received {
                        Ok(down) => {
                            self.backoff = Backoff::new();
                            Signal::Down(Box::new(down))
                        }
                        Err(error) => self.lost(error),
                    };
                }
            }
        }
    }

    /// Opens the stream on the established connection, with this first message.
    pub fn open(&mut self, hello: Up) {
        if let State::Connected(channel) = &self.state {
            self.offer = self.logs.as_ref().map(|logs| logs.offer(channel.clone()));
            self.state = State::Opening(Box::pin(Link::open(channel.clone(), hello)));
        }
    }

    /// Whether the send queue has room for a message.
    pub fn has_room(&self) -> bool {
        matches!(&self.state, State::Open(link) if link.has_room())
    }

    /// Sends a message; check [`Source::has_room`] before. If the stream has ended, [`Source::next`] reports it.
    pub fn send(&self, up: Up) {
        if let State::Open(link) = &self.state {
            let _ = link.send(up);
        }
    }

    /// Closes the stream; the next attempt to connect follows.
    pub fn close(&mut self) {
        self.offer = None;
        let pause = self.backoff.next(jitter());
        self.state = State::Waiting(Instant::now() + pause);
    }

    /// An activator answers after a time in which none did: control is probably back, too, so the next attempt to connect is
    /// within a second.
    pub fn retry_soon(&mut self) {
        if let State::Waiting(until) = &mut self.state {
            self.backoff = Backoff::new();
            *until = (*until).min(Instant::now() + SOON.mul_f64(jitter()));
        }
    }

    fn lost(&mut self, error: LinkError) -> Signal {
        self.close();
        Signal::Lost(self.target.explained(error))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_fleet::client::endpoint;
    use tokio::time::timeout;

    use super::*;

    fn source() -> Source {
        Source::new(endpoint("http://[::1]:1").unwrap().into(), None)
    }

    #[tokio::test]
    async fn a_backoff_whose_future_is_dropped_repeatedly_still_ends() {
        let mut source = source();
        source.state = State::Waiting(Instant::now() + Duration::from_millis(300));
        let events = async {
            while timeout(Duration::from_millis(20), source.next())
                .await
                .is_err()
            {}
        };
        timeout(Duration::from_secs(20), events)
            .await
            .expect("it never connected");
    }

    #[tokio::test]
    async fn a_long_wait_ends_soon_when_control_is_probably_back_and_a_short_one_is_not_longer() {
        let mut source = source();
        let now = Instant::now();
        let waits = |source: &Source| match source.state {
            State::Waiting(until) => until,
            _ => panic!("it does not wait"),
        };
        source.state = State::Waiting(now + Duration::from_secs(30));
        source.retry_soon();
        assert!(waits(&source) <= Instant::now() + SOON);
        source.state = State::Waiting(now);
        source.retry_soon();
        assert_eq!(waits(&source), now);
    }
}
