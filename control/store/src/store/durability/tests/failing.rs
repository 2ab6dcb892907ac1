//! A directory whose operations fail on request.

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use dormouse_wal::files::{AppendFile, Directory, Files};
use parking_lot::Mutex;

/// The operation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Writes: the disk is full.
    Full,
    /// Writes: the device fails.
    Write,
    /// Syncs.
    Sync,
    /// Reads.
    Read,
}

impl Fault {
    fn error(self) -> io::Error {
        // EIO has no kind in the standard library.
        const EIO: i32 = 5;
        match self {
            Self::Full => io::ErrorKind::StorageFull.into(),
            Self::Write | Self::Sync | Self::Read => io::Error::from_raw_os_error(EIO),
        }
    }
}

/// The switch of a directory's faults; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults(Arc<Mutex<Option<Fault>>>);

impl Faults {
    pub(super) fn set(&self, fault: Option<Fault>) {
        *self.0.lock() = fault;
    }

    fn check(&self, operations: &[Fault]) -> io::Result<()> {
        match *self.0.lock() {
            Some(fault) if operations.contains(&fault) => Err(fault.error()),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(super) struct FailingFiles {
    inner: Directory,
    faults: Faults,
}

#[derive(Debug)]
struct FailingFile {
    inner: Arc<dyn AppendFile>,
    faults: Faults,
}

impl FailingFiles {
    /// The files of a directory, and the switch of their faults.
    pub(super) fn open(path: &Path) -> (Arc<Self>, Faults) {
        let faults = Faults::default();
        let files = Self {
            inner: Directory::open(path).unwrap(),
            faults: faults.clone(),
        };
        (Arc::new(files), faults)
    }
}

impl AppendFile for FailingFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.faults.check(&[Fault::Full, Fault::Write])?;
        self.inner.append(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.check(&[Fault::Sync])?;
        self.inner.sync()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.faults.check(&[Fault::Full, Fault::Write])?;
        self.inner.reserve(bytes)
    }

    fn release(&self) -> io::Result<()> {
        self.inner.release()
    }
}

impl Files for FailingFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        self.faults.check(&[Fault::Read])?;
        self.inner.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.faults.check(&[Fault::Read])?;
        self.inner.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        self.faults.check(&[Fault::Full, Fault::Write])?;
        let inner = self.inner.create(name)?;
        let faults = self.faults.clone();
        Ok(Arc::new(FailingFile { inner, faults }))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.faults.check(&[Fault::Sync])?;
        self.inner.sync(name)
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.inner.truncate(name, length)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.faults.check(&[Fault::Sync])?;
        self.inner.sync_directory()
    }
}
