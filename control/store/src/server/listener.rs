//! The listeners of the server: TCP, and sockets of the file system.

use std::{
    fs, io,
    net::{IpAddr, Ipv6Addr},
    os::unix::fs::FileTypeExt,
    path::Path,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time,
};
use tokio_util::either::Either;

/// Pause after a failed accept, which is mostly a lack of file descriptors: trying again at once
/// would take a whole processor.
pub(super) const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// A bound listener.
#[derive(Debug)]
pub enum Listener {
    /// An address and a port.
    Tcp(TcpListener),
    /// A socket of the file system; see [`Listener::unix`].
    Unix(UnixListener),
}

/// A connection without TLS.
pub(super) type Socket = Either<TcpStream, UnixStream>;

/// The client of a connection: its source, and its name for the log.
pub(super) fn client(socket: &Socket) -> (IpAddr, String) {
    let address = match socket {
        Either::Left(stream) => stream.peer_addr().ok(),
        Either::Right(_) => None,
    };
    let this_host = || (Ipv6Addr::LOCALHOST.into(), "this host".to_owned());
    address.map_or_else(this_host, |address| (address.ip(), address.to_string()))
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Listener {
    /// Listens on a socket of the file system. As in etcd, the socket of a process that ended is
    /// replaced; other files are not.
    pub fn unix(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            fs::remove_file(path)?;
        }
        Ok(Self::Unix(UnixListener::bind(path)?))
    }

    /// The address as in a URL, without its scheme.
    pub fn address(&self) -> String {
        let address = match self {
            Self::Tcp(listener) => listener.local_addr().map(|address| address.to_string()),
            Self::Unix(listener) => listener.local_addr().map(|address| {
                let path = address.as_pathname();
                path.map(|path| path.display().to_string())
                    .unwrap_or_default()
            }),
        };
        // The address of a bound listener is known.
        address.unwrap_or_default()
    }

    /// The URL of the member that listens here.
    pub(super) fn url(&self, tls: bool) -> String {
        let scheme = match (self, tls) {
            (Self::Tcp(_), false) => "http",
            (Self::Tcp(_), true) => "https",
            (Self::Unix(_), false) => "unix",
            (Self::Unix(_), true) => "unixs",
        };
        format!("{scheme}://{}", self.address())
    }

    /// The next connection. Cancel safe.
    pub(super) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // It fails only on a connection that the client has closed already.
                let _ = stream.set_nodelay(true);
                Ok(Either::Left(stream))
            }
            Self::Unix(listener) => Ok(Either::Right(listener.accept().await?.0)),
        }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Socket;
    type Addr = String;

    async fn accept(&mut self) -> (Socket, String) {
        loop {
            match Self::accept(self).await {
                Ok(socket) => return (socket, self.address()),
                Err(_) => time::sleep(ACCEPT_RETRY).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<String> {
        Ok(self.address())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_) = self {
            // It fails if the file was removed already.
            let _ = fs::remove_file(self.address());
        }
    }
}
