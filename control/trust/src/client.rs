//! TLS 1.3 of a client: of one that knows the authorities of its cluster, of one that knows only the hash of an authority, before it joins, and of
//! a probe of health.

use std::sync::Arc;
use std::time::SystemTime;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{
    Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::current::Current;
use crate::hash::AuthorityHash;
use crate::server::{TlsError, provider, roots};
use crate::validity::Validity;

/// The protocol of gRPC.
const PROTOCOL: &[u8] = b"h2";
/// That of a probe.
const PROBE_PROTOCOL: &[u8] = b"http/1.1";

/// The TLS of a client of servers with certificates of these authorities; with a certificate, it shows that.
pub fn config(
    authorities: &[CertificateDer<'static>],
    certificate: Option<Arc<Current>>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = verifier(authorities, &provider())?;
    with_verifier(verifier, certificate)
}

/// The TLS of a client that joins: the server shows an authority with this hash, and a certificate of it.
pub fn joining(hash: AuthorityHash) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = Verifier {
        trusted: Trusted::Pinned(hash),
        provider: provider(),
    };
    with_verifier(Arc::new(verifier), None)
}

/// The TLS of a probe of health, which shows no certificate: any server of these authorities answers, also one whose certificate has expired, as
/// happens while the control plane, which renews it, is away. What such an answer is worth must not depend on more.
pub fn probing(authorities: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = Verifier {
        trusted: Trusted::AnyTime(roots(authorities)?),
        provider: provider(),
    };
    let mut config = Arc::unwrap_or_clone(with_verifier(Arc::new(verifier), None)?);
    config.alpn_protocols = vec![PROBE_PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

fn with_verifier(
    verifier: Arc<dyn ServerCertVerifier>,
    certificate: Option<Arc<Current>>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match certificate {
        Some(certificate) => builder.with_client_cert_resolver(certificate),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A resumed session would have the certificate that an earlier connection has shown.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

pub(crate) fn verifier(
    authorities: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
    let roots = Arc::new(roots(authorities)?);
    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(TlsError::Authorities)
}

/// Verifies a server that shows what is trusted; its signatures are verified alike.
#[derive(Debug)]
struct Verifier {
    trusted: Trusted,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
enum Trusted {
    /// The authority with this hash, which is among the certificates that the server shows, and it alone.
    Pinned(AuthorityHash),
    /// A certificate of these authorities, as of the beginning of its validity; its name and the present time do not count.
    AnyTime(RootCertStore),
}

impl Verifier {
    fn verify_pinned(
        &self,
        hash: AuthorityHash,
        (server, others): (&CertificateDer<'_>, &[CertificateDer<'_>]),
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_pinned = |one: &&CertificateDer<'_>| {
            AuthorityHash::of_certificate(one).is_some_and(|found| found == hash)
        };
        let found = others.iter().find(is_pinned);
        let authority = found.ok_or(CertificateError::UnknownIssuer)?;
        let authority = authority.clone().into_owned();
        let verifier = verifier(&[authority], &self.provider)
            .map_err(|_unusable| CertificateError::UnknownIssuer)?;
        verifier.verify_server_cert(server, others, name, ocsp, now)
    }

    fn verify_any_time(
        &self,
        roots: &RootCertStore,
        server: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Result<ServerCertVerified, Error> {
        let validity = Validity::of_certificate(server).ok_or(CertificateError::BadEncoding)?;
        let since_1970 = validity.not_before.duration_since(SystemTime::UNIX_EPOCH);
        let begin = UnixTime::since_unix_epoch(since_1970.unwrap_or_default());
        let algorithms = self.provider.signature_verification_algorithms.all;
        let server = ParsedCertificate::try_from(server)?;
        verify_server_cert_signed_by_trust_anchor(&server, roots, others, begin, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.trusted {
            Trusted::Pinned(hash) => self.verify_pinned(*hash, (server, others), name, ocsp, now),
            Trusted::AnyTime(roots) => self.verify_any_time(roots, server, others),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
