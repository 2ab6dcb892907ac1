//! Accepted TCP connections, limited in number: the clients of one server cannot use up the file descriptors of the others
//! in its process. With TLS, a connection is accepted once its handshake has succeeded; handshakes wait for each other only at their limit.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dormouse_trust::Client;
use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

use crate::secured::{Handshakes, PlainText};

/// Pause after a failed accept: the process may be out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A listener with a limit of open connections. Further ones wait in the kernel's backlog.
#[derive(Debug)]
pub struct Incoming {
    listener: Listener,
    handshakes: Option<Handshakes>,
}

#[derive(Debug)]
struct Listener {
    tcp: TcpListener,
    permits: Arc<Semaphore>,
}

/// The client of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address.
    pub address: Option<SocketAddr>,
    /// What it has shown.
    pub access: Access,
}

/// What the client of a connection has shown.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// The listener has no TLS: every client is trusted.
    #[default]
    Trusted,
    /// Plain text at a listener with TLS. Calls are answered with the reason only.
    PlainText,
    /// No certificate.
    Anonymous,
    /// A certificate of the cluster.
    Certificate(Arc<Client>),
}

/// A TCP connection before its handshake.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// A connection without Nagle's algorithm: small messages are sent at once, although earlier ones are not acknowledged.
#[derive(Debug)]
pub struct Connection {
    stream: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    peer: Peer,
    /// Released when the connection is closed.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Incoming {
    /// Accepts on `listener` while fewer than `connections_max` of its connections are open.
    pub fn new(listener: TcpListener, connections_max: usize) -> Self {
        let permits = connections_max.min(Semaphore::MAX_PERMITS);
        Self {
            listener: Listener {
                tcp: listener,
                permits: Arc::new(Semaphore::new(permits)),
            },
            handshakes: None,
        }
    }

    /// With TLS. Plain text is refused.
    #[must_use]
    pub fn secured(mut self, config: Arc<ServerConfig>) -> Self {
        self.handshakes = Some(Handshakes::new(config, PlainText::Closed));
        self
    }

    /// With TLS. A client without it is accepted as [`Access::PlainText`], for a server that answers it with the reason.
    #[must_use]
    pub fn secured_with_reason(mut self, config: Arc<ServerConfig>) -> Self {
        self.handshakes = Some(Handshakes::new(config, PlainText::Answered));
        self
    }

    /// The next connection. Cancel safe.
    pub async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let Some(handshakes) = &mut self.handshakes else {
                let accepted = self.listener.accept().await;
                let address = accepted.address;
                return (accepted.open(Access::Trusted), address);
            };
            // One of both holds: without room, there are handshakes.
            let (is_any, room) = (!handshakes.is_empty(), handshakes.have_room());
            tokio::select! {
                ended = handshakes.ended(), if is_any => if let Some(connection) = ended {
                    return connection;
                },
                accepted = self.listener.accept(), if room => handshakes.begin(accepted),
            }
        }
    }

    /// The listener's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.tcp.local_addr()
    }

    /// The URL at which it is reached, by the listener's address.
    pub fn url(&self) -> io::Result<String> {
        let scheme = match &self.handshakes {
            Some(_) => "https",
            None => "http",
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

/// One without TLS, and without a limit of its own.
impl From<TcpListener> for Incoming {
    fn from(listener: TcpListener) -> Self {
        Self::new(listener, Semaphore::MAX_PERMITS)
    }
}

impl Listener {
    async fn accept(&self) -> Accepted {
        // An error is impossible: the semaphore is not closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        loop {
            match self.tcp.accept().await {
                Ok((stream, address)) => {
                    // The client may have closed the connection already; the first read finds that.
                    let _ = stream.set_nodelay(true);
                    return Accepted {
                        stream,
                        address,
                        permit,
                    };
                }
                Err(_out_of_descriptors) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

impl Accepted {
    /// A connection without TLS.
    pub(crate) fn open(self, access: Access) -> Connection {
        let address = self.address;
        Connection::new(Either::Left(self.stream), self.permit, address, access)
    }
}

impl Connection {
    pub(crate) fn new(
        stream: Either<TcpStream, Box<TlsStream<TcpStream>>>,
        permit: Option<OwnedSemaphorePermit>,
        address: SocketAddr,
        access: Access,
    ) -> Self {
        Self {
            stream,
            peer: Peer {
                address: Some(address),
                access,
            },
            _permit: permit,
        }
    }

    /// Its client.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use dormouse_trust::{Authority, Clients, Current, Identity, Validity, server};
    use futures::FutureExt;
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn config() -> Arc<ServerConfig> {
        let now = SystemTime::now();
        let authority = Authority::create(now).unwrap();
        let identity = Identity::control("up").unwrap();
        let validity = Validity::issued(now, Duration::from_hours(24), None);
        let issued = authority.server(&identity, &["::1".to_owned()], validity);
        let certificate = Current::new(issued.unwrap()).unwrap();
        let authorities = [authority.certificate().clone()];
        server::config(certificate, &authorities, Clients::Required).unwrap()
    }

    #[tokio::test]
    async fn handshakes_that_all_fail_at_their_limit_make_room_for_others() {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let mut incoming = Incoming::new(listener, 100).secured_with_reason(config());
        let address = incoming.local_addr().unwrap();
        let mut silent = Vec::new();
        while incoming.handshakes.as_ref().unwrap().have_room() {
            silent.push(TcpStream::connect(address).await.unwrap());
            assert!(incoming.accept().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"PRI").await.unwrap();
        let accepting = tokio::spawn(async move { incoming.accept().await.0 });
        drop(silent);
        let accepted = accepting.await.unwrap();
        assert!(matches!(accepted.peer().access, Access::PlainText));
    }

    #[tokio::test]
    async fn a_connection_above_the_limit_waits_until_another_is_closed() {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let mut incoming = Incoming::new(listener, 1);
        let address = incoming.local_addr().unwrap();
        let _clients = [
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        ];
        let (first, _) = incoming.accept().await;
        let Either::Left(stream) = &first.stream else {
            panic!("it has TLS");
        };
        assert!(stream.nodelay().unwrap());
        assert!(incoming.accept().now_or_never().is_none());
        drop(first);
        incoming.accept().await;
    }
}
