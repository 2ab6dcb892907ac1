//! The journal: an append-only file of records. A torn tail is cut at open; compaction replaces the file atomically. The
//! file is allocated in steps and zeros follow the records: a sync of allocated bytes takes a quarter less time than a
//! sync of a growing file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::record::{self, Record, UnknownRecord};

#[cfg(test)]
mod tests;

/// Its file name in the state folder.
pub const FILE: &str = "leases";
/// Step in which the file is allocated, in bytes.
const GROWTH: u64 = 256 * 1024;

/// An open journal. The file is locked: one process writes it.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Length of all whole records, in bytes.
    length: u64,
    /// Length of the file, in bytes; zeros from `length` on.
    allocated: u64,
    sequence: u64,
    /// The records since the last sync.
    unsynced: Vec<u8>,
    /// A repair that must precede the next write.
    repair: Option<Repair>,
}

/// The failure that a written record survives.
#[derive(Clone, Copy, Debug)]
enum Durability {
    /// A crash of the process: written.
    Process,
    /// A power failure: written and synced.
    Power,
}

#[derive(Clone, Copy, Debug)]
enum Repair {
    /// The bytes after `length` are unknown, and so is what the disk holds of the unsynced records: after a failed
    /// write-back the kernel marks the page clean.
    CutTail,
    /// A power failure may lose the file's new name.
    SyncFolder,
}

/// The content of a journal at open.
#[derive(Debug)]
pub struct Recovered {
    /// The journal, ready to append.
    pub journal: Journal,
    /// Its records in order.
    pub records: Vec<Record>,
    /// Number of bytes cut from its end: a torn or damaged record.
    pub cut_bytes: u64,
}

impl Journal {
    /// Opens or creates the file, and cuts a torn tail.
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

    /// Creates a journal beside the one at `path`, which it will [replace](Self::replace).
    pub fn create_replacement(path: &Path, records: &[Record]) -> io::Result<Self> {
        let fresh = replacement_path(path);
        remove_if_present(&fresh)?;
        let mut journal = Self {
            path: path.to_owned(),
            file: open_locked(&fresh)?,
            length: 0,
            allocated: 0,
            sequence: 0,
            unsynced: Vec::new(),
            repair: None,
        };
        journal.append(records)?;
        Ok(journal)
    }

    /// Renames this file to its path, atomically: after a crash the path names either the old file or this one, after an
    /// error the old one.
    pub fn replace(&mut self) -> io::Result<()> {
        fs::rename(replacement_path(&self.path), &self.path)?;
        // The rename is done: an error from here on is repaired by the next append.
        self.repair = Some(Repair::SyncFolder);
        if sync_folder(&self.path).is_ok() {
            self.repair = None;
        }
        Ok(())
    }

    /// Length of all records, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes and syncs records: with all earlier ones they survive a power failure. On an error none of them is in the
    /// journal.
    pub fn append(&mut self, records: &[Record]) -> io::Result<()> {
        self.add(records, Durability::Power)
    }

    /// Writes records without a sync: they survive a crash of the process, and a power failure only after the next
    /// [`append`](Self::append). On an error none of them is in the journal.
    pub fn write(&mut self, records: &[Record]) -> io::Result<()> {
        self.add(records, Durability::Process)
    }

    fn add(&mut self, records: &[Record], durability: Durability) -> io::Result<()> {
        match self.repair {
            None => {}
            Some(Repair::CutTail) => self.cut_tail()?,
            Some(Repair::SyncFolder) => sync_folder(&self.path)?,
        }
        self.repair = None;
        let (bytes, sequence) = encode_all(records, self.sequence);
        let end = self.length + count(bytes.len())?;
        if let Err(error) = self.write_records(&bytes, end, durability) {
            self.repair = Some(Repair::CutTail).filter(|_| self.cut_tail().is_err());
            return Err(error);
        }
        (self.sequence, self.length) = (sequence, end);
        match durability {
            Durability::Power => self.unsynced.clear(),
            Durability::Process => self.unsynced.extend(bytes),
        }
        Ok(())
    }

    /// Simulates a failing disk by a file that is not writable.
    #[cfg(test)]
    pub(crate) fn swap_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    fn write_records(&mut self, bytes: &[u8], end: u64, durability: Durability) -> io::Result<()> {
        if end > self.allocated {
            let allocated = end.next_multiple_of(GROWTH);
            let zeros = usize::try_from(allocated - end).map_err(io::Error::other)?;
            self.file.write_all_at(&vec![0; zeros], end)?;
            self.allocated = allocated;
        }
        self.file.write_all_at(bytes, self.length)?;
        match durability {
            Durability::Power => self.file.sync_data(),
            Durability::Process => Ok(()),
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

fn replacement_path(path: &Path) -> PathBuf {
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
        // Another process may have replaced the file before the lock was taken.
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

fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Syncs the folder, which makes a rename or a new file durable.
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

/// The records at the start of `bytes`, and their length in bytes.
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
