//! The connections to one pod: idle ones are reused, the number of concurrent connects is limited, and all end with the
//! pod.

use std::net::SocketAddrV6;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::debug;

use crate::error::ForwardError;
use crate::outbound::Upload;

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
    idle: Mutex<Idle>,
    /// The one connection for all of the pod's HTTP/2 streams. The lock is held during its connect, so that there is only
    /// one.
    shared: tokio::sync::Mutex<Option<Shared>>,
    dials: Semaphore,
}

#[derive(Debug, Default)]
struct Idle {
    /// Set once. Connections that become idle later are dropped.
    closed: bool,
    /// Most recently used last, so that surplus connections of a burst reach the idle timeout.
    connections: Vec<(http1::SendRequest<Upload>, Instant)>,
}

#[derive(Debug)]
struct Shared {
    sender: http2::SendRequest<Upload>,
    used: Instant,
}

impl Backend {
    /// A backend without connections yet.
    pub fn new(address: SocketAddrV6, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            address,
            limits,
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
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
        if let Ok(mut shared) = self.shared.try_lock() {
            *shared = None;
        }
    }

    /// A connection for one exchange, and whether it is a reused one. `fresh` requires a new one.
    pub(crate) async fn http1(
        self: &Arc<Self>,
        fresh: bool,
    ) -> Result<(http1::SendRequest<Upload>, bool), ForwardError> {
        if !fresh && let Some(sender) = self.take_idle() {
            return Ok((sender, true));
        }
        let connect = async {
            let _permit = self.dials.acquire().await;
            // Another exchange may have ended during the wait for the permit.
            if !fresh && let Some(sender) = self.take_idle() {
                return Ok((sender, true));
            }
            let stream = self.connect().await?;
            let handshake = http1::Builder::new().handshake(TokioIo::new(stream)).await;
            let (sender, connection) = handshake.map_err(|error| self.lost(error))?;
            tokio::spawn(drive(connection.with_upgrades(), Arc::downgrade(self)));
            Ok((sender, false))
        };
        self.within_timeout(connect).await
    }

    /// A sender on the shared HTTP/2 connection.
    pub(crate) async fn http2(
        self: &Arc<Self>,
    ) -> Result<http2::SendRequest<Upload>, ForwardError> {
        let connect = async {
            let mut shared = self.shared.lock().await;
            if let Some(open) = shared.as_mut().filter(|open| !open.sender.is_closed()) {
                open.used = Instant::now();
                return Ok(open.sender.clone());
            }
            let stream = self.connect().await?;
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .keep_alive_interval(KEEPALIVE);
            let handshake = builder.handshake(TokioIo::new(stream)).await;
            let (sender, connection) = handshake.map_err(|error| self.lost(error))?;
            tokio::spawn(drive(connection, Arc::downgrade(self)));
            if !self.idle.lock().closed {
                *shared = Some(Shared {
                    sender: sender.clone(),
                    used: Instant::now(),
                });
            }
            Ok(sender)
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

    async fn connect(&self) -> Result<TcpStream, ForwardError> {
        let backend = self.address;
        let failed = |source| ForwardError::Connect { backend, source };
        let stream = TcpStream::connect(backend).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
        SockRef::from(&stream)
            .set_tcp_keepalive(&keepalive)
            .map_err(failed)?;
        Ok(stream)
    }

    fn lost(&self, source: hyper::Error) -> ForwardError {
        ForwardError::Lost {
            backend: self.address,
            source,
        }
    }

    fn take_idle(&self) -> Option<http1::SendRequest<Upload>> {
        let mut idle = self.idle.lock();
        while let Some((sender, since)) = idle.connections.pop() {
            if sender.is_ready() && since.elapsed() < self.limits.idle_timeout {
                return Some(sender);
            }
        }
        None
    }

    fn put_idle(&self, sender: http1::SendRequest<Upload>) {
        let mut idle = self.idle.lock();
        if !idle.closed && idle.connections.len() < self.limits.idle_max {
            idle.connections.push((sender, Instant::now()));
        }
    }

    /// Drops connections that have reached the idle timeout or that the pod has closed.
    fn expire(&self) {
        let limit = self.limits.idle_timeout;
        let alive = |(sender, since): &(http1::SendRequest<Upload>, Instant)| {
            !sender.is_closed() && since.elapsed() < limit
        };
        self.idle.lock().connections.retain(alive);
        if let Ok(mut shared) = self.shared.try_lock() {
            shared.take_if(|open| open.sender.is_closed() || open.used.elapsed() >= limit);
        }
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
        sender: http1::SendRequest<Upload>,
        backend: Arc<Backend>,
    },
    /// Keeps the connection open until the stream ends, also after [`Backend`] has dropped it.
    Http2 { _sender: http2::SendRequest<Upload> },
}

impl Upstream {
    pub(crate) fn http1(sender: http1::SendRequest<Upload>, backend: &Arc<Backend>) -> Self {
        Self::Http1 {
            sender,
            backend: Arc::clone(backend),
        }
    }

    pub(crate) fn http2(sender: http2::SendRequest<Upload>) -> Self {
        Self::Http2 { _sender: sender }
    }

    /// The response is complete: the connection becomes idle and then `guard` is dropped, so that the next exchange
    /// finds the connection. A request that is still being uploaded keeps both until `deadline`.
    pub(crate) fn complete<G: Send + 'static>(self, deadline: Instant, guard: G) {
        let Self::Http1 {
            mut sender,
            backend,
        } = self
        else {
            return;
        };
        if sender.is_ready() {
            backend.put_idle(sender);
            return;
        }
        tokio::spawn(async move {
            if let Ok(Ok(())) = timeout_at(deadline, sender.ready()).await {
                backend.put_idle(sender);
            }
            drop(guard);
        });
    }
}
