//! TLS of the server: its certificate, and the verification of the clients' certificates.

mod parameters;
mod revocation;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use dormouse_trust::{CertificateFiles, FileCertificate, folder::FolderError};
use tokio_rustls::rustls::{
    self, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer,
        pem::{self, PemObject},
    },
    server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use x509_cert::{Certificate, der::Decode};

pub use parameters::TlsParameters;
pub(super) use revocation::Revocations;

/// The protocols that the server offers, in its order.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of a TLS server, in PEM, and what it negotiates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and its key; etcd's `--cert-file` and `--key-file`. They are read again when they change.
    pub certificate: CertificateFiles,
    /// The certificate authorities of clients; etcd's `--trusted-ca-file`. With one, each client must
    /// have a certificate.
    pub client_authorities: Option<PathBuf>,
    /// A revocation list of clients' certificates, in PEM or DER; etcd's `--client-crl-file`.
    pub revoked: Option<PathBuf>,
    /// What is negotiated.
    pub parameters: TlsParameters,
}

/// Files that make no TLS server.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or has no such PEM section.
    #[error("{} has no readable {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The missing part.
        what: &'static str,
        /// The cause.
        source: pem::Error,
    },
    /// No certificate authority of clients can be used.
    #[error("{} has no certificate authority that can verify clients", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: VerifierBuilderError,
    },
    /// The revocation list cannot be used.
    #[error("{} has no readable revocation list", path.display())]
    Revocations {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No version and cipher suite are left.
    #[error("no cipher suite of the versions of TLS is left: name other ones in --cipher-suites")]
    Parameters(#[source] rustls::Error),
    /// A certificate authority of a file cannot be used.
    #[error("the certificate of {} cannot be used", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// The server's certificate or its key cannot be used.
    #[error(transparent)]
    Server(#[from] FolderError),
}

/// The TLS configuration of a server.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) revoked: Option<Revocations>,
}

impl From<Arc<ServerConfig>> for Tls {
    /// TLS of certificates that are not in files.
    fn from(config: Arc<ServerConfig>) -> Self {
        Self {
            config,
            revoked: None,
        }
    }
}

impl Tls {
    /// Reads the files.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let parameters = &files.parameters;
        let provider = Arc::new(parameters.provider());
        let certificate = FileCertificate::load(files.certificate.clone(), provider.clone())?;
        let verifier = match &files.client_authorities {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(path) => verifier(path, provider.clone())?,
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&parameters.versions())
            .map_err(TlsError::Parameters)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(certificate);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(Self {
            config: Arc::new(config),
            revoked: files.revoked.clone().map(Revocations::open).transpose()?,
        })
    }
}

fn verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots
            .add(authority)
            .map_err(|source| TlsError::Certificate {
                path: path.into(),
                source,
            })?;
    }
    WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .map_err(|source| TlsError::Authorities {
            path: path.into(),
            source,
        })
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = || {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)?.collect();
        match chain {
            Ok(chain) if chain.is_empty() => Err(pem::Error::NoItemsFound),
            other => other,
        }
    };
    read().map_err(|source| TlsError::File {
        path: path.into(),
        what: "certificate",
        source,
    })
}

/// The common name of a certificate's subject.
pub(super) fn common_name(certificate: &[u8]) -> io::Result<Option<Arc<str>>> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let certificate = Certificate::from_der(certificate).map_err(invalid)?;
    let subject = certificate.tbs_certificate().subject();
    let name = subject.common_name().map_err(invalid)?;
    Ok(name.map(|name| name.value().into()))
}
