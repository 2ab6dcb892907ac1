//! The append-only file of changes: a record counts when it is synced, a torn tail is cut at open, and compaction
//! replaces the file in one step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::record::{self, Record};

/// An open journal. One process writes it: the file is locked.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes of whole, synced records.
    length: u64,
    sequence: u64,
    /// Set when a failed append could not be undone: the tail is unknown, so nothing more is written.
    broken: bool,
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
        let (records, length) = scan(&bytes);
        let length = u64::try_from(length).map_err(io::Error::other)?;
        let cut_bytes = file.metadata()?.len() - length;
        if cut_bytes > 0 {
            file.set_len(length)?;
            file.sync_all()?;
        }
        file.seek(SeekFrom::Start(length))?;
        sync_folder(path)?;
        let sequence = u64::try_from(records.len()).map_err(io::Error::other)?;
        let journal = Self {
            path: path.to_owned(),
            file,
            length,
            sequence,
            broken: false,
        };
        Ok(Recovered {
            journal,
            records,
            cut_bytes,
        })
    }

    /// Bytes in the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes records and returns when they are durable. On an error none of them counts.
    pub fn append(&mut self, records: &[Record]) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other(
                "an earlier write failed and could not be undone",
            ));
        }
        let (bytes, sequence) = encode_all(records, self.sequence);
        let written = self
            .file
            .write_all(&bytes)
            .and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.broken = self.undo().is_err();
            return Err(error);
        }
        self.sequence = sequence;
        self.length += u64::try_from(bytes.len()).map_err(io::Error::other)?;
        Ok(())
    }

    fn undo(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.sync_all()
    }

    /// Replaces the whole file by `records`; after a crash it is the old one or the new one.
    pub fn replace(&mut self, records: &[Record]) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        remove_if_there(&fresh)?;
        let mut file = open_locked(&fresh)?;
        let (bytes, sequence) = encode_all(records, 0);
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)?;
        sync_folder(&self.path)?;
        self.file = file;
        self.length = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        self.sequence = sequence;
        self.broken = false;
        Ok(())
    }
}

fn open_locked(path: &Path) -> io::Result<File> {
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
    Ok(file)
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
pub fn scan(bytes: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut at, mut sequence) = (Vec::new(), 0, 0);
    while let Some((record, length)) = record::decode(&bytes[at..], sequence) {
        records.push(record);
        at += length;
        sequence += 1;
    }
    (records, at)
}
