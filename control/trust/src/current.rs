//! A certificate that is renewed while it is used: new connections get the newest one, and open ones go on.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use crate::credentials::{Credentials, CredentialsError};

/// The newest certificate of a server or a client.
#[derive(Debug)]
pub struct Current(RwLock<Used>);

#[derive(Debug)]
struct Used {
    credentials: Credentials,
    certified: Arc<CertifiedKey>,
}

impl Current {
    /// The first certificate.
    pub fn new(credentials: Credentials) -> Result<Arc<Self>, CredentialsError> {
        Ok(Arc::new(Self(RwLock::new(Used::new(credentials)?))))
    }

    /// Uses another certificate from now on. On an error the previous one stays.
    pub fn replace(&self, credentials: Credentials) -> Result<(), CredentialsError> {
        let used = Used::new(credentials)?;
        *self.0.write() = used;
        Ok(())
    }

    /// The certificate in use.
    pub fn credentials(&self) -> Credentials {
        self.0.read().credentials.clone()
    }

    fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().certified)
    }
}

impl Used {
    fn new(credentials: Credentials) -> Result<Self, CredentialsError> {
        Ok(Self {
            certified: credentials.certified()?,
            credentials,
        })
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certified())
    }
}

impl ResolvesClientCert for Current {
    /// The hints of the server are not used: it says why it refuses a certificate of another authority.
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.certified())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
