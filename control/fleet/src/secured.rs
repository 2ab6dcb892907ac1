//! TLS of accepted connections: their handshakes, bounded in time, and the answer to a client without TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dormouse_handshakes::Handshakes;
use dormouse_handshakes::sources::source;
use dormouse_trust::{diagnosis, server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::either::Either;

use crate::connection::{Access, Connection, Peer, Socket};
use crate::places::Places;

/// Longest duration of a handshake, so that slow clients do not keep the places of others.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for which a client then waits for a place.
const PLACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time in which a refused client closes its connection, and the bytes that it may send meanwhile.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const UNREAD_MAX: u64 = 64 * 1024;
/// The first byte of a TLS connection: a record of a handshake (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// The answer to plain text, as of Go's servers.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\ncontent-type: text/plain\r\n\r\nClient sent an HTTP request to an HTTPS server: its URL must begin with https://\n";

/// How a client's connection without TLS is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainText {
    /// It is answered by the status 400 of HTTP, and closed.
    Closed,
    /// It is accepted as [`Access::PlainText`], for a short time.
    Answered,
}

/// A listener's TLS.
#[derive(Debug)]
pub(crate) struct Secured {
    handshakes: Handshakes<Connection>,
    server: Arc<Server>,
}

/// What all handshakes of a listener have in common.
#[derive(Debug)]
struct Server {
    config: Arc<ServerConfig>,
    plain_text: PlainText,
    places: Places,
}

impl Secured {
    /// At most `max` handshakes at a time; connections whose handshake has succeeded take one of the places.
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        plain_text: PlainText,
        places: Places,
        max: usize,
    ) -> Self {
        Self {
            handshakes: Handshakes::new(max),
            server: Arc::new(Server {
                config,
                plain_text,
                places,
            }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handshakes.is_empty()
    }

    /// Begins a handshake, or refuses the client.
    pub(crate) fn begin(&mut self, stream: TcpStream, address: SocketAddr) {
        let server = Arc::clone(&self.server);
        let connection = async move { server.connection(stream, address).await };
        self.handshakes
            .begin(address.ip(), address.to_string(), connection);
    }

    /// Waits for the end of a handshake; its connection if it succeeded. None if no handshake runs. Cancel safe.
    pub(crate) async fn ended(&mut self) -> Option<(Connection, SocketAddr)> {
        let connection = self.handshakes.ended().await?;
        let address = connection.peer().address?;
        Some((connection, address))
    }
}

impl Server {
    async fn connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<Connection, String> {
        let ended = timeout(HANDSHAKE_TIMEOUT, self.handshake(stream)).await;
        let slow = || format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs());
        let (stream, access) = ended.unwrap_or_else(|_elapsed| Err(slow()))?;
        let place = timeout(
            PLACE_TIMEOUT,
            self.places.take(&access, source(address.ip())),
        )
        .await;
        let place = place.map_err(|_elapsed| {
            let whom = if access.is_known() {
                "the clients"
            } else {
                "clients without a certificate, or for those of its address"
            };
            format!(
                "all connections for {whom} are open: none has ended within {} s",
                PLACE_TIMEOUT.as_secs()
            )
        })?;
        let peer = Peer {
            address: Some(address),
            access,
            requests: None,
        };
        Ok(Connection::new(stream, peer, place))
    }

    async fn handshake(&self, stream: TcpStream) -> Result<(Socket, Access), String> {
        let mut first = [0];
        let read = stream.peek(&mut first).await;
        let speaks_tls =
            read.map_err(|error| error.to_string())? == 0 || first[0] == HANDSHAKE_RECORD;
        if !speaks_tls {
            return match self.plain_text {
                PlainText::Answered => Ok((Either::Left(stream), Access::PlainText)),
                PlainText::Closed => {
                    answer(stream).await;
                    Err(
                        "the client does not speak TLS: its URL must begin with https://"
                            .to_owned(),
                    )
                }
            };
        }
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config));
        let stream = match acceptor.accept(stream).into_fallible().await {
            Ok(stream) => stream,
            Err((error, stream)) => {
                close(stream).await;
                return Err(diagnosis::of_connection(&error).unwrap_or_else(|| error.to_string()));
            }
        };
        let client = server::client(stream.get_ref().1).map_err(|error| error.to_string())?;
        let access = client.map_or(Access::Anonymous, |client| {
            Access::Certificate(Arc::new(client))
        });
        Ok((Either::Right(Box::new(stream)), access))
    }
}

/// Answers a client of HTTP with the reason.
async fn answer(mut stream: TcpStream) {
    // The client may have gone already.
    drop(timeout(CLOSE_TIMEOUT, stream.write_all(NOT_TLS)).await);
    close(stream).await;
}

/// Closes a connection once the client has read the alert and closed it, too: with unread bytes of the client, the kernel would reset it, and
/// the client would not get the alert.
async fn close(mut stream: TcpStream) {
    let closed = async {
        stream.shutdown().await?;
        let mut rest = stream.take(UNREAD_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    // The client may have gone already, or never closes: nothing more can be done for it.
    drop(timeout(CLOSE_TIMEOUT, closed).await);
}
