//! Reading and writing a TCP connection through a shared reference: its readiness or its kernel state is looked at elsewhere
//! meanwhile, which tokio's own `AsyncRead` and `AsyncWrite` of an exclusive `TcpStream` do not allow.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

/// As `AsyncRead::poll_read`.
pub fn poll_read(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        match stream.try_read_buf(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done.map(|_count| ())),
        }
    }
}

/// As `AsyncWrite::poll_write_vectored`.
pub fn poll_write_vectored(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match stream.try_write_vectored(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
    }
}

/// Ends the sending side.
pub fn shutdown(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).shutdown(Shutdown::Write)
}
