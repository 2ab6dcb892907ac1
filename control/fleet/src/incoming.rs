//! Accepted TCP connections, limited in number: the clients of one server cannot use up the file descriptors of the others
//! in its process. With TLS, a connection takes a place once its handshake has succeeded; handshakes have places of their own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::either::Either;

#[cfg(doc)]
use crate::connection::Access;
use crate::connection::{Connection, Peer};
use crate::idle::Limits;
use crate::places::Places;
use crate::secured::{PlainText, Secured};

/// Pause after a failed accept: the process may be out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// The part of a listener's connections that are in a handshake, and the most.
const HANDSHAKES: usize = 4;
const HANDSHAKES_MAX: usize = 4_096;
/// Idle seconds until the kernel probes whether a client is still there, from one probe to the next, and the probes that it may miss.
const PROBE_AFTER: u32 = 30;
const PROBE_EVERY: u32 = 10;
const PROBES: u32 = 3;
/// Milliseconds for which a client may acknowledge nothing, or have no room for what is sent.
const UNACKNOWLEDGED_MAX: u32 = 1_000 * (PROBE_AFTER + PROBES * PROBE_EVERY);
/// Longest life of a connection of plain text that is answered: its server counts no requests.
const PLAIN_TEXT_MAX: Duration = Duration::from_secs(10);

/// A listener with a limit of open connections. Without TLS, further ones wait in the kernel's backlog; with it, those whose clients have
/// shown a certificate wait for a place.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    connections_max: usize,
    accepting: Accepting,
    limits: Limits,
}

#[derive(Debug)]
enum Accepting {
    Plain(Places),
    Secured(Box<Secured>),
}

impl Incoming {
    /// Accepts on `listener` while fewer than `connections_max` of its connections are open.
    pub fn new(listener: TcpListener, connections_max: usize) -> Self {
        Self {
            listener,
            connections_max,
            accepting: Accepting::Plain(Places::new(connections_max)),
            limits: Limits::default(),
        }
    }

    /// With TLS. Plain text is refused.
    #[must_use]
    pub fn secured(self, config: Arc<ServerConfig>) -> Self {
        self.with_handshakes(config, PlainText::Closed)
    }

    /// With TLS. A client without it is accepted as [`Access::PlainText`], for a server that answers it with the reason.
    #[must_use]
    pub fn secured_with_reason(self, config: Arc<ServerConfig>) -> Self {
        self.with_handshakes(config, PlainText::Answered)
    }

    fn with_handshakes(self, config: Arc<ServerConfig>, plain_text: PlainText) -> Self {
        let places = Places::new(clients_max(self.connections_max));
        let handshakes = handshakes_max(self.connections_max);
        let idle = (plain_text == PlainText::Answered).then_some(PLAIN_TEXT_MAX);
        Self {
            accepting: Accepting::Secured(Box::new(Secured::new(
                config, plain_text, places, handshakes,
            ))),
            limits: Limits {
                idle: idle.or(self.limits.idle),
                ..self.limits
            },
            ..self
        }
    }

    /// Closes connections of clients without a certificate that have had no request for so long, as the server counts them
    /// ([`Peer::requests`]).
    #[must_use]
    pub fn closing_idle(mut self, longest: Duration) -> Self {
        self.limits.idle = Some(longest);
        self
    }

    /// Closes connections whose client has not read for so long what an open response has, as the server counts them.
    #[must_use]
    pub fn closing_unread(mut self, longest: Duration) -> Self {
        self.limits.unread = Some(longest);
        self
    }

    /// The next connection. Cancel safe.
    pub async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (connection, address) = self.accept_unlimited().await;
        (connection.limited(self.limits), address)
    }

    async fn accept_unlimited(&mut self) -> (Connection, SocketAddr) {
        let secured = match &mut self.accepting {
            Accepting::Secured(secured) => secured,
            Accepting::Plain(places) => {
                let place = places.any().await;
                let (stream, address) = accept(&self.listener).await;
                let peer = Peer {
                    address: Some(address),
                    ..Peer::default()
                };
                let stream = Either::Left(stream);
                return (Connection::new(stream, peer, place), address);
            }
        };
        loop {
            // Thousands of clients may connect at once: what else is ready has a turn after each.
            tokio::task::yield_now().await;
            let is_any = !secured.is_empty();
            tokio::select! {
                ended = secured.ended(), if is_any => if let Some(connection) = ended {
                    return connection;
                },
                (stream, address) = accept(&self.listener) => secured.begin(stream, address),
            }
        }
    }

    /// The most clients that are connected at a time, without those in a handshake of TLS.
    pub fn clients_max(&self) -> usize {
        match &self.accepting {
            Accepting::Secured(_) => clients_max(self.connections_max),
            Accepting::Plain(_) => self.connections_max,
        }
    }

    /// The listener's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The URL at which it is reached, by the listener's address.
    pub fn url(&self) -> io::Result<String> {
        let scheme = match &self.accepting {
            Accepting::Secured(_) => "https",
            Accepting::Plain(_) => "http",
        };
        Ok(format!("{scheme}://{}", self.local_addr()?))
    }

    /// All further connections.
    pub fn connections(self) -> impl Stream<Item = io::Result<Connection>> {
        futures::stream::unfold(self, async |mut incoming| {
            let (connection, _peer) = incoming.accept().await;
            Some((Ok(connection), incoming))
        })
    }
}

/// The handshakes that run at a time, of so many connections.
fn handshakes_max(connections_max: usize) -> usize {
    (connections_max / HANDSHAKES).clamp(1, HANDSHAKES_MAX)
}

/// The connections whose handshake is over, of so many.
fn clients_max(connections_max: usize) -> usize {
    connections_max.saturating_sub(handshakes_max(connections_max))
}

/// One without TLS, and without a limit of its own.
impl From<TcpListener> for Incoming {
    fn from(listener: TcpListener) -> Self {
        Self::new(listener, Semaphore::MAX_PERMITS)
    }
}

/// The next connection of a listener. Cancel safe.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // The client may have closed the connection already; the first read finds that.
                let _ = prepare(&stream);
                return (stream, address);
            }
            Err(_out_of_descriptors) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Sends small messages at once, and lets the kernel end the connection of a client that is gone, or does not read.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &PROBE_AFTER)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &PROBE_EVERY)?;
    setsockopt(stream, sockopt::TcpKeepCount, &PROBES)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &UNACKNOWLEDGED_MAX)?;
    Ok(())
}

#[cfg(test)]
mod tests;
