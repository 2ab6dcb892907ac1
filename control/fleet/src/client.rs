//! The node's gRPC client of the fleet stream, and the back-off between connection attempts.

mod plain;
mod secured;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_rustls::rustls::ClientConfig;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::proto::fleet_client::FleetClient;
use crate::proto::{Down, LogChunk, LogHello, LogRequest, Up};
pub use plain::plain;

/// Capacity of the channel to the stream. While it is full, the node's core merges further changes.
const UP_MAX: usize = 4;
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of HTTP/2 keepalive pings, and the timeout of their replies.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Limit of one message: room for the complete list of a node's pods.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Errors of the connection to control and of its stream.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The address is not a URL.
    #[error("control's address {address:?} is not a URL like https://[2001:db8::c]:7443")]
    Address {
        /// The configured address.
        address: String,
        /// The parser's error.
        #[source]
        source: tonic::transport::Error,
    },
    /// The URL has no host with which TLS can be spoken.
    #[error("control's address {0:?} is not a URL like https://[2001:db8::c]:7443")]
    Host(String),
    /// The process has no certificate, which the URL needs.
    #[error(
        "there is no certificate for {url}: run `{invitation}`, and start this with --join and the line that it prints"
    )]
    NoCertificate {
        /// The URL.
        url: String,
        /// The command that makes a line.
        invitation: String,
    },
    /// The URL has no TLS, and is that of another host.
    #[error("{url} is plain text to another host: write https://{remedy}")]
    PlainText {
        /// The URL.
        url: String,
        /// How the process gets a certificate.
        remedy: String,
    },
    /// The connection could not be established.
    #[error("failed to connect to control")]
    Connect(#[source] tonic::transport::Error),
    /// Control ended the connection, and said why after the handshake of TLS.
    #[error("control refused the connection: {0}")]
    Refused(String),
    /// Control refused the stream or ended it with an error.
    #[error("control ended the stream")]
    Ended(#[source] Box<tonic::Status>),
    /// Control closed the stream without an error.
    #[error("control closed the stream")]
    Closed,
}

impl From<tonic::Status> for LinkError {
    fn from(status: tonic::Status) -> Self {
        Self::Ended(Box::new(status))
    }
}

/// Control, and how it is reached.
#[derive(Clone, Debug)]
pub struct Target {
    endpoint: Endpoint,
    tls: Option<secured::Connector>,
}

impl Target {
    /// Control at a URL `https://…`, with the TLS of this configuration.
    pub fn secured(address: &str, config: Arc<ClientConfig>) -> Result<Self, LinkError> {
        let tls = secured::Connector::new(address, config);
        let tls = tls.ok_or_else(|| LinkError::Host(address.to_owned()))?;
        // The connector does TLS itself: tonic refuses `https` with one, where its own TLS is compiled in.
        let plain = format!("http://{}", tls.authority());
        Ok(Self {
            tls: Some(tls),
            endpoint: endpoint(&plain)?,
        })
    }
}

impl From<Endpoint> for Target {
    fn from(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            tls: None,
        }
    }
}

/// The endpoint of control at `address`, with timeouts and keepalive set.
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

impl Target {
    /// Whether its connections have TLS.
    pub fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// With other settings of its endpoint, such as timeouts.
    #[must_use]
    pub fn adjusted(mut self, adjust: impl FnOnce(Endpoint) -> Endpoint) -> Self {
        self.endpoint = adjust(self.endpoint);
        self
    }

    /// The error of a call, or the reason for which the server has ended a connection since the last one: it says so after the handshake, when a
    /// call may still wait for its turn, whose error does not have the reason.
    #[must_use]
    pub fn explained(&self, error: LinkError) -> LinkError {
        let refusal = self.tls.as_ref().and_then(secured::Connector::take_refusal);
        refusal.map_or(error, LinkError::Refused)
    }

    /// A channel that connects on first use and reconnects.
    pub fn lazy(self) -> Channel {
        match self.tls {
            None => self.endpoint.connect_lazy(),
            Some(tls) => self.endpoint.connect_with_connector_lazy(tls.service()),
        }
    }
}

/// Connects. [`Link::open`] then opens the stream, with a first message made after the connection stands.
pub async fn connect(target: impl Into<Target>) -> Result<Channel, LinkError> {
    let Target { endpoint, tls } = target.into();
    let connected = match tls {
        None => endpoint.connect().await,
        Some(tls) => endpoint.connect_with_connector(tls.service()).await,
    };
    connected.map_err(LinkError::Connect)
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

    /// Receives the next message from control. Cancel safe.
    pub async fn receive(&mut self) -> Result<Down, LinkError> {
        self.down.message().await?.ok_or(LinkError::Closed)
    }

    /// Whether the stream accepts a message now.
    pub fn has_room(&self) -> bool {
        self.up.capacity() > 0
    }

    /// Sends a message. It is lost if the channel is full: check [`Link::has_room`] first.
    pub fn send(&self, up: Up) -> Result<(), LinkError> {
        self.up
            .try_send(up)
            .map_err(|_full_or_closed| LinkError::Closed)
    }
}

/// The stream of requests for the logs of the node's pods, on the same connection.
pub struct LogLink {
    client: FleetClient<Channel>,
    requests: Streaming<LogRequest>,
}

impl LogLink {
    /// Offers the logs of this node.
    pub async fn open(channel: Channel, node: String) -> Result<Self, LinkError> {
        let mut client = FleetClient::new(channel);
        let requests = client.follow_logs(LogHello { node }).await?.into_inner();
        Ok(Self { client, requests })
    }

    /// The next request. Cancel safe.
    pub async fn receive(&mut self) -> Result<LogRequest, LinkError> {
        self.requests.message().await?.ok_or(LinkError::Closed)
    }

    /// Sends the answer to a request; its first message has the request's id. Resolves when control has it all, or wants no more.
    pub fn answer(
        &self,
        chunks: mpsc::Receiver<LogChunk>,
    ) -> impl Future<Output = Result<(), LinkError>> + Send + use<> {
        let mut client = self.client.clone();
        async move {
            client.send_log(ReceiverStream::new(chunks)).await?;
            Ok(())
        }
    }
}

/// Uniform in 0..1, so that clients that lost control together do not reconnect together.
pub fn jitter() -> f64 {
    let random = RandomState::new().hash_one(0) >> 32;
    f64::from(u32::try_from(random).unwrap_or(0)) / f64::from(u32::MAX)
}

/// Exponential back-off with full jitter between connection attempts: from 50 ms to 30 s.
#[derive(Clone, Debug)]
pub struct Backoff {
    ceiling: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LAST: Duration = Duration::from_secs(30);

    /// The state after a working connection.
    pub fn new() -> Self {
        Self {
            ceiling: Self::FIRST,
        }
    }

    /// The wait before the next attempt; `jitter` is uniform in 0..1.
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
    fn the_back_off_doubles_up_to_half_a_minute_and_is_scaled_by_the_jitter() {
        let mut backoff = Backoff::new();
        assert_eq!(backoff.next(0.0), Duration::ZERO);
        assert_eq!(backoff.next(1.0), Duration::from_millis(100));
        let last = (0..20).map(|_| backoff.next(1.0)).last().unwrap();
        assert_eq!(last, Duration::from_secs(30));
    }

    #[test]
    fn an_invalid_address_is_named_in_the_error() {
        let error = endpoint("not a url").unwrap_err();
        assert!(error.to_string().contains("\"not a url\""), "{error}");
    }
}
