//! A client's TCP stream whose end is detected without reading from it.
//!
//! The body of a parked request stays in the socket, so that TCP's flow control stops the client. A read would not see
//! the end of the stream behind that data; the kernel reports it as EPOLLRDHUP, which [`closed`] waits for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use dormouse_proxy::shared_tcp;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// The client connection preface of HTTP/2 with prior knowledge (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of the first read: the head of most requests fits.
const FIRST_READ_BYTES: usize = 1024;

/// The client's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// A client's stream, and the bytes already read from it.
pub(crate) struct ClientStream {
    stream: Arc<TcpStream>,
    read: BytesMut,
}

/// Reads until the protocol is known; `None` if the client closed the connection before.
pub(crate) async fn detect_protocol(
    stream: Arc<TcpStream>,
) -> io::Result<Option<(Protocol, ClientStream)>> {
    let mut read = BytesMut::with_capacity(FIRST_READ_BYTES);
    loop {
        stream.readable().await?;
        match stream.try_read_buf(&mut read) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        let seen = read.len().min(PREFACE.len());
        if read[..seen] != PREFACE[..seen] {
            return Ok(Some((Protocol::Http1, ClientStream { stream, read })));
        }
        if seen == PREFACE.len() {
            return Ok(Some((Protocol::Http2, ClientStream { stream, read })));
        }
    }
}

/// Waits until the client has closed its side, even if data before the end is unread.
pub(crate) async fn closed(stream: &TcpStream) {
    // tokio's PRIORITY interest is the one that unread data does not make ready.
    match stream.ready(Interest::PRIORITY).await {
        Ok(ready) if !ready.is_read_closed() => std::future::pending().await,
        Ok(_) | Err(_) => {}
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.read.is_empty() {
            let count = self.read.len().min(buffer.remaining());
            buffer.put_slice(&self.read[..count]);
            self.read.advance(count);
            if self.read.is_empty() {
                self.read = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        shared_tcp::poll_read(&self.stream, cx, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        shared_tcp::poll_write_vectored(&self.stream, cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shared_tcp::shutdown(&self.stream))
    }
}
