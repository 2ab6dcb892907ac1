//! Certificates and keys in files: PEM, written as a whole, keys readable by their owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio_rustls::rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::authority::{Authority, AuthorityError};
use crate::credentials::{Credentials, CredentialsError, certificates, to_pem};

/// Permissions of a key's file and of its folder.
const KEY_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// Permissions of a certificate's file.
const CERTIFICATE_MODE: u32 = 0o644;
/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// Files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A key can be read by others than its owner.
    #[error("other users can read the private key {}: run chmod 600 on it, and replace it if one may have read it", .0.display())]
    Exposed(PathBuf),
    /// A certificate or key cannot be used.
    #[error("{}", path.display())]
    Credentials {
        /// The file of the certificate.
        path: PathBuf,
        /// The cause.
        source: CredentialsError,
    },
    /// A certificate authority cannot be used.
    #[error("{}", path.display())]
    Authority {
        /// The file of the certificate.
        path: PathBuf,
        /// The cause.
        source: AuthorityError,
    },
}

/// The authority of two files.
pub fn authority(
    certificate: &Path,
    key: &Path,
    now: SystemTime,
) -> Result<Authority, FolderError> {
    let (text, key) = (read(certificate)?, read_key(key)?);
    Authority::from_pem(&text, &key, now).map_err(|source| FolderError::Authority {
        path: certificate.into(),
        source,
    })
}

/// The authority `ca.crt` and `ca.key` of a folder, which is created at the first start.
pub fn embedded(folder: &Path, now: SystemTime) -> Result<Authority, FolderError> {
    let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    if certificate.exists() {
        return authority(&certificate, &key, now);
    }
    let failed = |source| FolderError::Authority {
        path: certificate.clone(),
        source,
    };
    // A key without its certificate is the authority, too: what it has signed must stay valid.
    let created = if key.exists() {
        Authority::of_key_pem(&read_key(&key)?, now).map_err(failed)?
    } else {
        let created = Authority::create(now).map_err(failed)?;
        create_folder(folder)?;
        write(&key, created.key_pem().as_bytes(), KEY_MODE)?;
        created
    };
    write(
        &certificate,
        created.certificate_pem().as_bytes(),
        CERTIFICATE_MODE,
    )?;
    Ok(created)
}

/// The credentials of two files.
pub fn load(certificate: &Path, key: &Path) -> Result<Credentials, FolderError> {
    let (chain, key) = (read(certificate)?, read_key(key)?);
    Credentials::from_pem(&chain, &key).map_err(|source| FolderError::Credentials {
        path: certificate.into(),
        source,
    })
}

/// Writes credentials into one file, so that certificate and key always fit together.
pub fn keep(path: &Path, credentials: &Credentials) -> Result<(), FolderError> {
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let key = credentials.key_pem();
    let both = Zeroizing::new(format!("{}{}", credentials.chain_pem(), *key));
    write(path, both.as_bytes(), KEY_MODE)
}

/// The certificates of a file.
pub fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FolderError> {
    certificates(&read(path)?).map_err(|source| FolderError::Credentials {
        path: path.into(),
        source,
    })
}

/// Writes certificates into a file.
pub fn keep_certificates(
    path: &Path,
    certificates: &[CertificateDer<'_>],
) -> Result<(), FolderError> {
    write(path, to_pem(certificates).as_bytes(), CERTIFICATE_MODE)
}

/// Writes a file with a secret, for its owner only.
pub fn keep_secret(path: &Path, text: &str) -> Result<(), FolderError> {
    write(path, text.as_bytes(), KEY_MODE)
}

/// Creates a folder for its owner only.
pub fn create_folder(folder: &Path) -> Result<(), FolderError> {
    let mut builder = fs::DirBuilder::new();
    let created = builder.recursive(true).mode(FOLDER_MODE).create(folder);
    created.map_err(|source| FolderError::Write {
        path: folder.into(),
        source,
    })
}

fn read(path: &Path) -> Result<String, FolderError> {
    let failed = |source| FolderError::Read {
        path: path.into(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mut text = String::new();
    file.take(BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

fn read_key(path: &Path) -> Result<Zeroizing<String>, FolderError> {
    let mode = fs::metadata(path).map(|file| file.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o007 != 0) {
        return Err(FolderError::Exposed(path.into()));
    }
    read(path).map(Zeroizing::new)
}

/// Writes a file beside the old one, and renames it: on an error, the old one is there.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FolderError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    let written = write_new(&fresh, bytes, mode).and_then(|()| fs::rename(&fresh, path));
    written.map_err(|source| {
        // The error matters more than what it leaves.
        drop(fs::remove_file(&fresh));
        FolderError::Write {
            path: path.into(),
            source,
        }
    })
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;
    use crate::validity::{LIFE, Validity};

    #[test]
    fn an_authority_is_created_once_and_its_key_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let pki = folder.path().join("pki");
        let now = SystemTime::now();
        let created = embedded(&pki, now).unwrap();
        let again = embedded(&pki, now).unwrap();
        assert_eq!(created.certificate(), again.certificate());
        let mode = |name: &str| fs::metadata(pki.join(name)).unwrap().permissions().mode();
        assert_eq!(mode("ca.key") & 0o777, 0o600);
        assert_eq!(mode("") & 0o777, 0o700);
        let exposed = fs::Permissions::from_mode(0o644);
        fs::set_permissions(pki.join("ca.key"), exposed).unwrap();
        assert!(matches!(embedded(&pki, now), Err(FolderError::Exposed(_))));
    }

    #[test]
    fn an_authority_whose_certificate_is_lost_keeps_its_key_and_what_it_has_signed() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let before = embedded(folder.path(), now).unwrap();
        let key = fs::read(folder.path().join("ca.key")).unwrap();
        fs::remove_file(folder.path().join("ca.crt")).unwrap();
        let after = embedded(folder.path(), now).unwrap();
        assert_eq!(fs::read(folder.path().join("ca.key")).unwrap(), key);
        assert_eq!(after.hash(), before.hash());
        let again = embedded(folder.path(), now).unwrap();
        assert_eq!(again.certificate(), after.certificate());
    }

    #[test]
    fn an_authority_that_is_damaged_is_named_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        embedded(folder.path(), now).unwrap();
        let path = folder.path().join("ca.crt");
        let whole = fs::read(&path).unwrap();
        for end in [0, 1, 30, whole.len() / 2, whole.len() - 30] {
            fs::write(&path, &whole[..end]).unwrap();
            let error = embedded(folder.path(), now).unwrap_err();
            let cause = std::error::Error::source(&error).unwrap();
            let cause = cause.source().unwrap().to_string();
            assert!(error.to_string().contains("ca.crt"), "{error}");
            assert!(cause.contains("cut off"), "{cause}");
        }
        fs::write(&path, &whole).unwrap();
        fs::remove_file(folder.path().join("ca.key")).unwrap();
        let error = embedded(folder.path(), now).unwrap_err();
        assert!(error.to_string().contains("ca.key"), "{error}");
    }

    #[test]
    fn credentials_are_kept_in_one_file_and_stay_when_it_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let authority = Authority::create(now).unwrap();
        let validity = Validity::issued(now, LIFE, None);
        let node = |name| authority.client(&Identity::node(name).unwrap(), validity);
        let path = folder.path().join("identity/node.pem");
        keep(&path, &node("a").unwrap()).unwrap();
        // A folder in the place of the new file: it cannot be written.
        fs::create_dir(path.with_file_name("node.pem.new")).unwrap();
        assert!(keep(&path, &node("b").unwrap()).is_err());
        let kept = load(&path, &path).unwrap();
        assert_eq!(kept.identity(), Identity::node("a"));
    }
}
