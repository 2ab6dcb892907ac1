//! Accepted TCP connections, limited in number: the clients of one server cannot use up the file descriptors of the others
//! in its process.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Pause after a failed accept: the process may be out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A listener with a limit of open connections. Further ones wait in the kernel's backlog.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    permits: Arc<Semaphore>,
}

/// A connection without Nagle's algorithm: small messages are sent at once, although earlier ones are not acknowledged.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Released when the connection is closed.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Incoming {
    /// Accepts on `listener` while fewer than `connections_max` of its connections are open.
    pub fn new(listener: TcpListener, connections_max: usize) -> Self {
        let permits = connections_max.min(Semaphore::MAX_PERMITS);
        Self {
            listener,
            permits: Arc::new(Semaphore::new(permits)),
        }
    }

    /// The next connection. Cancel safe.
    pub async fn accept(&self) -> (Connection, SocketAddr) {
        // An error is impossible: the semaphore is not closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // The client may have closed the connection already; the first read finds that.
                    let _ = stream.set_nodelay(true);
                    let connection = Connection {
                        stream,
                        _permit: permit,
                    };
                    return (connection, peer);
                }
                Err(_out_of_descriptors) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// The listener's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// All further connections.
    pub(crate) fn connections(self) -> impl Stream<Item = io::Result<Connection>> {
        futures::stream::unfold(self, async |incoming| {
            let (connection, _peer) = incoming.accept().await;
            Some((Ok(connection), incoming))
        })
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_above_the_limit_waits_until_another_is_closed() {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let incoming = Incoming::new(listener, 1);
        let address = incoming.local_addr().unwrap();
        let _clients = [
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        ];
        let (first, _) = incoming.accept().await;
        assert!(first.stream.nodelay().unwrap());
        assert!(incoming.accept().now_or_never().is_none());
        drop(first);
        incoming.accept().await;
    }
}
