//! One client connection, HTTP/1.1 or h2c on the same port, from its first byte to its graceful end.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::debug;

use crate::app::App;
use crate::handle::Shared;
use crate::metrics::Reason;
use crate::peer::{Peer, Protocol, recognise};
use crate::refusal::FULL_HOUSE;

/// Largest head of an HTTP/1.1 request, and what one connection buffers.
const HTTP1_BUFFER_BYTES: usize = 64 * 1024;
/// Streams of one HTTP/2 connection at one time; the client opens another connection for more.
const HTTP2_STREAMS_MAX: u32 = 250;
/// Largest header list of an HTTP/2 request.
const HTTP2_HEADERS_BYTES: u32 = 64 * 1024;
/// Unread bytes that one HTTP/2 stream may have sent, and all streams of a connection together.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// A silent client is asked after this whether it still lives.
const KEEPALIVE: Duration = Duration::from_mins(1);
/// A client that takes no byte of its response for this long is gone: it may hold a slot.
const STUCK_CLIENT: Duration = Duration::from_mins(5);

/// A connection's two ends, as its requests need to know them.
pub(crate) struct Caller {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: Arc<TcpStream>,
    pub(crate) protocol: Protocol,
    pub(crate) client: Ipv6Addr,
    /// The address that was dialled: it names the app.
    pub(crate) local: SocketAddrV6,
    /// Asks an HTTP/2 connection to end: rung by a response that went out in direct mode.
    pub(crate) leave: Notify,
}

/// The VIP index that an acting address stands for; `None` outside the prefix.
pub(crate) fn vip_of(address: Ipv6Addr, acting_prefix: Ipv6Addr) -> Option<u32> {
    let (address, prefix) = (address.to_bits(), acting_prefix.to_bits());
    let inside = address >> 32 == prefix >> 32;
    if inside {
        u32::try_from(address & u128::from(u32::MAX)).ok()
    } else {
        None
    }
}

impl Caller {
    pub(crate) fn vip(&self) -> Option<u32> {
        vip_of(*self.local.ip(), self.shared.core.config.acting_prefix)
    }
}

/// Serves one accepted connection until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream, client: SocketAddrV6) {
    let Ok(SocketAddr::V6(local)) = stream.local_addr() else {
        return;
    };
    let app = vip_of(*local.ip(), shared.core.config.acting_prefix).and_then(|vip| shared.app(vip));
    let Ok(_presence) = Presence::of(app.as_ref()) else {
        shared.core.metrics.refused(Reason::connections);
        drop(stream.try_write(FULL_HOUSE));
        return;
    };
    if let Err(error) = tune(&stream) {
        debug!(%client, %error, "client left before it was served");
        return;
    }
    let stream = Arc::new(stream);
    let first_bytes = timeout(
        shared.core.config.header_timeout,
        recognise(Arc::clone(&stream)),
    );
    let recognised = tokio::select! {
        recognised = first_bytes => recognised,
        () = shared.draining.cancelled() => return,
    };
    let Ok(Ok(Some((protocol, peer)))) = recognised else {
        return;
    };
    let broken_off = shared.broken_off.clone();
    let caller = Caller {
        shared,
        stream,
        protocol,
        client: *client.ip(),
        local,
        leave: Notify::new(),
    };
    let caller = Arc::new(caller);
    let served = async {
        match protocol {
            Protocol::Http1 => serve_http1(caller, peer).await,
            Protocol::Http2 => serve_http2(caller, peer, app).await,
        }
    };
    if let Some(Err(error)) = broken_off.run_until_cancelled(served).await {
        debug!(%client, %error, "client connection ended");
    }
}

fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    socket.set_tcp_user_timeout(Some(STUCK_CLIENT))
}

async fn serve_http1(caller: Arc<Caller>, peer: Peer) -> hyper::Result<()> {
    let draining = caller.shared.draining.clone();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(caller.shared.core.config.header_timeout)
        .max_buf_size(HTTP1_BUFFER_BYTES);
    let service = service_fn(move |request| Arc::clone(&caller).call(request));
    let connection = builder
        .serve_connection(TokioIo::new(peer), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = draining.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

async fn serve_http2(caller: Arc<Caller>, peer: Peer, app: Option<Arc<App>>) -> hyper::Result<()> {
    let leave = leave(Arc::clone(&caller), app);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(HTTP2_HEADERS_BYTES)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES);
    let service = service_fn(move |request| Arc::clone(&caller).call(request));
    let connection = builder.serve_connection(TokioIo::new(peer), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = leave => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// Waits for a reason to send GOAWAY; HTTP/1.1 says the same in a response's head instead.
async fn leave(caller: Arc<Caller>, app: Option<Arc<App>>) {
    let turned = async {
        match app {
            Some(app) => app.turned.notified().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = caller.shared.draining.cancelled() => {}
        () = caller.leave.notified() => {}
        () = turned => {}
    }
}

/// One of an app's connections, until dropped.
struct Presence(Option<Arc<App>>);

impl Presence {
    fn of(app: Option<&Arc<App>>) -> Result<Self, ()> {
        let Some(app) = app else {
            return Ok(Self(None));
        };
        let presence = Self(Some(Arc::clone(app)));
        let before = app.connections.fetch_add(1, Ordering::Relaxed);
        if before < app.core.config.connections_per_app_max {
            Ok(presence)
        } else {
            Err(())
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(app) = &self.0 {
            app.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_app_is_known_by_the_low_half_of_the_acting_address() {
        let prefix = "2001:db8:d0:0:0:a1::".parse().unwrap();
        let vip = |address: &str| vip_of(address.parse().unwrap(), prefix);
        assert_eq!(vip("2001:db8:d0:0:0:a1:0:10"), Some(16));
        assert_eq!(vip("2001:db8:d0:0:0:a1:1:2"), Some(0x1_0002));
        assert_eq!(vip("2001:db8:d0:0:0:a2:0:10"), None);
        assert_eq!(vip("::1"), None);
    }
}
