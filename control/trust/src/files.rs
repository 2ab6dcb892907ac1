//! The certificate of a server in files that another program renews, such as cert-manager: they are read again when they change. New connections get
//! the newest certificate that can be used, and open ones go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use dormouse_files::Stamp;
use parking_lot::Mutex;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tracing::{info, warn};
use zeroize::Zeroizing;

use crate::client;
use crate::credentials::CredentialsError;
use crate::folder::{self, FolderError};
use crate::server::{TlsError, provider};
use crate::validity::Validity;

/// The files of a certificate and of its private key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and its intermediate ones.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The newest certificate of the files that can be used.
#[derive(Debug)]
pub struct FileCertificate {
    files: CertificateFiles,
    provider: Arc<CryptoProvider>,
    server: Option<ClusterServer>,
    used: Mutex<Used>,
}

/// A server of a cluster, whose certificate must be from the cluster's authority: clients know no other.
#[derive(Debug)]
struct ClusterServer {
    authority: CertificateDer<'static>,
    name: ServerName<'static>,
    verifier: Arc<WebPkiServerVerifier>,
}

#[derive(Debug)]
struct Used {
    /// The files as they were read last with success.
    read: [Option<Stamp>; 2],
    certified: Arc<CertifiedKey>,
    /// Why the files cannot be used since they have changed: it is logged once.
    refused: Option<String>,
}

impl FileCertificate {
    /// The certificate of the files, whose key other users may be able to read: as for etcd, and as Kubernetes mounts secrets.
    pub fn load(
        files: CertificateFiles,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<Self>, FolderError> {
        Self::open(files, provider, None)
    }

    /// The certificate of the files for a server of a cluster with this authority and this name. Its key is not readable for other users.
    pub fn of_cluster(
        files: CertificateFiles,
        authority: CertificateDer<'static>,
        name: ServerName<'static>,
    ) -> Result<Arc<Self>, FileCertificateError> {
        let provider = provider();
        let server = ClusterServer {
            verifier: client::verifier(std::slice::from_ref(&authority), &provider)?,
            authority,
            name,
        };
        Ok(Self::open(files, provider, Some(server))?)
    }

    fn open(
        files: CertificateFiles,
        provider: Arc<CryptoProvider>,
        server: Option<ClusterServer>,
    ) -> Result<Arc<Self>, FolderError> {
        let used = Used {
            read: files.stamps(),
            certified: read(&files, &provider, server.as_ref())?,
            refused: None,
        };
        Ok(Arc::new(Self {
            files,
            provider,
            server,
            used: Mutex::new(used),
        }))
    }

    /// The certificate. While the files are being replaced they may not fit together: the previous one is used until they do.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut used = self.used.lock();
        let stamps = self.files.stamps();
        if !has_changed(stamps, used.read) {
            return Arc::clone(&used.certified);
        }
        match read(&self.files, &self.provider, self.server.as_ref()) {
            Ok(certified) => {
                if certified.cert != used.certified.cert {
                    info!(certificate = %self.files.certificate.display(), "the certificate of the listeners was renewed");
                }
                *used = Used {
                    read: stamps,
                    certified,
                    refused: None,
                };
            }
            Err(error) => {
                let reason = chain(&error);
                if used.refused.as_ref() != Some(&reason) {
                    warn!(certificate = %self.files.certificate.display(), reason, "the files of the certificate have changed and cannot be used: the previous certificate is used on");
                    used.refused = Some(reason);
                }
            }
        }
        Arc::clone(&used.certified)
    }
}

impl ResolvesServerCert for FileCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl CertificateFiles {
    /// The state of both files; none: it is not known.
    fn stamps(&self) -> [Option<Stamp>; 2] {
        let of = |path: &Path| fs::metadata(path).ok().as_ref().map(Stamp::of);
        [of(&self.certificate), of(&self.key)]
    }
}

/// Whether one of two files may have changed since it was read.
fn has_changed(now: [Option<Stamp>; 2], read: [Option<Stamp>; 2]) -> bool {
    let pairs = now.into_iter().zip(read);
    pairs
        .into_iter()
        .any(|(now, read)| now.is_none_or(|now| now.differs(read)))
}

fn read(
    files: &CertificateFiles,
    provider: &CryptoProvider,
    server: Option<&ClusterServer>,
) -> Result<Arc<CertifiedKey>, FolderError> {
    let failed = |path: &Path, source| FolderError::Credentials {
        path: path.into(),
        source,
    };
    let CertificateFiles { certificate, key } = files;
    let mut chain = folder::load_certificates(certificate)?;
    let text = match server {
        Some(_) => folder::read_key(key)?,
        None => folder::read(key).map(Zeroizing::new)?,
    };
    let der = PrivateKeyDer::from_pem_slice(text.as_bytes());
    let der = der.map_err(|_malformed| failed(key, CredentialsError::Key))?;
    if let Some(server) = server {
        let checked = server.check(&chain, SystemTime::now());
        checked.map_err(|error| failed(certificate, error))?;
        // A process that joins knows the authority by its hash, and finds it in the chain.
        if !chain.contains(&server.authority) {
            chain.push(server.authority.clone());
        }
    }
    let certified = CertifiedKey::from_der(chain, der, provider);
    let certified =
        certified.map_err(|error| failed(certificate, CredentialsError::of_pair(error)))?;
    Ok(Arc::new(certified))
}

impl ClusterServer {
    fn check(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<(), CredentialsError> {
        let (certificate, others) = chain.split_first().ok_or(CredentialsError::Certificate)?;
        let validity =
            Validity::of_certificate(certificate).ok_or(CredentialsError::Certificate)?;
        if !validity.contains(now) {
            return Err(CredentialsError::Validity(validity));
        }
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let at = UnixTime::since_unix_epoch(since.unwrap_or_default());
        let verified = self
            .verifier
            .verify_server_cert(certificate, others, &self.name, &[], at);
        verified
            .map(drop)
            .map_err(|error| CredentialsError::Server(self.name.to_str().into(), error.into()))
    }
}

/// Files that make no certificate of a cluster's server.
#[derive(Debug, thiserror::Error)]
pub enum FileCertificateError {
    /// The files cannot be used.
    #[error(transparent)]
    Files(#[from] FolderError),
    /// The authority cannot be used.
    #[error(transparent)]
    Authority(#[from] TlsError),
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let errors = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = errors.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests;
