//! A TCP connection to a pod that can be checked while hyper owns it.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::shared_tcp;

/// A shared TCP connection; one of its clones reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct PodStream(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    _claim: OwnedSemaphorePermit,
}

impl PodStream {
    pub(crate) fn new(stream: TcpStream, claim: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(Connection {
            stream,
            _claim: claim,
        }))
    }

    /// Whether the pod has neither closed the connection nor sent data that nothing has read, as far as the kernel
    /// knows.
    pub(crate) fn is_silent(&self) -> bool {
        let peeked = SockRef::from(&self.0.stream).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl AsyncRead for PodStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        shared_tcp::poll_read(&self.0.stream, cx, buffer)
    }
}

impl AsyncWrite for PodStream {
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
        shared_tcp::poll_write_vectored(&self.0.stream, cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shared_tcp::shutdown(&self.0.stream))
    }
}
