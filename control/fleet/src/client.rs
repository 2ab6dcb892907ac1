//! A node's end of the connection: dials control, and comes back with patience when it is away.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::proto::fleet_client::FleetClient;
use crate::proto::{Down, Up};

/// Messages on their way to the wire; while it is full the node's half gathers on.
const UP_MAX: usize = 4;
/// A connection attempt is given up after this long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a silent connection is asked whether it lives, and how long it may take to answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// A complete list of a node's pods fits.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The address is no URI.
    #[error("control's address {address:?} is not a URL like http://[2001:db8::c]:7443")]
    Address {
        /// As it was given.
        address: String,
        /// What is wrong with it.
        #[source]
        source: tonic::transport::Error,
    },
    /// No connection.
    #[error("failed to connect to control")]
    Connect(#[source] tonic::transport::Error),
    /// Control refused or ended the stream.
    #[error("control ended the stream")]
    Ended(#[source] Box<tonic::Status>),
    /// Control closed the stream in order.
    #[error("control closed the stream")]
    Closed,
}

impl From<tonic::Status> for LinkError {
    fn from(status: tonic::Status) -> Self {
        Self::Ended(Box::new(status))
    }
}

/// Checks control's address and sets how connections to it behave.
pub fn endpoint(address: &str) -> Result<Endpoint, LinkError> {
    let wrong = |source| LinkError::Address {
        address: address.to_owned(),
        source,
    };
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(wrong)?;
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .initial_connection_window_size(1 << 20)
        .tcp_nodelay(true))
}

/// Connects; the stream is opened by [`Link::open`], whose first message shall tell the state of that moment.
pub async fn connect(endpoint: Endpoint) -> Result<Channel, LinkError> {
    endpoint.connect().await.map_err(LinkError::Connect)
}

/// An open stream.
pub struct Link {
    up: mpsc::Sender<Up>,
    down: Streaming<Down>,
}

impl Link {
    /// Opens the stream with its first message.
    pub async fn open(channel: Channel, hello: Up) -> Result<Self, LinkError> {
        let (up, ups) = mpsc::channel(UP_MAX);
        // The channel is empty: this never waits.
        up.send(hello).await.map_err(|_closed| LinkError::Closed)?;
        let mut client = FleetClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let down = client.follow(ReceiverStream::new(ups)).await?.into_inner();
        Ok(Self { up, down })
    }

    /// The next message from control. Cancel safe.
    pub async fn receive(&mut self) -> Result<Down, LinkError> {
        self.down.message().await?.ok_or(LinkError::Closed)
    }

    /// Whether the wire takes a message now.
    pub fn has_room(&self) -> bool {
        self.up.capacity() > 0
    }

    /// Sends a message if the wire takes it: ask [`Link::has_room`] first, or it is lost.
    pub fn send(&self, up: Up) -> Result<(), LinkError> {
        self.up
            .try_send(up)
            .map_err(|_full_or_closed| LinkError::Closed)
    }
}

/// Full-jitter back-off between attempts: quick at first, at most 30 s.
#[derive(Clone, Debug)]
pub struct Backoff {
    ceiling: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LAST: Duration = Duration::from_secs(30);

    /// Starts anew, after a connection that worked.
    pub fn new() -> Self {
        Self {
            ceiling: Self::FIRST,
        }
    }

    /// How long to wait before the next attempt; `jitter` is uniform in 0..1.
    pub fn next(&mut self, jitter: f64) -> Duration {
        let wait = self.ceiling.mul_f64(jitter.clamp(0.0, 1.0));
        self.ceiling = (self.ceiling * 2).min(Self::LAST);
        wait
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_spread_and_slow_down_to_half_a_minute() {
        let mut backoff = Backoff::new();
        assert_eq!(backoff.next(0.0), Duration::ZERO);
        assert_eq!(backoff.next(1.0), Duration::from_millis(100));
        let last = (0..20).map(|_| backoff.next(1.0)).last().unwrap();
        assert_eq!(last, Duration::from_secs(30));
    }

    #[test]
    fn an_address_that_is_no_url_is_named_in_the_error() {
        let error = endpoint("not a url").unwrap_err();
        assert!(error.to_string().contains("\"not a url\""), "{error}");
    }
}
