//! Metrics of the journal's files, under the names of etcd's WAL: the files of a directory, measured.

use std::{
    io::{self, Read},
    sync::Arc,
    time::Instant,
};

use dormouse_wal::files::{AppendFile, Files};
use prometheus_client::{
    metrics::{
        counter::Counter,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// The metrics of the files of one directory.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    written: Counter,
    syncs: Histogram,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            written: Counter::default(),
            // As in etcd: 1 ms to 8 s.
            syncs: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
        }
    }
}

impl Disk {
    /// The files, measured.
    pub(crate) fn measure(&self, files: Arc<dyn Files>) -> Arc<dyn Files> {
        let disk = self.clone();
        Arc::new(Measured { disk, files })
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "etcd_disk_wal_write_bytes",
            "Bytes written to the journal and to snapshots",
            self.written.clone(),
        );
        registry.register(
            "etcd_disk_wal_fsync_duration_seconds",
            "Seconds of a sync of the journal or of a snapshot",
            self.syncs.clone(),
        );
    }

    fn timed<R>(&self, sync: impl FnOnce() -> R) -> R {
        let began = Instant::now();
        let result = sync();
        self.syncs.observe(began.elapsed().as_secs_f64());
        result
    }
}

#[derive(Debug)]
struct Measured<F: ?Sized> {
    disk: Disk,
    files: Arc<F>,
}

impl Files for Measured<dyn Files> {
    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.files.read(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        let disk = self.disk.clone();
        let files = self.files.create(name)?;
        Ok(Arc::new(Measured { disk, files }))
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.disk.timed(|| self.files.sync(name))
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.files.truncate(name, length)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.files.sync_directory()
    }
}

impl AppendFile for Measured<dyn AppendFile> {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.files.append(bytes)?;
        self.disk.written.inc_by(written as u64);
        Ok(written)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.timed(|| self.files.sync())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.files.reserve(bytes)
    }

    fn release(&self) -> io::Result<()> {
        self.files.release()
    }
}

#[cfg(test)]
mod tests {
    use dormouse_wal::files::Directory;
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn bytes_and_syncs_of_a_file_are_measured() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::default();
        let files = disk.measure(Arc::new(Directory::open(folder.path()).unwrap()));
        let file = files.create("a").unwrap();
        assert_eq!(file.append(b"12345").unwrap(), 5);
        file.sync().unwrap();
        files.sync("a").unwrap();
        let mut bytes = Vec::new();
        files.read("a").unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"12345");
        let (mut registry, mut page) = (Registry::default(), String::new());
        disk.register(&mut registry);
        text::encode(&mut page, &registry).unwrap();
        for line in [
            "etcd_disk_wal_write_bytes_total 5",
            "etcd_disk_wal_fsync_duration_seconds_count 2",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }
}
