//! The server's certificate, read again when its files change: as with etcd, a renewed certificate
//! needs no restart.

use std::{fs, io, sync::Arc, time::SystemTime};

use parking_lot::Mutex;
use tokio_rustls::rustls::{
    crypto::CryptoProvider,
    pki_types::{PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::{TlsError, TlsFiles, certificates};

/// When the certificate and its key were written.
type Modified = [SystemTime; 2];

#[derive(Debug)]
struct Current {
    /// `None`: unknown, so that the files are read again.
    modified: Option<Modified>,
    key: Arc<CertifiedKey>,
}

/// The certificate of the files.
#[derive(Debug)]
pub(super) struct FileCertificate {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

impl FileCertificate {
    pub(super) fn load(files: &TlsFiles, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let current = Current {
            modified: modified(files).ok(),
            key: Arc::new(read(files, &provider)?),
        };
        Ok(Self {
            files: files.clone(),
            provider,
            current: Mutex::new(current),
        })
    }

    /// The certificate. While the files are being replaced they may not fit together: the previous
    /// certificate is used until they do.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock();
        let modified = modified(&self.files).ok();
        let changed = modified.is_none() || modified != current.modified;
        if changed && let Ok(key) = read(&self.files, &self.provider) {
            current.key = Arc::new(key);
            current.modified = modified;
        }
        Arc::clone(&current.key)
    }
}

impl ResolvesServerCert for FileCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn modified(files: &TlsFiles) -> io::Result<Modified> {
    let of = |path| fs::metadata(path)?.modified();
    Ok([of(&files.certificate)?, of(&files.key)?])
}

fn read(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::File {
        path: files.key.clone(),
        what: "private key",
        source,
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Certificate {
        path: files.certificate.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        path::{Path, PathBuf},
        time::Duration,
    };

    use tokio_rustls::rustls::{crypto::ring, pki_types::CertificateDer};

    use super::{super::TlsParameters, *};

    fn fixture(name: &str) -> PathBuf {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/tls");
        Path::new(folder).join(name)
    }

    fn der(name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(fixture(name)).unwrap()
    }

    /// Writes a file as if so many seconds after the start of the test's time.
    fn write(path: &Path, bytes: &[u8], seconds: u64) {
        fs::write(path, bytes).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = File::options().append(true).open(path).unwrap();
        file.set_modified(time).unwrap();
    }

    #[test]
    fn a_renewed_certificate_is_used_as_soon_as_its_key_fits() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            certificate: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
            client_authorities: None,
            revoked: None,
            parameters: TlsParameters::default(),
        };
        let bytes = |name| fs::read(fixture(name)).unwrap();
        write(&files.certificate, &bytes("server.pem"), 1);
        write(&files.key, &bytes("server.key"), 1);
        let provider = Arc::new(ring::default_provider());
        let certificate = FileCertificate::load(&files, provider).unwrap();
        let used = || certificate.current().cert[0].clone();
        assert_eq!(used(), der("server.pem"));
        write(&files.certificate, &bytes("client.pem"), 2);
        assert_eq!(used(), der("server.pem"));
        write(&files.key, &bytes("client.key"), 3);
        assert_eq!(used(), der("client.pem"));
        write(&files.certificate, b"nothing", 4);
        assert_eq!(used(), der("client.pem"));
        fs::remove_file(&files.key).unwrap();
        assert_eq!(used(), der("client.pem"));
    }
}
