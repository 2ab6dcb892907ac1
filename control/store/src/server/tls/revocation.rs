//! The revocation list of clients' certificates, read for each connection as in etcd: a new list needs
//! no restart. Only serial numbers are compared; the list is trusted as the file of the operator.

use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc};

use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, pem::PemObject,
};
use x509_cert::{Certificate, crl::CertificateList, der::Decode};

use super::TlsError;

/// The serial number of a certificate.
type Serial = Vec<u8>;

/// The file of a revocation list.
#[derive(Clone, Debug)]
pub(in crate::server) struct Revocations(Arc<PathBuf>);

impl Revocations {
    /// Reads the list once, so that a wrong file ends the start.
    pub(super) fn open(path: PathBuf) -> Result<Self, TlsError> {
        let read = std::fs::read(&path).and_then(|bytes| revoked(&bytes));
        match read {
            Ok(_) => Ok(Self(path.into())),
            Err(source) => Err(TlsError::Revocations { path, source }),
        }
    }

    /// Refuses the certificates of a client if one of them is revoked, or if the list cannot be read.
    pub(in crate::server) async fn check(
        &self,
        certificates: &[CertificateDer<'_>],
    ) -> io::Result<()> {
        let revoked = revoked(&tokio::fs::read(&*self.0).await?)?;
        for certificate in certificates {
            let certificate = Certificate::from_der(certificate).map_err(invalid)?;
            let serial = certificate.tbs_certificate().serial_number();
            if revoked.contains(serial.as_bytes()) {
                return Err(invalid("the certificate of the client is revoked"));
            }
        }
        Ok(())
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The serial numbers of a list.
fn revoked(bytes: &[u8]) -> io::Result<BTreeSet<Serial>> {
    let list = if bytes.starts_with(b"-----BEGIN") {
        CertificateRevocationListDer::from_pem_slice(bytes).map_err(invalid)?
    } else {
        bytes.into()
    };
    let list: CertificateList = Decode::from_der(&list).map_err(invalid)?;
    let certificates = list
        .tbs_cert_list
        .revoked_certificates
        .into_iter()
        .flatten();
    let serials = certificates.map(|revoked| revoked.serial_number.as_bytes().to_vec());
    Ok(serials.collect())
}
