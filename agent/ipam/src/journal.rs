//! The append-only file of changes: a record counts when it is whole, a torn tail is cut at open, and a shorter file
//! takes its place in one step. Behind the records the file holds zeros: to sync bytes that are there already takes a
//! quarter less time than to sync a file that grows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::record::{self, Record, UnknownRecord};

#[cfg(test)]
mod tests;

/// The file grows by this much at once, in bytes.
const GROWTH: u64 = 256 * 1024;

/// An open journal. One process writes it: the file is locked.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes of whole records.
    length: u64,
    /// Bytes of the file; those behind `length` are zeros.
    allocated: u64,
    sequence: u64,
    /// Records at its end that no sync has covered yet.
    unsynced: Vec<u8>,
    /// What a failure left to be done before anything is written.
    repair: Option<Repair>,
}

/// What a record is written to outlive.
#[derive(Clone, Copy, Debug)]
enum Outlives {
    Process,
    Power,
}

#[derive(Clone, Copy, Debug)]
enum Repair {
    /// Bytes behind `length` are unknown, and so is what the disk has of those that were never synced: the kernel takes a
    /// page that it failed to write for written.
    CutTail,
    /// The file's name may be lost with the power.
    SyncFolder,
}

/// What a file held when it was opened.
#[derive(Debug)]
pub struct Recovered {
    /// The journal, ready for more.
    pub journal: Journal,
    /// Its records in order.
    pub records: Vec<Record>,
    /// Bytes cut from its end because they were no whole record.
    pub cut_bytes: u64,
}

impl Journal {
    /// Opens or creates the file and cuts a torn tail.
    pub fn open(path: &Path) -> io::Result<Recovered> {
        let mut file = open_locked(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (records, length) = scan(&bytes).map_err(io::Error::other)?;
        let torn = &bytes[length..];
        let cut_bytes = torn
            .iter()
            .rposition(|b| *b != 0)
            .map_or(0, |last| last + 1);
        let length = count(length)?;
        let mut journal = Self {
            path: path.to_owned(),
            file,
            length,
            allocated: count(bytes.len())?,
            sequence: count(records.len())?,
            unsynced: Vec::new(),
            repair: None,
        };
        if cut_bytes > 0 {
            journal.cut_tail()?;
        }
        sync_folder(path)?;
        Ok(Recovered {
            journal,
            records,
            cut_bytes: count(cut_bytes)?,
        })
    }

    /// Begins the journal that will [take the place](Self::take_place) of the one at `path`.
    pub fn begin(path: &Path, records: &[Record]) -> io::Result<Self> {
        let beside = beside(path);
        remove_if_there(&beside)?;
        let mut journal = Self {
            path: path.to_owned(),
            file: open_locked(&beside)?,
            length: 0,
            allocated: 0,
            sequence: 0,
            unsynced: Vec::new(),
            repair: None,
        };
        journal.append(records)?;
        Ok(journal)
    }

    /// Replaces the file at the path; after a crash it is the old one or this one. On an error it is the old one.
    pub fn take_place(&mut self) -> io::Result<()> {
        fs::rename(beside(&self.path), &self.path)?;
        // From here on the old file has no name: this one counts, and its next append makes good what fails now.
        self.repair = Some(Repair::SyncFolder);
        if sync_folder(&self.path).is_ok() {
            self.repair = None;
        }
        Ok(())
    }

    /// Bytes of its records.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes records and returns when they, and all that were written before, outlive a power cut. On an error none of
    /// them counts.
    pub fn append(&mut self, records: &[Record]) -> io::Result<()> {
        self.add(records, Outlives::Power)
    }

    /// Writes records that need not outlive more than the process, until the next [`append`](Self::append). On an error
    /// none of them counts.
    pub fn write(&mut self, records: &[Record]) -> io::Result<()> {
        self.add(records, Outlives::Process)
    }

    fn add(&mut self, records: &[Record], outlives: Outlives) -> io::Result<()> {
        match self.repair {
            None => {}
            Some(Repair::CutTail) => self.cut_tail()?,
            Some(Repair::SyncFolder) => sync_folder(&self.path)?,
        }
        self.repair = None;
        let (bytes, sequence) = encode_all(records, self.sequence);
        let end = self.length + count(bytes.len())?;
        if let Err(error) = self.put(&bytes, end, outlives) {
            self.repair = Some(Repair::CutTail).filter(|_| self.cut_tail().is_err());
            return Err(error);
        }
        (self.sequence, self.length) = (sequence, end);
        match outlives {
            Outlives::Power => self.unsynced.clear(),
            Outlives::Process => self.unsynced.extend(bytes),
        }
        Ok(())
    }

    /// Fakes a disk that fails, by a file that cannot be written.
    #[cfg(test)]
    pub(crate) fn swap_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    fn put(&mut self, bytes: &[u8], end: u64, outlives: Outlives) -> io::Result<()> {
        if end > self.allocated {
            let allocated = end.next_multiple_of(GROWTH);
            let zeros = usize::try_from(allocated - end).map_err(io::Error::other)?;
            self.file.write_all_at(&vec![0; zeros], end)?;
            self.allocated = allocated;
        }
        self.file.write_all_at(bytes, self.length)?;
        match outlives {
            Outlives::Power => self.file.sync_data(),
            Outlives::Process => Ok(()),
        }
    }

    fn cut_tail(&mut self) -> io::Result<()> {
        let synced = self.length - count(self.unsynced.len())?;
        self.file.set_len(synced)?;
        self.allocated = synced;
        self.file.write_all_at(&self.unsynced, synced)?;
        self.allocated = self.length;
        self.file.sync_all()?;
        self.unsynced.clear();
        Ok(())
    }
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

fn open_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another process has the journal open",
            ),
            fs::TryLockError::Error(error) => error,
        })?;
        // Another file may have taken the place of this one before the lock.
        if is_at(&file, path)? {
            return Ok(file);
        }
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let here = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((here.dev(), here.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A rename or a new file is durable when its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn encode_all(records: &[Record], mut sequence: u64) -> (Vec<u8>, u64) {
    let mut bytes = Vec::new();
    for record in records {
        record::encode(record, sequence, &mut bytes);
        sequence += 1;
    }
    (bytes, sequence)
}

/// The records at the start of `bytes` and how many bytes they take.
pub fn scan(bytes: &[u8]) -> Result<(Vec<Record>, usize), UnknownRecord> {
    let (mut records, mut at, mut sequence) = (Vec::new(), 0, 0);
    while let Some((record, length)) = record::decode(&bytes[at..], sequence)? {
        records.push(record);
        at += length;
        sequence += 1;
    }
    Ok((records, at))
}

fn count(number: usize) -> io::Result<u64> {
    u64::try_from(number).map_err(io::Error::other)
}
