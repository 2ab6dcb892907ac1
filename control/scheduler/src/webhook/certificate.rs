//! The webhook's certificate, read again when its files change: a renewed one needs no restart.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

use super::CertificateFiles;

/// The protocols that the server offers, in its order.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Files that make no TLS server.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read, or has no such part.
    #[error("{} has no readable {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The part.
        what: &'static str,
        /// The cause.
        source: pem::Error,
    },
    /// The certificate and the key do not fit together.
    #[error("the certificate of {} cannot be used", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

/// When the certificate and its key were written; `None` if that is not known.
type Modified = Option<[SystemTime; 2]>;

/// The certificate of the files.
#[derive(Debug)]
struct FileCertificate {
    files: CertificateFiles,
    provider: Arc<CryptoProvider>,
    current: Mutex<(Modified, Arc<CertifiedKey>)>,
}

/// A TLS server with the certificate of the files.
pub(super) fn server_config(
    files: CertificateFiles,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let provider = Arc::new(ring::default_provider());
    let path = files.certificate.clone();
    let certificate = FileCertificate::load(files, Arc::clone(&provider))?;
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|source| CertificateError::Certificate { path, source })?;
    let mut config = config
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(Arc::new(config))
}

impl FileCertificate {
    fn load(
        files: CertificateFiles,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, CertificateError> {
        let current = (files.modified(), files.read(&provider)?);
        Ok(Self {
            files,
            provider,
            current: Mutex::new(current),
        })
    }

    /// The certificate. While the files are being replaced they may not fit together: the previous one is used until they do.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock();
        let modified = self.files.modified();
        let is_changed = modified.is_none() || modified != current.0;
        if is_changed && let Ok(key) = self.files.read(&self.provider) {
            *current = (modified, key);
        }
        Arc::clone(&current.1)
    }
}

impl ResolvesServerCert for FileCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl CertificateFiles {
    fn modified(&self) -> Modified {
        let of = |path: &PathBuf| -> io::Result<_> { std::fs::metadata(path)?.modified() };
        Some([of(&self.certificate).ok()?, of(&self.key).ok()?])
    }

    fn read(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, CertificateError> {
        let unreadable = |path: &PathBuf, what, source| CertificateError::File {
            path: path.clone(),
            what,
            source,
        };
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(&self.certificate).and_then(Iterator::collect);
        let chain = match chain {
            Ok(chain) if chain.is_empty() => Err(pem::Error::NoItemsFound),
            other => other,
        };
        let chain = chain.map_err(|source| unreadable(&self.certificate, "certificate", source))?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|source| unreadable(&self.key, "private key", source))?;
        let certified = CertifiedKey::from_der(chain, key, provider);
        let certified = certified.map_err(|source| CertificateError::Certificate {
            path: self.certificate.clone(),
            source,
        });
        certified.map(Arc::new)
    }
}
