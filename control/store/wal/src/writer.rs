//! The writer of segments: appends batches, starts the next segment, and knows what is not synced.

use std::sync::Arc;

use crate::{
    error::FileError,
    files::{AppendFile, Files, append_all},
    frame::Position,
    group::Batch,
    segment::{FileType, HEADER_BYTES, Header, Identity, Place, segment_name},
};

/// Largest batch for which zeros are reserved. The sync of a larger one takes so long that the blocks
/// and the length of the file, which it then writes, too, do not matter; and zeros would double what
/// is written.
const SMALL_BATCH_BYTES: u64 = 16 << 10;

/// The share of a segment that is reserved at once.
const RESERVED_SHARE: u64 = 64;

/// A segment that is no longer appended to, and may not be synced.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    name: String,
    file: Arc<dyn AppendFile>,
}

/// What one sync covers: files in the order in which they were written.
#[derive(Debug)]
pub(crate) struct SyncWork {
    /// The log is synced up to here when the work is done.
    pub(crate) end: Position,
    segments: Vec<Unsynced>,
    directory: bool,
}

impl SyncWork {
    /// Whether it seals a segment: syncs it for the last time.
    pub(crate) fn seals(&self) -> bool {
        self.segments.len() > 1
    }

    /// Syncs the segments, oldest first, and the directory if it has new names.
    pub(crate) fn run(&self, files: &dyn Files) -> Result<(), FileError> {
        for segment in &self.segments {
            segment
                .file
                .sync()
                .map_err(FileError::of("sync", &segment.name))?;
        }
        if self.directory {
            files
                .sync_directory()
                .map_err(FileError::of("sync", "the data directory"))?;
        }
        Ok(())
    }
}

/// A segment of the log, with the last mark before it; the segment before it is removable when that
/// mark is covered by a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) sequence: u64,
    pub(crate) mark: u64,
    /// Bytes of the segment; of the current one, 0.
    pub(crate) bytes: u64,
}

/// The end of the log before a new segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) sequence: u64,
    pub(crate) position: Position,
    pub(crate) last_crc: u32,
    pub(crate) mark: u64,
    pub(crate) ceiling: u64,
}

/// What a writer puts into every header, and the size of its segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) identity: Identity,
    pub(crate) boot: u64,
    pub(crate) segment_bytes: u64,
}

/// The writer.
#[derive(Debug)]
pub(crate) struct Writer {
    files: Arc<dyn Files>,
    settings: Settings,
    current: Unsynced,
    end: End,
    /// Bytes of the current segment.
    length: u64,
    /// Bytes of it with those that are reserved, if these are more.
    reserved: u64,
    sealed: Vec<Unsynced>,
    directory_unsynced: bool,
    listed: Vec<Listed>,
}

impl Writer {
    /// Starts a segment after `end`; `listed` are the segments before it.
    pub(crate) fn new(
        files: Arc<dyn Files>,
        settings: Settings,
        end: End,
        listed: Vec<Listed>,
    ) -> Result<Self, FileError> {
        let current = create(files.as_ref(), settings, (end, Place::First))?;
        let mut writer = Self {
            files,
            settings,
            current,
            end,
            length: HEADER_BYTES as u64,
            reserved: 0,
            sealed: Vec::new(),
            directory_unsynced: true,
            listed,
        };
        writer.list_current();
        Ok(writer)
    }

    fn list_current(&mut self) {
        self.listed.push(Listed {
            sequence: self.end.sequence,
            mark: self.end.mark,
            bytes: 0,
        });
    }

    /// Writes a batch; returns whether a full segment waits for a sync.
    pub(crate) fn write(&mut self, batch: &Batch) -> Result<bool, FileError> {
        self.reserve(batch)?;
        append_all(self.current.file.as_ref(), &batch.bytes)
            .map_err(FileError::of("write", &self.current.name))?;
        self.length += batch.bytes.len() as u64;
        self.end = End {
            sequence: self.end.sequence,
            position: batch.end,
            last_crc: batch.last_crc,
            mark: batch.mark,
            ceiling: batch.ceiling,
        };
        if self.length >= self.settings.segment_bytes {
            self.rotate()?;
        }
        Ok(!self.sealed.is_empty())
    }

    /// Reserves zeros before a small batch that is synced, if there are too few.
    fn reserve(&mut self, batch: &Batch) -> Result<(), FileError> {
        let bytes = batch.bytes.len() as u64;
        let is_small = batch.sync && bytes <= SMALL_BATCH_BYTES;
        if !is_small || self.length + bytes <= self.reserved {
            return Ok(());
        }
        // Space for one further batch at least.
        let reserved = (self.settings.segment_bytes / RESERVED_SHARE).max(2 * bytes);
        self.reserved = self.length + reserved;
        let file = self.current.file.as_ref();
        file.reserve(reserved)
            .map_err(FileError::of("write", &self.current.name))
    }

    /// Cuts what is reserved, so that the segment ends with a record.
    pub(crate) fn release(&mut self) -> Result<(), FileError> {
        if std::mem::take(&mut self.reserved) <= self.length {
            return Ok(());
        }
        let file = self.current.file.as_ref();
        file.release()
            .map_err(FileError::of("cut", &self.current.name))
    }

    /// Starts the next segment. The full one is synced by the next [`SyncWork`].
    pub(crate) fn rotate(&mut self) -> Result<(), FileError> {
        self.release()?;
        self.end.sequence += 1;
        let next = create(self.files.as_ref(), self.settings, (self.end, Place::Later))?;
        self.sealed.push(std::mem::replace(&mut self.current, next));
        if let Some(full) = self.listed.last_mut() {
            full.bytes = self.length;
        }
        self.length = HEADER_BYTES as u64;
        self.directory_unsynced = true;
        self.list_current();
        Ok(())
    }

    /// The work that makes everything written until now durable.
    pub(crate) fn sync_work(&mut self) -> SyncWork {
        let mut segments = std::mem::take(&mut self.sealed);
        segments.push(self.current.clone());
        SyncWork {
            end: self.end.position,
            segments,
            directory: std::mem::take(&mut self.directory_unsynced),
        }
    }

    /// The segments that hold only records with marks up to `mark`, oldest first.
    pub(crate) fn removable(&self, mark: u64) -> impl Iterator<Item = &Listed> {
        let before_next = self
            .listed
            .windows(2)
            .take_while(move |pair| pair[1].mark <= mark);
        before_next.map(|pair| &pair[0])
    }

    /// The number of the first segment that has records above `mark`.
    pub(crate) fn first_needed(&self, mark: u64) -> u64 {
        let removable = self.removable(mark).count();
        self.listed.get(removable).map_or(1, |first| first.sequence)
    }

    /// Removes the segments before a number, oldest first.
    pub(crate) fn remove_before(&mut self, sequence: u64) -> Result<(), FileError> {
        while let Some(first) = self.listed.first()
            && first.sequence < sequence.min(self.end.sequence)
        {
            let name = segment_name(first.sequence);
            self.files
                .remove(&name)
                .map_err(FileError::of("remove", &name))?;
            self.listed.remove(0);
        }
        Ok(())
    }
}

fn create(
    files: &dyn Files,
    settings: Settings,
    (end, place): (End, Place),
) -> Result<Unsynced, FileError> {
    let name = segment_name(end.sequence);
    let file = files
        .create(&name)
        .map_err(FileError::of("create", &name))?;
    let header = Header {
        file_type: FileType::Segment,
        identity: settings.identity,
        sequence: end.sequence,
        position: end.position,
        mark: end.mark,
        ceiling: end.ceiling,
        boot: settings.boot,
        previous: end.last_crc,
        place,
    };
    append_all(file.as_ref(), &header.encode()).map_err(FileError::of("write", &name))?;
    Ok(Unsynced { name, file })
}
