//! An accepted connection, and its client.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dormouse_trust::Client;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

use crate::idle::{Limit, Limits, Requests};
use crate::places::Place;

/// The client of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its address.
    pub address: Option<SocketAddr>,
    /// What it has shown.
    pub access: Access,
    /// Its requests, which a server has to count: without one, or with one whose response is
    /// not read, the connection is closed after a time. None: it is not.
    pub requests: Option<Requests>,
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

impl Access {
    /// Whether the client is known before its first request.
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Trusted | Self::Certificate(_))
    }
}

/// A stream of TCP, with TLS or without.
pub(crate) type Socket = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connection without Nagle's algorithm: small messages are sent at once, although earlier ones are not acknowledged.
#[derive(Debug)]
pub struct Connection {
    stream: Socket,
    peer: Peer,
    /// Reads and writes fail once it is exceeded.
    limit: Option<Limit>,
    /// Released when the connection is closed.
    _place: Place,
}

impl Connection {
    pub(crate) fn new(stream: Socket, peer: Peer, place: Place) -> Self {
        Self {
            stream,
            peer,
            limit: None,
            _place: place,
        }
    }

    /// Closes the connection when a limit is exceeded. That of idle ones is for clients that are not known.
    pub(crate) fn limited(mut self, limits: Limits) -> Self {
        let idle = limits.idle.filter(|_| !self.peer.access.is_known());
        let requests = Requests::new();
        self.limit = Limit::new(requests.clone(), Limits { idle, ..limits });
        self.peer.requests = self.limit.is_some().then_some(requests);
        self
    }

    /// Fails once a limit is exceeded, and has the task woken then.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let limit = self.limit.as_mut();
        if limit.is_some_and(|limit| limit.poll(cx).is_ready()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
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
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
