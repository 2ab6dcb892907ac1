//! A certificate with its chain and its private key.

use std::fmt;
use std::sync::Arc;

use pem::Pem;
use rcgen::KeyPair;
use tokio_rustls::rustls::crypto::ring::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{self, sign::CertifiedKey};
use zeroize::Zeroizing;

use crate::identity::{Identity, IdentityError};
use crate::validity::Validity;

const CERTIFICATE: &str = "CERTIFICATE";

/// Credentials that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// There is no PEM section of a certificate, or one is damaged.
    #[error("it has no certificate in PEM, or a damaged one: was the file cut off?")]
    Certificate,
    /// There is no private key.
    #[error(
        "it has no private key in PEM (that of an authority in PKCS#8), or a damaged one: was the file cut off?"
    )]
    Key,
    /// The key belongs to another certificate.
    #[error(
        "the private key does not belong to the certificate: both files must be replaced together"
    )]
    Mismatch,
    /// The key or certificate is of a kind that is not supported.
    #[error("the certificate cannot be used")]
    Unusable(#[source] rustls::Error),
    /// The certificate is not valid now.
    #[error("the certificate is valid from {} to {}, not now by the clock of this host", crate::diagnosis::at(.0.not_before), crate::diagnosis::at(.0.not_after))]
    Validity(Validity),
    /// The certificate is not that of the server.
    #[error(
        "the certificate is not one of a server at {0} by the certificate authority of this cluster: nodes and clients would refuse it"
    )]
    Server(Box<str>, #[source] Box<rustls::Error>),
}

impl CredentialsError {
    /// The error of a certificate with its key.
    pub(crate) fn of_pair(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InconsistentKeys(_) => Self::Mismatch,
            error => Self::Unusable(error),
        }
    }
}

/// A certificate, its chain and its private key, which is overwritten in memory when it is dropped.
#[derive(Clone)]
pub struct Credentials {
    chain: Vec<CertificateDer<'static>>,
    /// PKCS#8, in DER.
    key: Zeroizing<Vec<u8>>,
}

impl Credentials {
    /// A certificate and its key, once they fit together.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &KeyPair,
    ) -> Result<Self, CredentialsError> {
        let credentials = Self {
            chain,
            key: Zeroizing::new(key.serialize_der()),
        };
        credentials.certified()?;
        Ok(credentials)
    }

    /// Reads PEM. Their validity is not checked.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, CredentialsError> {
        Self::new(certificates(chain)?, &key_pair(key)?)
    }

    /// The certificate, its intermediate ones, and the authority's.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The chain in PEM.
    pub fn chain_pem(&self) -> String {
        to_pem(&self.chain)
    }

    /// The private key in PEM.
    pub fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(pem::encode(&Pem::new("PRIVATE KEY", self.key.to_vec())))
    }

    /// The certificate's validity; none if it cannot be parsed.
    pub fn validity(&self) -> Option<Validity> {
        Validity::of_certificate(self.chain.first()?)
    }

    /// The certificate's identity.
    pub fn identity(&self) -> Result<Identity, IdentityError> {
        let certificate = self.chain.first().ok_or(IdentityError::Certificate)?;
        Identity::of_certificate(certificate)
    }

    /// The certificate and its key, for TLS.
    pub fn certified(&self) -> Result<Arc<CertifiedKey>, CredentialsError> {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.as_slice()));
        let key = any_supported_type(&der).map_err(CredentialsError::Unusable)?;
        let certified = CertifiedKey::new(self.chain.clone(), key);
        certified.keys_match().map_err(CredentialsError::of_pair)?;
        Ok(Arc::new(certified))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Credentials");
        shown
            .field("identity", &self.identity().ok())
            .finish_non_exhaustive()
    }
}

/// The first private key in PEM; other sections are skipped.
pub(crate) fn key_pair(text: &str) -> Result<KeyPair, CredentialsError> {
    let der = PrivateKeyDer::from_pem_slice(text.as_bytes());
    let der = der.map_err(|_malformed| CredentialsError::Key)?;
    KeyPair::try_from(&der).map_err(|_unknown| CredentialsError::Key)
}

/// The certificates in PEM, at least one.
pub fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let sections = pem::parse_many(text).map_err(|_malformed| CredentialsError::Certificate)?;
    let is_certificate = |section: &Pem| section.tag() == CERTIFICATE;
    let found = sections.into_iter().filter(is_certificate);
    let found: Vec<_> = found
        .map(|section| section.into_contents().into())
        .collect();
    let is_whole = text.matches("-----BEGIN CERTIFICATE-----").count() == found.len();
    let are_readable = found
        .iter()
        .all(|one: &CertificateDer<'_>| Validity::of_certificate(one).is_some());
    if found.is_empty() || !is_whole || !are_readable {
        return Err(CredentialsError::Certificate);
    }
    Ok(found)
}

/// Certificates in PEM.
pub fn to_pem(chain: &[CertificateDer<'_>]) -> String {
    let sections = chain
        .iter()
        .map(|one| pem::encode(&Pem::new(CERTIFICATE, one.to_vec())));
    sections.collect()
}
