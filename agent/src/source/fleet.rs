//! Keeps one fleet stream to control open: dials, waits with patience, and tells the node's loop what happened.

use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;

use dormouse_fleet::client::{Backoff, Link, LinkError, connect, endpoint};
use dormouse_fleet::proto::{Down, Up};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, LinkError>> + Send>>;

/// What the loop has to know.
#[derive(Debug)]
pub enum Signal {
    /// A connection stands: answer with [`Source::open`].
    Connected,
    /// A message from control.
    Down(Box<Down>),
    /// The stream, or the attempt at one, is over; another attempt follows by itself.
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
    endpoint: Endpoint,
    backoff: Backoff,
    state: State,
}

impl Source {
    /// A source that will dial control at this URL.
    pub fn new(url: &str) -> Result<Self, LinkError> {
        let endpoint = endpoint(url)?;
        Ok(Self {
            endpoint,
            backoff: Backoff::new(),
            state: State::Waiting(Instant::now()),
        })
    }

    /// What happens next. Cancel safe: an attempt under way goes on when asked again.
    pub async fn next(&mut self) -> Signal {
        loop {
            match &mut self.state {
                State::Waiting(until) => {
                    // A moment, not a pause: the node's loop drops this wait at every other event.
                    tokio::time::sleep_until(*until).await;
                    self.state = State::Connecting(Box::pin(connect(self.endpoint.clone())));
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

    /// Opens the stream on the connection that stands, with this first message.
    pub fn open(&mut self, hello: Up) {
        if let State::Connected(channel) = &self.state {
            self.state = State::Opening(Box::pin(Link::open(channel.clone(), hello)));
        }
    }

    /// Whether a message can be sent now.
    pub fn has_room(&self) -> bool {
        matches!(&self.state, State::Open(link) if link.has_room())
    }

    /// Whether the stream stands.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Sends a message; ask [`Source::has_room`] before. A stream that ended meanwhile says so in [`Source::next`].
    pub fn send(&self, up: Up) {
        if let State::Open(link) = &self.state {
            let _ = link.send(up);
        }
    }

    /// Gives the stream up; another attempt follows.
    pub fn close(&mut self) {
        let pause = self.backoff.next(jitter());
        self.state = State::Waiting(Instant::now() + pause);
    }

    fn lost(&mut self, error: LinkError) -> Signal {
        self.close();
        Signal::Lost(error)
    }
}

/// Uniform in 0..1; nodes that lost control together shall not return together.
fn jitter() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_wait_that_is_dropped_again_and_again_still_ends() {
        let mut source = Source::new("http://[::1]:1").unwrap();
        source.state = State::Waiting(Instant::now() + Duration::from_millis(300));
        let events = async {
            while timeout(Duration::from_millis(20), source.next())
                .await
                .is_err()
            {}
        };
        timeout(Duration::from_secs(20), events)
            .await
            .expect("it never dialled");
    }
}
