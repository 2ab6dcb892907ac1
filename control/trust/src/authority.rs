//! The certificate authority of a cluster: embedded, or that of the operator. It signs the certificates of control's listeners, and of nodes,
//! roles and users.

use std::fmt;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use x509_cert::der::Decode;
use x509_cert::ext::pkix;
use zeroize::Zeroizing;

use crate::credentials::{self, Credentials, CredentialsError, certificates, key_pair};
use crate::hash::{AuthorityHash, hex, sha256};
use crate::identity::Identity;
use crate::validity::Validity;

/// Life of an embedded authority's certificate.
const LIFE: Duration = Duration::from_hours(24 * 365 * 10);

/// An authority that cannot be used, or a request that it does not sign.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// Its files cannot be used.
    #[error("the certificate authority cannot be used")]
    Credentials(#[from] CredentialsError),
    /// The certificate is no authority's.
    #[error(
        "the certificate is not one of a certificate authority: it must not sign others, since it has no CA:TRUE, or no keyCertSign among its key usages"
    )]
    NoAuthority,
    /// The certificate is not valid now.
    #[error("the certificate authority is valid from {} to {}, not now", crate::diagnosis::at(.0.not_before), crate::diagnosis::at(.0.not_after))]
    Validity(Validity),
    /// The request for a certificate is malformed, or is not signed by its key.
    #[error("the request for a certificate is not readable, or is not signed by its own key")]
    Request,
    /// A certificate has room for one group.
    #[error("a user can have one group, not {0}")]
    Groups(usize),
    /// A certificate could not be made.
    #[error("failed to make a certificate")]
    Make(#[from] rcgen::Error),
}

/// A certificate authority with its key.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    hash: AuthorityHash,
}

impl Authority {
    /// A new authority with a key of its own.
    pub fn create(now: SystemTime) -> Result<Self, AuthorityError> {
        Self::of_key(KeyPair::generate()?, now)
    }

    /// The authority of a key in PEM, whose certificate was lost, with a new one: those that it has signed stay valid.
    pub fn of_key_pem(key: &str, now: SystemTime) -> Result<Self, AuthorityError> {
        Self::of_key(key_pair(key)?, now)
    }

    fn of_key(key: KeyPair, now: SystemTime) -> Result<Self, AuthorityError> {
        let validity = Validity::issued(now, LIFE, None);
        // A name of its own: a certificate of another cluster is known by that of its issuer.
        let digits = hex(&sha256(&key.subject_public_key_info()));
        let mut params = params(&format!("dormouse-{}", &digits[..8]), &[], validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key)?.der().clone();
        Self::new(certificate, key)
    }

    /// An authority in PEM, checked at `now`.
    pub fn from_pem(certificate: &str, key: &str, now: SystemTime) -> Result<Self, AuthorityError> {
        let chain = certificates(certificate)?;
        let certificate = chain.into_iter().next();
        let certificate = certificate.ok_or(CredentialsError::Certificate)?;
        let key = key_pair(key)?;
        Credentials::new(vec![certificate.clone()], &key)?;
        if !is_authority(&certificate) {
            return Err(AuthorityError::NoAuthority);
        }
        let authority = Self::new(certificate, key)?;
        match Validity::of_certificate(&authority.certificate) {
            Some(validity) if !validity.contains(now) => Err(AuthorityError::Validity(validity)),
            _ => Ok(authority),
        }
    }

    fn new(certificate: CertificateDer<'static>, key: KeyPair) -> Result<Self, AuthorityError> {
        let hash = AuthorityHash::of_certificate(&certificate);
        Ok(Self {
            hash: hash.ok_or(CredentialsError::Certificate)?,
            issuer: Issuer::from_ca_cert_der(&certificate, key)?,
            certificate,
        })
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Its certificate in PEM.
    pub fn certificate_pem(&self) -> String {
        credentials::to_pem(std::slice::from_ref(&self.certificate))
    }

    /// Its private key in PEM.
    pub fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.issuer.key().serialize_pem())
    }

    /// The hash of its public key.
    pub fn hash(&self) -> AuthorityHash {
        self.hash
    }

    /// A certificate of a server with these DNS names and addresses.
    pub fn server(
        &self,
        identity: &Identity,
        names: &[String],
        validity: Validity,
    ) -> Result<Credentials, AuthorityError> {
        let key = KeyPair::generate()?;
        let chain = self.chain(&server(identity, names, validity)?, &key)?;
        Ok(Credentials::new(chain, &key)?)
    }

    /// A certificate of a client with a key that is made here.
    pub fn client(
        &self,
        identity: &Identity,
        validity: Validity,
    ) -> Result<Credentials, AuthorityError> {
        let key = KeyPair::generate()?;
        let chain = self.chain(&client(identity, validity)?, &key)?;
        Ok(Credentials::new(chain, &key)?)
    }

    /// A certificate with the key of its request (PKCS#10, in DER), of a client, or with names also of a server; of the request, nothing but the
    /// key counts.
    pub fn sign(
        &self,
        request: &[u8],
        identity: &Identity,
        names: &[String],
        validity: Validity,
    ) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
        let request = CertificateSigningRequestDer::from(request);
        let request = CertificateSigningRequestParams::from_der(&request)
            .map_err(|_malformed| AuthorityError::Request)?;
        let params = match names {
            [] => client(identity, validity)?,
            names => server(identity, names, validity)?,
        };
        self.chain(&params, &request.public_key)
    }

    fn chain(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
        let certificate = params.signed_by(key, &self.issuer)?;
        Ok(vec![certificate.der().clone(), self.certificate.clone()])
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Authority");
        shown.field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// A key, and the request (PKCS#10, in DER) for its certificate.
pub fn request() -> Result<(KeyPair, Vec<u8>), AuthorityError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    Ok((key, request.der().to_vec()))
}

fn server(
    identity: &Identity,
    names: &[String],
    validity: Validity,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = params(&identity.name(), &identity.groups(), validity)?;
    params.subject_alt_names = CertificateParams::new(names.to_vec())?.subject_alt_names;
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    Ok(params)
}

fn client(identity: &Identity, validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let mut params = params(&identity.name(), &identity.groups(), validity)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn params(
    name: &str,
    groups: &[String],
    validity: Validity,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // rcgen keeps one value of each type.
    match groups {
        [] => {}
        [group] => {
            let name = &mut params.distinguished_name;
            name.push(DnType::OrganizationName, group.as_str());
        }
        _ => return Err(AuthorityError::Groups(groups.len())),
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = validity.not_before.into();
    params.not_after = validity.not_after.into();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// Whether a certificate may sign others: those that it signs are refused otherwise.
fn is_authority(certificate: &[u8]) -> bool {
    let Ok(certificate) = x509_cert::Certificate::from_der(certificate) else {
        return false;
    };
    let certificate = certificate.tbs_certificate();
    let constraints = certificate.get_extension::<pkix::BasicConstraints>();
    let is_ca = matches!(constraints, Ok(Some((_, constraints))) if constraints.ca);
    // Without the extension, all usages are allowed (RFC 5280, 4.2.1.3).
    let usages = certificate.get_extension::<pkix::KeyUsage>();
    is_ca && usages.is_ok_and(|usages| usages.is_none_or(|(_, usages)| usages.key_cert_sign()))
}

#[cfg(test)]
mod tests;
