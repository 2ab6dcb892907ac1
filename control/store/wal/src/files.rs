//! The file layer: the few operations on one directory that the journal needs. [`Directory`] is the
//! real one; tests replace it to inject faults.

use std::{
    fmt::Debug,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{OpenError, error::FileError};

/// The name of the lock file.
const LOCK: &str = "lock";

/// Permissions of the directory that is created, and of its files: they have what the store has, such as secrets.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Zeros of one write.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A file that is only appended to.
pub trait AppendFile: Debug + Send + Sync {
    /// Appends a part of the bytes; returns how many.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Returns when all appended bytes, and the length, are on the disk.
    fn sync(&self) -> io::Result<()>;

    /// Extends the file with zeros, which the next bytes replace: their sync then writes no blocks and
    /// no length of the file. A layer without a disk may do nothing.
    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// Cuts the file behind the appended bytes. The next sync makes that durable.
    fn release(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The files of one directory. Names have no slashes.
pub trait Files: Debug + Send + Sync {
    /// The names of all files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A reader from the start of a file.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Creates an empty file; an existing one is an error.
    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>>;

    /// Returns when all bytes of a file are on the disk.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Cuts a file to a length and syncs it.
    fn truncate(&self, name: &str, length: u64) -> io::Result<()>;

    /// Renames a file, replacing the target.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns when all creations, renames and removals are on the disk.
    fn sync_directory(&self) -> io::Result<()>;
}

/// A directory of the file system, locked while this exists.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Opened for its lock, which the kernel releases when the process ends, however it ends.
    _lock: File,
}

impl Directory {
    /// Opens and locks a directory, which is created if it does not exist, readable by its owner only.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let text = path.display().to_string();
        create_private(path).map_err(FileError::of("create the data directory", &text))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE_MODE)
            .open(path.join(LOCK))
            .map_err(FileError::of("open the lock file of", &text))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(text)),
            Err(TryLockError::Error(error)) => {
                return Err(FileError::of("lock", &text)(error).into());
            }
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }
}

fn create_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
}

/// Takes the permissions of other users from a file that an earlier release or a copy has made.
fn make_private(file: &File) -> io::Result<()> {
    let others = file.metadata()?.permissions().mode() & 0o077;
    if others == 0 {
        return Ok(());
    }
    match file.set_permissions(fs::Permissions::from_mode(FILE_MODE)) {
        // A file of another user, such as root: it can be read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        changed => changed,
    }
}

impl Files for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.filter_map(|entry| match entry {
            Ok(entry) => entry.file_name().into_string().ok().map(Ok),
            Err(error) => Some(Err(error)),
        });
        names.collect()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let file = File::open(self.path.join(name))?;
        make_private(&file)?;
        Ok(Box::new(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(self.path.join(name))?;
        Ok(Arc::new(Appended {
            file,
            end: AtomicU64::new(0),
        }))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        File::open(self.path.join(name))?.sync_all()
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path.join(name))?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// A file and the end of its appended bytes, which has one owner: the callers append in order.
#[derive(Debug)]
struct Appended {
    file: File,
    end: AtomicU64,
}

impl Appended {
    fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }
}

impl AppendFile for Appended {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.end();
        let written = self.file.write_at(bytes, end)?;
        self.end.store(end + written as u64, Ordering::Release);
        Ok(written)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        // Written, not allocated: the first write to an allocated block changes its extent.
        let (mut at, end) = (self.end(), self.end() + bytes);
        while at < end {
            let part = usize::try_from(end - at).map_or(ZEROS.len(), |rest| rest.min(ZEROS.len()));
            match self.file.write_at(&ZEROS[..part], at) {
                Ok(written) => at += written as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        self.file.set_len(self.end())
    }
}

/// Appends all bytes; an interrupted or a partial write continues.
pub(crate) fn append_all(file: &dyn AppendFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.append(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_while_it_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let first = Directory::open(&path).unwrap();
        let error = Directory::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::InUse(_)), "{error}");
        drop(first);
        Directory::open(&path).unwrap();
    }

    #[test]
    fn the_directory_and_its_files_are_their_owners_only() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let directory = Directory::open(&path).unwrap();
        let mode = |name: &str| {
            let permissions = fs::metadata(path.join(name)).unwrap().permissions();
            permissions.mode() & 0o777
        };
        directory.create("a").unwrap();
        assert_eq!([mode(""), mode("a"), mode(LOCK)], [0o700, 0o600, 0o600]);
        // Of an earlier release.
        fs::set_permissions(path.join("a"), fs::Permissions::from_mode(0o644)).unwrap();
        directory.read("a").unwrap();
        assert_eq!(mode("a"), 0o600);
    }

    #[test]
    fn appended_bytes_replace_reserved_zeros_and_a_release_cuts_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let file = directory.create("a").unwrap();
        let content = || fs::read(folder.path().join("a")).unwrap();
        append_all(file.as_ref(), b"first").unwrap();
        file.reserve(100_000).unwrap();
        append_all(file.as_ref(), b"second").unwrap();
        let bytes = content();
        assert_eq!(bytes.len(), 5 + 100_000);
        assert!(bytes.starts_with(b"firstsecond"));
        assert!(bytes[11..].iter().all(|byte| *byte == 0));
        file.release().unwrap();
        assert_eq!(content(), b"firstsecond");
    }
}
