//! A client's connection that can be watched for its end while nobody reads from it.
//!
//! A parked request's body stays in the socket, so that TCP slows the client down; but then nobody
//! reads the end of the stream either. The kernel still reports it (EPOLLRDHUP), and [`left`] waits for that.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// What a client that speaks HTTP/2 by prior knowledge sends first (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Enough for the head of most requests: then no second read is needed.
const FIRST_READ_BYTES: usize = 1024;

/// Which protocol the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// A client's connection and what has been read from it already.
pub(crate) struct Peer {
    stream: Arc<TcpStream>,
    read: BytesMut,
}

/// Reads just enough to know the protocol; `None` when the client left without a word.
pub(crate) async fn recognise(stream: Arc<TcpStream>) -> io::Result<Option<(Protocol, Peer)>> {
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
            return Ok(Some((Protocol::Http1, Peer { stream, read })));
        }
        if seen == PREFACE.len() {
            return Ok(Some((Protocol::Http2, Peer { stream, read })));
        }
    }
}

/// Waits until the client has closed its side, whatever it sent before.
pub(crate) async fn left(stream: &TcpStream) {
    // PRIORITY is what tokio calls a wait that unread bytes do not end.
    match stream.ready(Interest::PRIORITY).await {
        Ok(ready) if !ready.is_read_closed() => std::future::pending().await,
        Ok(_) | Err(_) => {}
    }
}

impl AsyncRead for Peer {
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
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done.map(|_count| ())),
            }
        }
    }
}

impl AsyncWrite for Peer {
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
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.stream).shutdown(Shutdown::Write))
    }
}
