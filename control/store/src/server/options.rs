//! Options of a server: TLS, and the member in the list of its cluster.

use std::sync::Arc;

use tokio::{net::TcpListener, sync::Semaphore};
use tokio_rustls::TlsAcceptor;

use super::{ServeError, Tls, Trace, accept::Acceptor, descriptors};

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// `None`: connections without TLS.
    pub tls: Option<Tls>,
    /// Whether the common name of a client's certificate is its user, unless the request has a token;
    /// etcd's `--client-cert-auth`.
    pub certificate_users: bool,
    /// Name of the member; etcd's `--name`.
    pub name: String,
    /// URLs of the member in its cluster's list, etcd's `--advertise-client-urls`. Empty: those of the
    /// listeners.
    pub client_urls: Vec<String>,
    /// An observer of all calls.
    pub trace: Option<Trace>,
    /// Connections that are served at a time; further ones wait. The default raises the limit of file
    /// descriptors of the process, and leaves some of these for the files of a store.
    pub connections_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: None,
            certificate_users: false,
            name: "dormouse".into(),
            client_urls: Vec::new(),
            trace: None,
            connections_max: descriptors::connections_max(),
        }
    }
}

impl Options {
    pub(super) fn acceptor(&self) -> Acceptor {
        let tls = self.tls.as_ref();
        Acceptor {
            tls: tls.map(|tls| TlsAcceptor::from(tls.config.clone())),
            certificate_users: self.certificate_users,
            slots: Arc::new(Semaphore::new(self.connections_max)),
        }
    }

    /// The URLs of the member.
    pub(super) fn urls(&self, listeners: &[TcpListener]) -> Result<Vec<String>, ServeError> {
        if !self.client_urls.is_empty() {
            return Ok(self.client_urls.clone());
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let url = |listener: &TcpListener| {
            let address = listener.local_addr().map_err(ServeError::Address)?;
            Ok(format!("{scheme}://{address}"))
        };
        listeners.iter().map(url).collect()
    }
}
