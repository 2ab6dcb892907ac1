//! Certificates and keys in files: PEM, written as a whole, keys readable by their owner only.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use dormouse_files::{Durability, write_whole};
use nix::unistd::geteuid;
use tokio_rustls::rustls::pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::authority::{Authority, AuthorityError};
use crate::credentials::{Credentials, CredentialsError, certificates, to_pem};

/// Permissions of a key's file and of its folder.
const KEY_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// Permissions of the group, and of all other users.
const GROUP: u32 = 0o070;
const OTHERS: u32 = 0o007;
/// The permission to write.
const WRITE: u32 = 0o222;
const ROOT: u32 = 0;
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
    /// A key, or a folder of keys, is another user's.
    #[error("{} is of the user {owner}, who can replace it: run chown {user} on it, and make another key if one may have read it", path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// The number of its owner.
        owner: u32,
        /// That of this process's user.
        user: u32,
    },
    /// Others may write into a folder.
    #[error("other users can replace files in {}: run chmod {mode:o} on it, and see that its files are yours", path.display())]
    Writable {
        /// The folder.
        path: PathBuf,
        /// The permissions that it may have.
        mode: u32,
    },
    /// A certificate or key cannot be used.
    #[error("{}", path.display())]
    Credentials {
        /// The file of the certificate, or of the key.
        path: PathBuf,
        /// The cause.
        source: CredentialsError,
    },
    /// A certificate authority cannot be used.
    #[error("{}", path.display())]
    Authority {
        /// The file of the certificate, or of the key.
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
    of_files(certificate, (key, &read_key(key)?), now)
}

fn of_files(
    certificate: &Path,
    (key, secret): (&Path, &str),
    now: SystemTime,
) -> Result<Authority, FolderError> {
    let text = read(certificate)?;
    let authority = Authority::from_pem(&text, secret, now);
    authority.map_err(|source| {
        let is_of_key = matches!(source, AuthorityError::Credentials(CredentialsError::Key));
        let path = if is_of_key { key } else { certificate };
        FolderError::Authority {
            path: path.into(),
            source,
        }
    })
}

/// The authority `ca.crt` and `ca.key` of a folder, which is created at the first start.
pub fn embedded(folder: &Path, now: SystemTime) -> Result<Authority, FolderError> {
    let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    if folder.exists() {
        check(folder, GROUP | OTHERS)?;
    }
    let own_key = || read_key_for(&key, GROUP | OTHERS);
    if certificate.exists() {
        return of_files(&certificate, (&key, &own_key()?), now);
    }
    let failed = |path: &Path, source| FolderError::Authority {
        path: path.into(),
        source,
    };
    // A key without its certificate is the authority, too: what it has signed must stay valid.
    let created = if key.exists() {
        Authority::of_key_pem(&own_key()?, now).map_err(|error| failed(&key, error))?
    } else {
        let created = Authority::create(now).map_err(|error| failed(&certificate, error))?;
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

/// Creates a folder for its owner only, or makes it that.
pub fn create_folder(folder: &Path) -> Result<(), FolderError> {
    let mut builder = fs::DirBuilder::new();
    let created = builder.recursive(true).mode(FOLDER_MODE).create(folder);
    let private = created.and_then(|()| {
        if is_for(fs::metadata(folder)?.permissions().mode(), OTHERS | GROUP) {
            fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))?;
        }
        Ok(())
    });
    private.map_err(|source| FolderError::Write {
        path: folder.into(),
        source,
    })
}

/// Refuses a folder in which other users can replace files.
pub fn check_data(folder: &Path) -> Result<(), FolderError> {
    check(folder, OTHERS)
}

/// Refuses a folder in which these users can replace files, or whose owner is another user than this process's and root.
fn check(folder: &Path, users: u32) -> Result<(), FolderError> {
    let found = fs::metadata(folder).map_err(|source| FolderError::Read {
        path: folder.into(),
        source,
    })?;
    check_owner(folder, &found)?;
    if found.mode() & users & WRITE != 0 {
        return Err(FolderError::Writable {
            path: folder.into(),
            mode: found.mode() & 0o777 & !(users & WRITE),
        });
    }
    Ok(())
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), FolderError> {
    let (owner, user) = (found.uid(), geteuid().as_raw());
    if owner == user || owner == ROOT {
        return Ok(());
    }
    let path = path.into();
    Err(FolderError::Foreign { path, owner, user })
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String, FolderError> {
    let failed = |source| FolderError::Read {
        path: path.into(),
        source,
    };
    text(File::open(path).map_err(failed)?).map_err(failed)
}

/// Reads a private key that only its owner and its group can read.
pub(crate) fn read_key(path: &Path) -> Result<Zeroizing<String>, FolderError> {
    read_key_for(path, OTHERS)
}

/// Reads a private key that these users cannot read.
fn read_key_for(path: &Path, users: u32) -> Result<Zeroizing<String>, FolderError> {
    let failed = |source| FolderError::Read {
        path: path.into(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if found.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    check_owner(path, &found)?;
    if is_for(found.mode(), users) {
        return Err(FolderError::Exposed(path.into()));
    }
    text(file).map(Zeroizing::new).map_err(failed)
}

fn text(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether a file's permissions let some of these users do something.
fn is_for(mode: u32, users: u32) -> bool {
    mode & users != 0
}

/// Writes a file as a whole: on an error, the old one is there.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FolderError> {
    let written = write_whole(path, bytes, mode, Durability::PowerFailure);
    written.map_err(|source| FolderError::Write {
        path: path.into(),
        source,
    })
}

#[cfg(test)]
mod tests;
