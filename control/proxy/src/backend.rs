//! The connections to one pod: idle ones are reused, the number of concurrent connects is limited, and all end with the
//! pod.

use std::net::SocketAddrV6;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::debug;

use crate::connection_limit::ConnectionLimit;
use crate::error::ForwardError;
use crate::http2::{Connections, Stream, StreamSlot};
use crate::pod_stream::PodStream;
use crate::upload::Upload;

/// Limits of the connections to one backend.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Timeout of one connect; above TCP's first retransmission (1 s).
    pub connect_timeout: Duration,
    /// Time after which an idle connection is closed.
    pub idle_timeout: Duration,
    /// Limit of idle HTTP/1.1 connections; further ones are closed when their response ends.
    pub idle_max: usize,
    /// Limit of concurrent connects, so that a released queue does not overflow the pod's backlog.
    pub dials_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(20),
            idle_max: 100,
            dials_max: 16,
        }
    }
}

/// Idle time before TCP keepalive probes; upgraded connections have no other timeout.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// One pod's address and the connections to it. The owner calls [`Backend::close`] when the pod is removed.
#[derive(Debug)]
pub struct Backend {
    address: SocketAddrV6,
    limits: Limits,
    connections: ConnectionLimit,
    idle: Mutex<Idle>,
    http2: Connections,
    /// Held during the connect of an HTTP/2 connection: requests that wait for it share it.
    http2_dial: tokio::sync::Mutex<()>,
    dials: Semaphore,
}

#[derive(Debug, Default)]
struct Idle {
    /// Set once. Connections that become idle later are dropped.
    closed: bool,
    /// Most recently used last, so that surplus connections of a burst reach the idle timeout.
    connections: Vec<IdleConnection>,
}

#[derive(Debug)]
struct IdleConnection {
    connection: Http1,
    since: Instant,
}

/// An HTTP/1.1 connection between two exchanges, or in one.
#[derive(Debug)]
pub(crate) struct Http1 {
    pub(crate) sender: http1::SendRequest<Upload>,
    stream: PodStream,
}

impl Backend {
    /// A backend without connections yet; `connections` is the limit for all backends.
    pub fn new(address: SocketAddrV6, limits: Limits, connections: &ConnectionLimit) -> Arc<Self> {
        Arc::new(Self {
            address,
            limits,
            connections: connections.clone(),
            idle: Mutex::default(),
            http2: Connections::default(),
            http2_dial: tokio::sync::Mutex::default(),
            dials: Semaphore::new(limits.dials_max),
        })
    }

    /// The pod's address and port.
    pub fn address(&self) -> SocketAddrV6 {
        self.address
    }

    /// Closes idle connections now, and busy ones when their exchanges end.
    pub fn close(&self) {
        let mut idle = self.idle.lock();
        idle.closed = true;
        idle.connections.clear();
        drop(idle);
        self.http2.close();
    }

    /// A connection for one exchange, and whether it is a reused one. `fresh` requires a new one.
    pub(crate) async fn http1(
        self: &Arc<Self>,
        fresh: bool,
    ) -> Result<(Http1, bool), ForwardError> {
        if !fresh && let Some(connection) = self.take_idle() {
            return Ok((connection, true));
        }
        let connect = async {
            let _permit = self.dials.acquire().await;
            // Another exchange may have ended during the wait for the permit.
            if !fresh && let Some(connection) = self.take_idle() {
                return Ok((connection, true));
            }
            let stream = self.connect().await?;
            let handshake = http1::Builder::new().handshake(TokioIo::new(stream.clone()));
            let (sender, connection) = handshake.await.map_err(|error| self.lost(error))?;
            tokio::spawn(drive(connection.with_upgrades(), Arc::downgrade(self)));
            Ok((Http1 { sender, stream }, false))
        };
        self.within_timeout(connect).await
    }

    /// A stream of an HTTP/2 connection, and whether the connection is a reused one.
    pub(crate) async fn http2(self: &Arc<Self>) -> Result<(Stream, bool), ForwardError> {
        let connect = async {
            if let Some(stream) = self.http2.take() {
                return Ok((stream, true));
            }
            let _dial = self.http2_dial.lock().await;
            if let Some(stream) = self.http2.take() {
                return Ok((stream, true));
            }
            let stream = self.connect().await?;
            let weak = Arc::downgrade(self);
            let established = self.http2.establish(stream, |connection| {
                tokio::spawn(drive(connection, weak));
            });
            let stream = established.await.map_err(|error| self.lost(error))?;
            Ok((stream, false))
        };
        self.within_timeout(connect).await
    }

    async fn within_timeout<T>(
        &self,
        connect: impl Future<Output = Result<T, ForwardError>>,
    ) -> Result<T, ForwardError> {
        let limit = self.limits.connect_timeout;
        let elapsed = |_| {
            Err(ForwardError::ConnectTimeout {
                backend: self.address,
                limit,
            })
        };
        timeout(limit, connect).await.unwrap_or_else(elapsed)
    }

    async fn connect(&self) -> Result<PodStream, ForwardError> {
        let backend = self.address;
        let claim = self.connections.claim();
        let claim = claim.ok_or(ForwardError::ConnectionLimit { backend })?;
        let failed = |source| ForwardError::Connect { backend, source };
        let stream = TcpStream::connect(backend).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        SockRef::from(&stream)
            .set_tcp_keepalive(&keepalive)
            .map_err(failed)?;
        Ok(PodStream::new(stream, claim))
    }

    fn lost(&self, source: hyper::Error) -> ForwardError {
        ForwardError::Lost {
            backend: self.address,
            source,
        }
    }

    /// An idle connection that the pod has not closed. Each is checked in the kernel: a request on a closed one fails
    /// without evidence that the pod did not act on it.
    fn take_idle(&self) -> Option<Http1> {
        let mut idle = self.idle.lock();
        while let Some(IdleConnection { connection, since }) = idle.connections.pop() {
            let usable = connection.sender.is_ready() && connection.stream.is_silent();
            if usable && since.elapsed() < self.limits.idle_timeout {
                return Some(connection);
            }
        }
        None
    }

    fn put_idle(&self, connection: Http1) {
        let mut idle = self.idle.lock();
        let kept = idle.connections.len() < self.limits.idle_max && !self.connections.is_scarce();
        if !idle.closed && kept {
            let since = Instant::now();
            idle.connections.push(IdleConnection { connection, since });
        }
    }

    /// Drops connections that have reached the idle timeout or that the pod has closed.
    fn expire(&self) {
        let limit = self.limits.idle_timeout;
        let alive = |idle: &IdleConnection| {
            !idle.connection.sender.is_closed() && idle.since.elapsed() < limit
        };
        self.idle.lock().connections.retain(alive);
        self.http2.expire(limit);
    }
}

/// Drives one connection to its end, and expires the backend's idle ones at intervals, so that no task has to iterate
/// over all backends.
async fn drive(connection: impl Future<Output = hyper::Result<()>>, backend: Weak<Backend>) {
    let mut connection = std::pin::pin!(connection);
    let expire = || {
        backend
            .upgrade()
            .map(|backend| (backend.expire(), backend.limits.idle_timeout))
    };
    let mut period = backend
        .upgrade()
        .map_or(KEEPALIVE, |backend| backend.limits.idle_timeout);
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    debug!(%error, "connection to a backend ended");
                }
                expire();
                return;
            }
            () = sleep(period) => period = expire().map_or(KEEPALIVE, |((), period)| period),
        }
    }
}

/// The backend's side of an exchange; dropping it aborts the exchange.
#[derive(Debug)]
pub(crate) enum Upstream {
    Http1 {
        connection: Http1,
        backend: Arc<Backend>,
    },
    Http2 {
        /// Keeps the connection open until the stream ends, also after [`Backend`] has dropped it.
        _sender: hyper::client::conn::http2::SendRequest<Upload>,
        _slot: Arc<StreamSlot>,
    },
}

impl Upstream {
    pub(crate) fn http1(connection: Http1, backend: &Arc<Backend>) -> Self {
        Self::Http1 {
            connection,
            backend: Arc::clone(backend),
        }
    }

    pub(crate) fn http2(stream: Stream) -> Self {
        Self::Http2 {
            _sender: stream.sender,
            _slot: stream.slot,
        }
    }

    /// The response is complete: the connection becomes idle and then `guard` is dropped, so that the next exchange
    /// finds the connection. A request that is still being uploaded keeps both until `deadline`.
    pub(crate) fn complete<G: Send + 'static>(self, deadline: Instant, guard: G) {
        let Self::Http1 {
            mut connection,
            backend,
        } = self
        else {
            return;
        };
        if connection.sender.is_ready() {
            backend.put_idle(connection);
            return;
        }
        tokio::spawn(async move {
            if let Ok(Ok(())) = timeout_at(deadline, connection.sender.ready()).await {
                backend.put_idle(connection);
            }
            drop(guard);
        });
    }
}
