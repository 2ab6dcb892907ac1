//! TLS of a client's connections, with errors that name what is wrong with a certificate.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dormouse_trust::diagnosis;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::Uri;
use tower::util::ServiceFn;

/// Connects to one server.
#[derive(Clone)]
pub(super) struct Connector {
    config: Arc<ClientConfig>,
    /// Host and port, as in the URL.
    authority: String,
    name: ServerName<'static>,
    refusal: Refusal,
}

/// Why the server has ended a connection, from the alert that it sent. Of several, the last one.
type Refusal = Arc<Mutex<Option<String>>>;

type Connecting = Pin<Box<dyn Future<Output = io::Result<TokioIo<Diagnosed>>> + Send + 'static>>;

impl Connector {
    /// A connector to the server of a URL `https://…`; none if it has no host and port.
    pub(super) fn new(url: &str, config: Arc<ClientConfig>) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri
            .authority()
            .filter(|_| uri.scheme_str() == Some("https"))?;
        authority.port()?;
        let host = authority.host();
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        Some(Self {
            config,
            authority: authority.to_string(),
            name: ServerName::try_from(host.to_owned()).ok()?,
            refusal: Refusal::default(),
        })
    }

    /// The server's host and port.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Why the server has ended a connection since the last call.
    pub(super) fn take_refusal(&self) -> Option<String> {
        self.refusal.lock().take()
    }

    /// The connector as tonic takes it.
    pub(super) fn service(self) -> ServiceFn<impl FnMut(Uri) -> Connecting + Clone> {
        tower::service_fn(move |_uri| {
            let connector = self.clone();
            Box::pin(async move { connector.connect().await.map(TokioIo::new) }) as Connecting
        })
    }

    async fn connect(self) -> io::Result<Diagnosed> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(self.config);
        let stream = connector.connect(self.name, stream).await;
        Ok(Diagnosed {
            stream: stream.map_err(diagnosed)?,
            refusal: self.refusal,
        })
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Connector({})", self.authority)
    }
}

/// A connection with TLS. The server's refusal of the client's certificate arrives after the handshake, with the first read.
pub(super) struct Diagnosed {
    stream: TlsStream<TcpStream>,
    refusal: Refusal,
}

fn diagnosed(error: io::Error) -> io::Error {
    match diagnosis::of_connection(&error) {
        Some(reason) => io::Error::new(error.kind(), reason),
        None => error,
    }
}

impl AsyncRead for Diagnosed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        Poll::Ready(read.map_err(|error| {
            let Some(reason) = diagnosis::of_connection(&error) else {
                return error;
            };
            *self.refusal.lock() = Some(reason.clone());
            io::Error::new(error.kind(), reason)
        }))
    }
}

impl AsyncWrite for Diagnosed {
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
        slices: &[io::IoSlice<'_>],
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
