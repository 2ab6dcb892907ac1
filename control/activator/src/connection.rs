//! One client connection: HTTP/1.1 or h2c on the same port.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::debug;

use crate::app::App;
use crate::client_stream::{ClientStream, Protocol, detect_protocol};
use crate::cutoff;
use crate::footprint;
use crate::metrics::Reason;
use crate::refusal::TOO_MANY_CONNECTIONS;
use crate::shared::Shared;

/// Limit of the head of an HTTP/1.1 request, and of a connection's read buffer.
const HTTP1_BUFFER_BYTES: usize = 64 * 1024;
/// Limit of concurrent streams of an HTTP/2 connection; the client opens another connection for more.
const HTTP2_STREAMS_MAX: u32 = 250;
/// Limit of the header list of an HTTP/2 request.
const HTTP2_HEADERS_BYTES: u32 = 64 * 1024;
/// Flow-control window of an HTTP/2 stream: what an unread request body holds. At a round-trip time of 1 ms it allows
/// 64 MB/s.
pub(crate) const HTTP2_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// Flow-control window of an HTTP/2 connection: parked bodies do not stop those in flight.
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = HTTP2_STREAMS_MAX * HTTP2_STREAM_WINDOW_BYTES;
/// Buffer of an HTTP/2 response that the client does not read.
const HTTP2_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Idle time before keepalive probes are sent.
const KEEPALIVE: Duration = Duration::from_mins(1);
/// TCP_USER_TIMEOUT: a client that acknowledges no data of its response for this long is disconnected, because it may
/// hold a slot.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_mins(5);

/// A client connection, as its requests need it.
pub(crate) struct ClientConnection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: Arc<TcpStream>,
    pub(crate) protocol: Protocol,
    /// The client's address.
    pub(crate) address: Ipv6Addr,
    /// The address that the client connected to: it identifies the app.
    pub(crate) local: SocketAddrV6,
    /// Notified by a response in serve mode: an HTTP/2 connection then sends GOAWAY.
    pub(crate) reconnect: Notify,
}

/// The VIP index of an acting address; `None` outside the acting prefix.
pub(crate) fn vip_of(address: Ipv6Addr, acting_prefix: Ipv6Addr) -> Option<u32> {
    let (address, prefix) = (address.to_bits(), acting_prefix.to_bits());
    let inside = address >> 32 == prefix >> 32;
    if inside {
        u32::try_from(address & u128::from(u32::MAX)).ok()
    } else {
        None
    }
}

impl ClientConnection {
    pub(crate) fn vip(&self) -> Option<u32> {
        vip_of(*self.local.ip(), self.shared.core.config.acting_prefix)
    }
}

/// Serves one accepted connection until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream, address: SocketAddrV6) {
    let Ok(SocketAddr::V6(local)) = stream.local_addr() else {
        return;
    };
    let app = vip_of(*local.ip(), shared.core.config.acting_prefix).map(|vip| shared.app(vip));
    let Ok(_guard) = AppConnection::of(app.as_ref()) else {
        shared.core.metrics.refused(Reason::connections);
        drop(stream.try_write(TOO_MANY_CONNECTIONS));
        return;
    };
    if let Err(error) = tune(&stream) {
        debug!(client = %address, %error, "client closed the connection at once");
        return;
    }
    let stream = Arc::new(stream);
    let first_bytes = timeout(
        shared.core.config.header_timeout,
        detect_protocol(Arc::clone(&stream)),
    );
    let detected = tokio::select! {
        detected = first_bytes => detected,
        () = shared.draining.cancelled() => return,
    };
    let Ok(Ok(Some((protocol, io)))) = detected else {
        return;
    };
    let bytes = footprint::of_protocol(protocol);
    let Some(_bytes) = shared.open_bytes.claim(bytes) else {
        shared.core.metrics.refused(Reason::connections);
        drop(stream.try_write(TOO_MANY_CONNECTIONS));
        return;
    };
    let aborted = shared.aborted.clone();
    let socket = Arc::clone(&stream);
    let client = ClientConnection {
        shared,
        stream,
        protocol,
        address: *address.ip(),
        local,
        reconnect: Notify::new(),
    };
    let client = Arc::new(client);
    // Boxed: a connection without a request, and one of the other protocol, needs less.
    let served = async {
        match protocol {
            Protocol::Http1 => Box::pin(serve_http1(client, io)).await,
            Protocol::Http2 => Box::pin(serve_http2(client, io, app)).await,
        }
    };
    match aborted.run_until_cancelled(cutoff::enforced(served)).await {
        Some(Some(Err(error))) => debug!(client = %address, %error, "client connection ended"),
        Some(None) => {
            debug!(client = %address, "client did not read its response in time");
            // What the kernel has not sent is discarded, and the client gets a reset.
            let _ = SockRef::from(&*socket).set_linger(Some(Duration::ZERO));
        }
        Some(Some(Ok(()))) | None => {}
    }
}

fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))
}

async fn serve_http1(client: Arc<ClientConnection>, io: ClientStream) -> hyper::Result<()> {
    let draining = client.shared.draining.clone();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(client.shared.core.config.header_timeout)
        .max_buf_size(HTTP1_BUFFER_BYTES);
    let service = service_fn(move |request| Arc::clone(&client).call(request));
    let connection = builder
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = draining.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

async fn serve_http2(
    client: Arc<ClientConnection>,
    io: ClientStream,
    app: Option<Arc<App>>,
) -> hyper::Result<()> {
    let goaway = goaway(Arc::clone(&client), app);
    let mut builder = http2::Builder::new(StreamExecutor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_header_list_size(HTTP2_HEADERS_BYTES)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES);
    let service = service_fn(move |request| Arc::clone(&client).call(request));
    let connection = builder.serve_connection(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = goaway => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// Runs the streams of an HTTP/2 connection as tasks. A stream that is aborted is reset.
#[derive(Clone)]
struct StreamExecutor;

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(cutoff::enforced(stream));
    }
}

/// Waits for a reason to send GOAWAY. HTTP/1.1 uses `Connection: close` in a response instead.
async fn goaway(client: Arc<ClientConnection>, app: Option<Arc<App>>) {
    let serving = async {
        match app {
            Some(app) => app.serving_begun.notified().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = client.shared.draining.cancelled() => {}
        () = client.reconnect.notified() => {}
        () = serving => {}
    }
}

/// One of an app's open connections, counted until dropped.
struct AppConnection(Option<Arc<App>>);

impl AppConnection {
    fn of(app: Option<&Arc<App>>) -> Result<Self, ()> {
        let Some(app) = app else {
            return Ok(Self(None));
        };
        let connection = Self(Some(Arc::clone(app)));
        let before = app.connections.fetch_add(1, Ordering::Relaxed);
        if before < app.core.config.connections_per_app_max {
            Ok(connection)
        } else {
            Err(())
        }
    }
}

impl Drop for AppConnection {
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
    fn the_vip_index_is_the_low_32_bits_of_the_acting_address() {
        let prefix = "2001:db8:d0:0:0:a1::".parse().unwrap();
        let vip = |address: &str| vip_of(address.parse().unwrap(), prefix);
        assert_eq!(vip("2001:db8:d0:0:0:a1:0:10"), Some(16));
        assert_eq!(vip("2001:db8:d0:0:0:a1:1:2"), Some(0x1_0002));
        assert_eq!(vip("2001:db8:d0:0:0:a2:0:10"), None);
        assert_eq!(vip("::1"), None);
    }
}
