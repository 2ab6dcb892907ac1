//! The thread that reads the next segment and checks its records while those of the last one are
//! applied.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Builder, Scope},
};

use crate::{
    error::FileError,
    files::Files,
    scan::Frames,
    segment::{FileType, HEADER_BYTES, Header, segment_name},
};

/// A segment in memory.
pub(super) struct Segment {
    pub(super) sequence: u64,
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// Bytes behind the header that are valid records; what follows them is not judged yet.
    pub(super) checked: usize,
}

impl Segment {
    /// Reads a segment into the memory of another one, which costs less than new memory.
    pub(super) fn read(
        files: &dyn Files,
        sequence: u64,
        mut bytes: Vec<u8>,
    ) -> Result<Self, FileError> {
        let name = segment_name(sequence);
        bytes.clear();
        files
            .read(&name)
            .and_then(|mut input| input.read_to_end(&mut bytes))
            .map_err(FileError::of("read", &name))?;
        Ok(Self {
            sequence,
            name,
            bytes,
            checked: 0,
        })
    }

    /// Checks the records up to the first bytes that are none.
    fn check(mut self, cluster: u64) -> Self {
        if let Ok(header) = Header::decode(&self.bytes, FileType::Segment, &self.name) {
            let mut frames = Frames::new(&self.bytes[HEADER_BYTES..], cluster, header.position);
            frames.by_ref().for_each(drop);
            self.checked = frames.offset();
        }
        self
    }
}

/// Segments in order, of which one is in memory before it is asked for.
pub(super) struct Ahead {
    segments: Receiver<Result<Segment, FileError>>,
    memory: SyncSender<Vec<u8>>,
}

impl Ahead {
    /// Starts to read. The thread ends when this is dropped.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        files: &'scope dyn Files,
        (cluster, sequences): (u64, &'scope [u64]),
    ) -> io::Result<Self> {
        // Without space: the thread reads one segment ahead, not two.
        let (read, segments) = sync_channel(0);
        let (memory, free) = sync_channel(1);
        let thread = Builder::new().name("wal-read".to_owned());
        thread.spawn_scoped(scope, move || {
            for &sequence in sequences {
                let bytes = free.try_recv().unwrap_or_default();
                let segment = Segment::read(files, sequence, bytes);
                let segment = segment.map(|segment| segment.check(cluster));
                if read.send(segment).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { segments, memory })
    }

    /// The next segment; `None` after the last.
    pub(super) fn next(&self) -> Option<Result<Segment, FileError>> {
        self.segments.recv().ok()
    }

    /// Returns the memory of a segment that is applied, for the one after the next.
    pub(super) fn reuse(&self, segment: Segment) {
        // It is freed if the thread reads no further segment.
        let _ = self.memory.try_send(segment.bytes);
    }
}
