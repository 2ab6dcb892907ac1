//! A directory whose writes fail on request.

use std::{
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use dormouse_wal::files::{AppendFile, Directory, Files};

#[derive(Debug)]
pub(super) struct FailingFiles {
    inner: Directory,
    full: Arc<AtomicBool>,
}

#[derive(Debug)]
struct FailingFile {
    inner: Arc<dyn AppendFile>,
    full: Arc<AtomicBool>,
}

impl FailingFiles {
    /// The files of a directory; writes fail while the flag is set.
    pub(super) fn open(path: &Path) -> (Arc<Self>, Arc<AtomicBool>) {
        let full = Arc::<AtomicBool>::default();
        let files = Self {
            inner: Directory::open(path).unwrap(),
            full: Arc::clone(&full),
        };
        (Arc::new(files), full)
    }
}

impl AppendFile for FailingFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inner.append(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

impl Files for FailingFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.inner.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        let inner = self.inner.create(name)?;
        let full = Arc::clone(&self.full);
        Ok(Arc::new(FailingFile { inner, full }))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
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
        self.inner.sync_directory()
    }
}
