//! TLS 1.3 of a listener. Certificates of clients are verified against the authorities of the cluster; a session is never resumed, so each
//! connection shows a certificate that is valid when it begins.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    self, CertificateError, CipherSuite, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme, SupportedCipherSuite,
};

use crate::identity::{Identity, IdentityError};
use crate::validity::Validity;

/// The protocols of listeners for gRPC and HTTP, in their order.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug)]
pub enum Clients {
    /// Without one, the handshake fails.
    Required,
    /// One that is shown must be valid; clients without one are anonymous.
    Requested,
    /// With one of another identity than those, or without one, the handshake fails.
    Only(fn(&Identity) -> bool),
}

/// The identities that may use the ports between the parts of the control plane: these parts, and administrators.
pub fn administers(identity: &Identity) -> bool {
    matches!(identity, Identity::Control(_)) || identity.is_admin()
}

/// Authorities or parameters that make no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No certificate of an authority can be used.
    #[error("the certificates of the authority cannot verify others")]
    Authorities(#[source] VerifierBuilderError),
    /// The parameters cannot be used.
    #[error("TLS cannot be configured")]
    Parameters(#[from] rustls::Error),
}

/// The TLS of a listener with this certificate, for clients with certificates of these authorities.
pub fn config(
    certificate: Arc<dyn ResolvesServerCert>,
    authorities: &[CertificateDer<'static>],
    clients: Clients,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = provider();
    let roots = Arc::new(roots(authorities)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let verifier = match clients {
        Clients::Required | Clients::Only(_) => verifier,
        Clients::Requested => verifier.allow_unauthenticated(),
    };
    let verifier = verifier.build().map_err(TlsError::Authorities)?;
    let verifier = match clients {
        Clients::Only(admits) => Arc::new(Only { verifier, admits }),
        Clients::Required | Clients::Requested => verifier,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Verifies certificates, and refuses those of other identities than some.
#[derive(Debug)]
struct Only {
    verifier: Arc<dyn ClientCertVerifier>,
    admits: fn(&Identity) -> bool,
}

impl ClientCertVerifier for Only {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        client: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.verifier.verify_client_cert(client, others, now)?;
        match Identity::of_certificate(client) {
            Ok(identity) if (self.admits)(&identity) => Ok(verified),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// The client of an established connection, by its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its identity.
    pub identity: Identity,
    /// The validity of its certificate.
    pub validity: Validity,
}

/// The client of an established connection; none if it has shown no certificate.
pub fn client(connection: &rustls::ServerConnection) -> Result<Option<Client>, IdentityError> {
    let certificates = connection.peer_certificates().unwrap_or_default();
    let Some(certificate) = certificates.first() else {
        return Ok(None);
    };
    let validity = Validity::of_certificate(certificate);
    Ok(Some(Client {
        identity: Identity::of_certificate(certificate)?,
        validity: validity.ok_or(IdentityError::Certificate)?,
    }))
}

/// AES with keys of 128 bits first, as in Go: it has ten rounds, and with 256 bits fourteen.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    let is_other =
        |suite: &SupportedCipherSuite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(is_other);
    Arc::new(provider)
}

pub(crate) fn roots(
    authorities: &[CertificateDer<'static>],
) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    Ok(roots)
}
