//! Routes of axum over accepted connections. The open requests of each connection are counted, watches included: one without any,
//! and without a certificate, is closed.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Peer};
use crate::idle::{OpenRequest, Requests};
use crate::incoming::Incoming;

/// Longest time without a request on a connection without a certificate.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Serves routes, which find the client as `ConnectInfo<Peer>`, until `shutdown`.
///
/// # Errors
///
/// The server failed; axum's never does.
pub async fn serve(
    incoming: Incoming,
    routes: Router,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let routes = routes.layer(from_fn(count));
    let service = routes.into_make_service_with_connect_info::<Peer>();
    axum::serve(incoming.closing_idle(IDLE_MAX), service)
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

/// The layer in front of all routes.
async fn count(ConnectInfo(peer): ConnectInfo<Peer>, request: Request, next: Next) -> Response {
    let open = peer.requests.as_ref().map(Requests::begin);
    let response = next.run(request).await;
    match open {
        Some(open) => response.map(|body| Body::new(Counted { body, _open: open })),
        None => response,
    }
}

impl Listener for Incoming {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        Self::accept(self).await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

impl Connected<IncomingStream<'_, Incoming>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Incoming>) -> Self {
        stream.io().peer().clone()
    }
}

/// A body that is a part of its request.
struct Counted {
    body: Body,
    _open: OpenRequest,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use axum::routing::get;
    use dormouse_trust::{Authority, Current, Identity, Validity, client, server};
    use futures::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, ServerConfig};
    use tokio_rustls::{TlsConnector, client::TlsStream};

    use super::*;

    const IDLE: Duration = Duration::from_secs(1);
    const TIMEOUT: Duration = Duration::from_secs(10);

    fn tls() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let authority = Authority::create(SystemTime::now()).unwrap();
        let validity = Validity::issued(SystemTime::now(), Duration::from_hours(1), None);
        let identity = Identity::control("up").unwrap();
        let issued = authority.server(&identity, &["::1".to_owned()], validity);
        let current = Current::new(issued.unwrap()).unwrap();
        let authorities = [authority.certificate().clone()];
        let clients = dormouse_trust::Clients::Requested;
        let server = server::config(current, &authorities, clients).unwrap();
        (server, client::config(&authorities, None).unwrap())
    }

    #[tokio::test]
    async fn an_anonymous_connection_is_closed_without_a_request_and_open_during_a_watch() {
        let (server, client) = tls();
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = Incoming::new(listener, 100)
            .secured(server)
            .closing_idle(IDLE);
        let watch = || async {
            let first = stream::iter([Ok::<_, io::Error>("first")]);
            Body::from_stream(stream::StreamExt::chain(first, stream::pending()))
        };
        let router = Router::new()
            .route("/watch", get(watch))
            .layer(from_fn(count));
        let service = router.into_make_service_with_connect_info::<Peer>();
        tokio::spawn(async move { axum::serve(incoming, service).await });
        let connect = async || -> TlsStream<TcpStream> {
            let stream = TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from("::1").unwrap();
            let connector = TlsConnector::from(client.clone());
            connector.connect(name, stream).await.unwrap()
        };
        let mut watching = connect().await;
        let request = b"GET /watch HTTP/1.1\r\nhost: api\r\n\r\n";
        watching.write_all(request).await.unwrap();
        let mut read = Vec::new();
        while !read.windows(5).any(|part| part == b"first") {
            assert_ne!(watching.read_buf(&mut read).await.unwrap(), 0);
        }
        let mut silent = connect().await;
        let ended = timeout(TIMEOUT, silent.read(&mut [0])).await.unwrap();
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        let more = timeout(2 * IDLE, watching.read(&mut [0])).await;
        assert!(more.is_err(), "{more:?}");
    }
}
