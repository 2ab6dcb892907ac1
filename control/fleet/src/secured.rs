//! TLS handshakes of accepted connections, side by side and bounded in number and time, and the log of those that fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dormouse_trust::{diagnosis, server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::either::Either;
use tracing::warn;

use crate::incoming::{Accepted, Access, Connection};

/// Handshakes at the same time; further connections wait in the kernel's backlog.
const HANDSHAKES_MAX: usize = if cfg!(test) { 4 } else { 1_024 };
/// Longest duration of a handshake, so that slow clients do not keep the places of others.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
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
    /// It is accepted as [`Access::PlainText`].
    Answered,
}

/// The handshakes of one listener.
#[derive(Debug)]
pub(crate) struct Handshakes {
    running: JoinSet<Result<Connection, Failed>>,
    config: Arc<ServerConfig>,
    plain_text: PlainText,
    log: Log,
}

/// A client whose handshake has failed.
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
    pub(crate) fn new(config: Arc<ServerConfig>, plain_text: PlainText) -> Self {
        Self {
            running: JoinSet::new(),
            config,
            plain_text,
            log: Log::default(),
        }
    }

    pub(crate) fn have_room(&self) -> bool {
        self.running.len() < HANDSHAKES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Begins a handshake.
    pub(crate) fn begin(&mut self, accepted: Accepted) {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.config));
        let address = accepted.address;
        let handshake = handshake(acceptor, self.plain_text, accepted);
        self.running.spawn(async move {
            let ended = timeout(HANDSHAKE_TIMEOUT, handshake).await;
            let slow = || format!("no handshake within {} s", HANDSHAKE_TIMEOUT.as_secs());
            let connection = ended.unwrap_or_else(|_elapsed| Err(slow()));
            connection.map_err(|reason| Failed { address, reason })
        });
    }

    /// Waits for the end of a handshake; its connection if it succeeded. None if no handshake runs. Cancel safe.
    pub(crate) async fn ended(&mut self) -> Option<(Connection, SocketAddr)> {
        match self.running.join_next().await? {
            Ok(Ok(connection)) => {
                let address = connection.peer().address?;
                return Some((connection, address));
            }
            Ok(Err(failed)) => self.log.failed(&failed),
            Err(panicked) => warn!(%panicked, "a TLS handshake panicked"),
        }
        None
    }
}

async fn handshake(
    acceptor: TlsAcceptor,
    plain_text: PlainText,
    accepted: Accepted,
) -> Result<Connection, String> {
    let mut first = [0];
    let read = accepted.stream.peek(&mut first).await;
    let speaks_tls = read.map_err(|error| error.to_string())? == 0 || first[0] == HANDSHAKE_RECORD;
    if !speaks_tls {
        return match plain_text {
            PlainText::Answered => Ok(accepted.open(Access::PlainText)),
            PlainText::Closed => {
                answer(accepted.stream).await;
                Err("the client does not speak TLS: its URL must begin with https://".to_owned())
            }
        };
    }
    let Accepted {
        stream,
        address,
        permit,
    } = accepted;
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
    let stream = Either::Right(Box::new(stream));
    Ok(Connection::new(stream, permit, address, access))
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
