//! TLS handshakes of accepted connections, side by side and bounded in number, by source, and in time, and the log of those that fail.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dormouse_trust::{diagnosis, guesses, server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{self, AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::either::Either;
use tracing::warn;

use crate::connection::{Access, Connection, Peer, Socket};
use crate::handshake_threads;
use crate::places::Places;
use crate::sources::{Number, Room, Sources};

/// Longest duration of a handshake, so that slow clients do not keep the places of others.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for which a client then waits for a place.
const PLACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life of a connection of plain text that is answered: its server counts no requests.
const PLAIN_TEXT_MAX: Duration = Duration::from_secs(10);
/// Time in which a refused client closes its connection, and the bytes that it may send meanwhile.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const UNREAD_MAX: u64 = 64 * 1024;
/// Shortest interval of log lines about failed handshakes.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
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

/// The handshakes of one listener.
#[derive(Debug)]
pub(crate) struct Handshakes {
    running: JoinSet<Result<Connection, Failed>>,
    /// Their number in `sources`, by task.
    numbers: HashMap<task::Id, Number>,
    sources: Sources<(AbortHandle, SocketAddr)>,
    server: Arc<Server>,
    started: Instant,
    log: Log,
}

/// What all handshakes of a listener have in common.
#[derive(Debug)]
struct Server {
    config: Arc<ServerConfig>,
    plain_text: PlainText,
    places: Places,
    /// Longest time without a request on a connection without a certificate.
    idle_max: Option<Duration>,
}

/// A client that is refused.
#[derive(Debug)]
struct Failed {
    address: SocketAddr,
    reason: String,
}

/// Failed handshakes are logged, but a flood of them does not fill the log.
#[derive(Debug, Default)]
struct Log {
    last: Option<Instant>,
    /// Failures since then.
    omitted: u64,
}

impl Handshakes {
    /// At most `max` handshakes at a time; connections whose handshake has succeeded take one of the places.
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        plain_text: PlainText,
        places: Places,
        max: usize,
    ) -> Self {
        Self {
            running: JoinSet::new(),
            numbers: HashMap::new(),
            sources: Sources::new(max),
            server: Arc::new(Server {
                config,
                idle_max: (plain_text == PlainText::Answered).then_some(PLAIN_TEXT_MAX),
                plain_text,
                places,
            }),
            started: Instant::now(),
            log: Log::default(),
        }
    }

    /// Connections without a certificate are closed when they have had no request for so long. To be called before the first handshake.
    pub(crate) fn close_idle(&mut self, longest: Duration) {
        if let Some(server) = Arc::get_mut(&mut self.server) {
            server.idle_max = Some(longest);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Begins a handshake, or refuses the client: others of its source have too many.
    pub(crate) fn begin(&mut self, stream: TcpStream, address: SocketAddr) {
        let (source, now) = (guesses::source(address.ip()), self.started.elapsed());
        match self.sources.make_room(source, now) {
            Room::Free => {}
            Room::Instead((handshake, address)) => {
                handshake.abort();
                let reason = "it has not ended its handshake, and its place was needed".to_owned();
                self.log.failed(&Failed { address, reason });
            }
            Room::None => {
                let reason = "too many handshakes at a time".to_owned();
                self.log.failed(&Failed { address, reason });
                return;
            }
        }
        let server = Arc::clone(&self.server);
        let connection = async move {
            let connection = server.connection(stream, address, source).await;
            connection.map_err(|reason| Failed { address, reason })
        };
        let handshake = self
            .running
            .spawn_on(connection, &handshake_threads::handle());
        let task = handshake.id();
        let number = self.sources.insert(source, now, (handshake, address));
        self.numbers.insert(task, number);
    }

    /// Waits for the end of a handshake; its connection if it succeeded. None if no handshake runs. Cancel safe.
    pub(crate) async fn ended(&mut self) -> Option<(Connection, SocketAddr)> {
        let ended = self.running.join_next_with_id().await?;
        let task = match &ended {
            Ok((task, _)) => *task,
            Err(error) => error.id(),
        };
        if let Some(number) = self.numbers.remove(&task) {
            self.sources.remove(number);
        }
        match ended {
            Ok((_, Ok(connection))) => {
                let address = connection.peer().address?;
                return Some((connection, address));
            }
            Ok((_, Err(failed))) => self.log.failed(&failed),
            Err(error) if error.is_cancelled() => {}
            Err(panicked) => warn!(%panicked, "a TLS handshake panicked"),
        }
        None
    }
}

impl Server {
    async fn connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        source: IpAddr,
    ) -> Result<Connection, String> {
        let ended = timeout(HANDSHAKE_TIMEOUT, self.handshake(stream)).await;
        let slow = || format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs());
        let (stream, access) = ended.unwrap_or_else(|_elapsed| Err(slow()))?;
        let place = timeout(PLACE_TIMEOUT, self.places.take(&access, source)).await;
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
        let idle_max = self.idle_max.filter(|_| !access.is_known());
        let peer = Peer {
            address: Some(address),
            access,
            requests: None,
        };
        let connection = Connection::new(stream, peer, place);
        Ok(match idle_max {
            Some(longest) => connection.limited(longest),
            None => connection,
        })
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

impl Log {
    fn failed(&mut self, failed: &Failed) {
        let now = Instant::now();
        let is_recent = |last| now.duration_since(last) < LOG_INTERVAL;
        if self.last.is_some_and(is_recent) {
            self.omitted += 1;
            return;
        }
        let omitted = std::mem::take(&mut self.omitted);
        self.last = Some(now);
        warn!(client = %failed.address, reason = failed.reason, omitted, "a client is refused");
    }
}
