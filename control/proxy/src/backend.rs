//! The connections to one pod: idle ones are used again, dials are few at a time, all end with the pod.

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

use crate::forward::ForwardError;
use crate::outbound::Upload;

/// How many connections to one backend, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest wait for one connection to be made; above TCP's first retransmission (1 s).
    pub connect_timeout: Duration,
    /// An idle connection is closed after this.
    pub idle_timeout: Duration,
    /// Idle HTTP/1.1 connections kept; further ones are closed when their response ends.
    pub idle_max: usize,
    /// Connections being made at one time: a released queue must not overrun the pod's backlog.
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

/// TCP asks a silent peer after this whether it still lives: an upgraded connection has no other limit.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// One pod's address and the connections to it. Its owner calls [`Backend::close`] when the pod leaves.
#[derive(Debug)]
pub struct Backend {
    address: SocketAddrV6,
    limits: Limits,
    idle: Mutex<Idle>,
    /// One connection carries all of a pod's HTTP/2 streams; the lock makes its dial happen once.
    shared: tokio::sync::Mutex<Option<Shared>>,
    dials: Semaphore,
}

#[derive(Debug, Default)]
struct Idle {
    /// Set once: whatever comes back later is dropped.
    closed: bool,
    /// Most recently used last, so that the surplus of a burst grows old and goes.
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

    /// Closes idle connections now and busy ones as their exchanges end.
    pub fn close(&self) {
        let mut idle = self.idle.lock();
        idle.closed = true;
        idle.connections.clear();
        drop(idle);
        if let Ok(mut shared) = self.shared.try_lock() {
            *shared = None;
        }
    }

    /// A connection for one exchange, and whether it had been used before.
    pub(crate) async fn http1(
        self: &Arc<Self>,
        fresh: bool,
    ) -> Result<(http1::SendRequest<Upload>, bool), ForwardError> {
        if !fresh && let Some(sender) = self.rested() {
            return Ok((sender, true));
        }
        let connect = async {
            let _permit = self.dials.acquire().await;
            // While we waited for our turn another exchange may have ended.
            if !fresh && let Some(sender) = self.rested() {
                return Ok((sender, true));
            }
            let stream = self.dial().await?;
            let handshake = http1::Builder::new().handshake(TokioIo::new(stream)).await;
            let (sender, connection) = handshake.map_err(|error| self.lost(error))?;
            tokio::spawn(drive(connection.with_upgrades(), Arc::downgrade(self)));
            Ok((sender, false))
        };
        self.in_time(connect).await
    }

    /// A handle on the one HTTP/2 connection.
    pub(crate) async fn http2(
        self: &Arc<Self>,
    ) -> Result<http2::SendRequest<Upload>, ForwardError> {
        let connect = async {
            let mut shared = self.shared.lock().await;
            if let Some(open) = shared.as_mut().filter(|open| !open.sender.is_closed()) {
                open.used = Instant::now();
                return Ok(open.sender.clone());
            }
            let stream = self.dial().await?;
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
        self.in_time(connect).await
    }

    async fn in_time<T>(
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

    async fn dial(&self) -> Result<TcpStream, ForwardError> {
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

    fn rested(&self) -> Option<http1::SendRequest<Upload>> {
        let mut idle = self.idle.lock();
        while let Some((sender, since)) = idle.connections.pop() {
            if sender.is_ready() && since.elapsed() < self.limits.idle_timeout {
                return Some(sender);
            }
        }
        None
    }

    fn rest(&self, sender: http1::SendRequest<Upload>) {
        let mut idle = self.idle.lock();
        if !idle.closed && idle.connections.len() < self.limits.idle_max {
            idle.connections.push((sender, Instant::now()));
        }
    }

    /// Drops what has been idle for too long or was closed by the pod.
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

/// Runs one connection to its end, and now and then looks for idle ones: no task walks all backends.
async fn drive(connection: impl Future<Output = hyper::Result<()>>, backend: Weak<Backend>) {
    let mut connection = std::pin::pin!(connection);
    let expire = || {
        backend
            .upgrade()
            .map(|backend| (backend.expire(), backend.limits.idle_timeout))
    };
    let mut every = backend
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
            () = sleep(every) => every = expire().map_or(KEEPALIVE, |((), every)| every),
        }
    }
}

/// The backend's side of an exchange under way; dropping it breaks the exchange off.
#[derive(Debug)]
pub(crate) enum Upstream {
    Http1 {
        sender: http1::SendRequest<Upload>,
        backend: Arc<Backend>,
    },
    /// Held so that the connection outlives its place in [`Backend`] until the stream ends.
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

    /// The response is complete: the connection rests, then `guard` goes, so that whoever it lets in
    /// finds the connection. A request still being uploaded keeps both until `deadline`.
    pub(crate) fn complete<G: Send + 'static>(self, deadline: Instant, guard: G) {
        let Self::Http1 {
            mut sender,
            backend,
        } = self
        else {
            return;
        };
        if sender.is_ready() {
            backend.rest(sender);
            return;
        }
        tokio::spawn(async move {
            if let Ok(Ok(())) = timeout_at(deadline, sender.ready()).await {
                backend.rest(sender);
            }
            drop(guard);
        });
    }
}
