//! Accepted connections: TCP, TLS if the server has a certificate, and the filter of what the client
//! sends.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use dormouse_handshakes::Handshakes;
use prometheus_client::metrics::counter::Counter;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, Sender},
    },
    time,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tokio_util::{either::Either, io::poll_read_buf, sync::CancellationToken};
use tonic::transport::server::Connected;
use tracing::warn;

use super::{
    authority::Filter,
    listener::{self, ACCEPT_RETRY, Listener, Socket},
    options::Diagnosis,
    tls::{self, Revocations},
};

/// Connections that wait for the transport; further ones wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 64;

/// Longest duration of a TLS handshake, as in Go's HTTP server of etcd.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for which a client then waits for a slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(10);

/// How the connections of a server are accepted.
#[derive(Clone)]
pub(super) struct Acceptor {
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) revoked: Option<Revocations>,
    /// Whether the common name of a client's certificate is its user.
    pub(super) certificate_users: bool,
    /// The reason of a failed handshake, for the log.
    pub(super) diagnosis: Diagnosis,
    /// Handshakes of a listener at the same time.
    pub(super) handshakes_max: usize,
    /// One for each connection that may be open at the same time.
    pub(super) slots: Arc<Semaphore>,
    /// Bytes from clients, and to them.
    pub(super) received: Counter,
    pub(super) sent: Counter,
}

/// The client of a connection; an extension of its requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// The user of the client's certificate.
    pub(super) common_name: Option<Arc<str>>,
}

type Io = Either<Socket, Box<TlsStream<Socket>>>;

/// A connection whose bytes pass the filter.
pub(super) struct Connection {
    io: Io,
    peer: Peer,
    filter: Filter,
    /// Read, but not yet filtered.
    input: BytesMut,
    /// Filtered, but not yet read by the transport.
    output: BytesMut,
    received: Counter,
    sent: Counter,
    /// Released when the connection ends.
    _slot: OwnedSemaphorePermit,
}

/// The connections of the listeners until `shutdown` is cancelled.
pub(super) fn connections(
    listeners: Vec<Listener>,
    acceptor: &Acceptor,
    shutdown: &CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> + use<> {
    let (accepted, connections) = mpsc::channel(CONNECTIONS_MAX);
    for listener in listeners {
        let (acceptor, accepted) = (acceptor.clone(), accepted.clone());
        let accept = async move {
            match acceptor.tls.clone() {
                None => accept(listener, acceptor, accepted).await,
                Some(tls) => accept_secured(listener, tls, acceptor, accepted).await,
            }
        };
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(accept));
    }
    ReceiverStream::new(connections)
}

type Accepted = Sender<io::Result<Connection>>;

async fn accept(listener: Listener, acceptor: Acceptor, accepted: Accepted) {
    // Never an error: the semaphore is not closed.
    while let Ok(slot) = Arc::clone(&acceptor.slots).acquire_owned().await {
        let stream = Either::Left(next(&listener).await);
        let connection = acceptor.open(stream, Peer::default(), slot);
        if accepted.send(Ok(connection)).await.is_err() {
            return;
        }
    }
}

/// With TLS, a connection takes a slot once its handshake is over.
async fn accept_secured(
    listener: Listener,
    tls: TlsAcceptor,
    acceptor: Acceptor,
    accepted: Accepted,
) {
    let mut handshakes = Handshakes::new(acceptor.handshakes_max);
    loop {
        let is_any = !handshakes.is_empty();
        tokio::select! {
            ended = handshakes.ended(), if is_any => if let Some(connection) = ended
                && accepted.send(Ok(connection)).await.is_err()
            {
                return;
            },
            stream = next(&listener) => {
                let (source, client) = listener::client(&stream);
                let (acceptor, tls) = (acceptor.clone(), tls.clone());
                handshakes.begin(source, client, async move {
                    let connection = acceptor.secured(&tls, stream).await;
                    connection.map_err(|error| (acceptor.diagnosis.0)(&error))
                });
            }
        }
    }
}

/// The next connection of a listener. Cancel safe.
async fn next(listener: &Listener) -> Socket {
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok(stream) => return stream,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    warn!(%error, "cannot accept connections");
                }
                time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

impl Acceptor {
    async fn secured(&self, tls: &TlsAcceptor, stream: Socket) -> io::Result<Connection> {
        let late = |what| move |_elapsed| io::Error::new(io::ErrorKind::TimedOut, what);
        let handshake = time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await;
        let stream = handshake.map_err(late("no handshake within 10 s"))??;
        let peer = self.peer(&stream).await?;
        let slot = Arc::clone(&self.slots).acquire_owned();
        let slot = time::timeout(SLOT_TIMEOUT, slot).await;
        let slot = slot.map_err(late("all connections are open: none has ended within 10 s"))?;
        let slot = slot.map_err(io::Error::other)?;
        Ok(self.open(Either::Right(Box::new(stream)), peer, slot))
    }

    fn open(&self, io: Io, peer: Peer, slot: OwnedSemaphorePermit) -> Connection {
        Connection {
            io,
            peer,
            filter: Filter::default(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            received: self.received.clone(),
            sent: self.sent.clone(),
            _slot: slot,
        }
    }

    async fn peer(&self, stream: &TlsStream<Socket>) -> io::Result<Peer> {
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        if let Some(revoked) = &self.revoked {
            revoked.check(certificates).await?;
        }
        let certificate = certificates.first();
        let common_name = match certificate.filter(|_| self.certificate_users) {
            None => None,
            Some(certificate) => tls::common_name(certificate)?,
        };
        Ok(Peer { common_name })
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
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.output.is_empty() {
            if this.filter.is_transparent() && this.input.is_empty() {
                let before = buffer.filled().len();
                ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
                let read = buffer.filled().len() - before;
                this.received.inc_by(read as u64);
                return Poll::Ready(Ok(()));
            }
            let read = ready!(poll_read_buf(
                Pin::new(&mut this.io),
                context,
                &mut this.input
            ))?;
            this.received.inc_by(read as u64);
            if read == 0 {
                // The end: the transport gets what is incomplete, and refuses it.
                this.output.unsplit(this.input.split());
                break;
            }
            this.filter.pass(&mut this.input, &mut this.output);
        }
        let moved = this.output.len().min(buffer.remaining());
        buffer.put_slice(&this.output[..moved]);
        this.output.advance(moved);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write(context, bytes))?;
        this.sent.inc_by(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write_vectored(context, slices))?;
        this.sent.inc_by(written as u64);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}
