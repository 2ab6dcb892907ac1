//! Snapshots: files of records with the state at a mark. A snapshot has a temporary name until it is
//! complete and synced, so one with its final name is always complete.

use std::{
    io::{self, Read},
    sync::Arc,
};

use crate::{
    OpenError,
    error::FileError,
    files::{AppendFile, Files, append_all},
    frame::{self, CONTROL_KINDS, Frame, Position},
    journal::CompleteSnapshot,
    segment::{FileType, HEADER_BYTES, Header, Identity, Place, snapshot_name},
};

/// The kind of the last record of a snapshot: the number of the records before it, 8 bytes, little
/// endian.
const END_KIND: u8 = CONTROL_KINDS + 3;

/// Bytes that are written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The suffix of an incomplete snapshot.
pub(crate) const TEMPORARY: &str = ".tmp";

/// The writer of a snapshot; dropping it before [`SnapshotWriter::finish`] removes the file.
#[derive(Debug)]
pub struct SnapshotWriter {
    files: Arc<dyn Files>,
    file: Arc<dyn AppendFile>,
    header: Header,
    buffer: Vec<u8>,
    position: Position,
    records: u64,
    finished: bool,
}

impl SnapshotWriter {
    pub(crate) fn create(
        files: Arc<dyn Files>,
        identity: Identity,
        (mark, first_needed): (u64, u64),
    ) -> Result<Self, FileError> {
        let name = temporary_name(mark);
        let file = files
            .create(&name)
            .map_err(FileError::of("create", &name))?;
        let header = Header {
            file_type: FileType::Snapshot,
            identity,
            sequence: first_needed,
            position: 0,
            mark,
            ceiling: 0,
            boot: 0,
            previous: 0,
            place: Place::Unstated,
        };
        Ok(Self {
            files,
            file,
            header,
            buffer: header.encode().to_vec(),
            position: 0,
            records: 0,
            finished: false,
        })
    }

    /// The mark of the snapshot.
    pub fn mark(&self) -> u64 {
        self.header.mark
    }

    /// Appends a record, which `fill` appends to a buffer. Writes to the file when enough is buffered.
    pub fn append(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), FileError> {
        let before = self.buffer.len();
        let at = (self.header.identity.cluster, self.position);
        if frame::encode(&mut self.buffer, at, kind, fill).is_none() {
            let error = io::ErrorKind::FileTooLarge.into();
            return Err(FileError::of(
                "encode a record above 4 GiB for",
                &self.name(),
            )(error));
        }
        self.position += (self.buffer.len() - before) as u64;
        self.records += 1;
        if self.buffer.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn name(&self) -> String {
        temporary_name(self.header.mark)
    }

    fn flush(&mut self) -> Result<(), FileError> {
        append_all(self.file.as_ref(), &self.buffer)
            .map_err(FileError::of("write", &self.name()))?;
        self.buffer.clear();
        Ok(())
    }

    /// Syncs the file and gives it its final name. Blocks for the sync.
    pub fn finish(mut self) -> Result<CompleteSnapshot, FileError> {
        let records = self.records;
        self.append(END_KIND, |out| {
            out.extend_from_slice(&records.to_le_bytes());
        })?;
        self.flush()?;
        let (temporary, name) = (self.name(), snapshot_name(self.header.mark));
        self.file
            .sync()
            .map_err(FileError::of("sync", &temporary))?;
        self.files
            .rename(&temporary, &name)
            .map_err(FileError::of("rename", &temporary))?;
        self.finished = true;
        self.files
            .sync_directory()
            .map_err(FileError::of("sync", "the data directory"))?;
        Ok(CompleteSnapshot {
            mark: self.header.mark,
            bytes: self.position + HEADER_BYTES as u64,
            first_needed: self.header.sequence,
        })
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.finished {
            // The next start removes it if this fails.
            let _ = self.files.remove(&self.name());
        }
    }
}

fn temporary_name(mark: u64) -> String {
    snapshot_name(mark) + TEMPORARY
}

/// The reader of a snapshot; its memory is one record.
pub(crate) struct SnapshotReader {
    name: String,
    input: Box<dyn Read + Send>,
    header: Header,
    buffer: Vec<u8>,
    position: Position,
    records: u64,
}

impl std::fmt::Debug for SnapshotReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotReader")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl SnapshotReader {
    pub(crate) fn open(files: &dyn Files, name: &str) -> Result<Self, OpenError> {
        let input = files.read(name).map_err(FileError::of("open", name))?;
        let mut input = Box::new(io::BufReader::with_capacity(CHUNK_BYTES, input));
        let mut header = [0; HEADER_BYTES];
        input
            .read_exact(&mut header)
            .map_err(FileError::of("read", name))?;
        Ok(Self {
            header: Header::decode(&header, FileType::Snapshot, name)?,
            name: name.to_owned(),
            input,
            buffer: Vec::new(),
            position: 0,
            records: 0,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// The offset in the file of the next record.
    pub(crate) fn offset(&self) -> u64 {
        HEADER_BYTES as u64 + self.position
    }

    fn damaged(&self, detail: &'static str) -> OpenError {
        OpenError::DamagedSnapshot {
            file: self.name.clone(),
            offset: self.offset(),
            detail,
        }
    }

    /// The next record; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, OpenError> {
        self.fill()?;
        let cluster = self.header.identity.cluster;
        let Some(Frame { kind, crc, .. }) = frame::decode(&self.buffer, cluster, self.position)
        else {
            return Err(self.damaged("a record does not match its checksum"));
        };
        let payload = frame::OVERHEAD_BYTES..;
        if kind == END_KIND {
            if self.buffer[payload] == self.records.to_le_bytes() {
                return Ok(None);
            }
            return Err(self.damaged("the number of records is wrong"));
        }
        self.position += self.buffer.len() as u64;
        self.records += 1;
        let payload = &self.buffer[payload];
        Ok(Some(Frame { kind, payload, crc }))
    }

    /// Reads one frame into the buffer.
    fn fill(&mut self) -> Result<(), OpenError> {
        self.buffer.resize(frame::OVERHEAD_BYTES, 0);
        let read = self.input.read_exact(&mut self.buffer);
        self.checked(read)?;
        let (length, _) = frame::prefix(&self.buffer).unwrap_or_default();
        let expected = u64::from(length);
        let read = self
            .input
            .by_ref()
            .take(expected)
            .read_to_end(&mut self.buffer);
        let complete = self.checked(read)? as u64 == expected;
        if complete {
            Ok(())
        } else {
            Err(self.damaged("the last record is incomplete"))
        }
    }

    fn checked<T>(&self, read: io::Result<T>) -> Result<T, OpenError> {
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("the end record is missing"),
            _ => FileError::of("read", &self.name)(error).into(),
        })
    }
}
