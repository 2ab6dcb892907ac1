//! Damage: the bytes at which reading the log ends early, and whether a power loss explains them.
//!
//! A power loss may drop any blocks that were not synced, so valid records may follow the bad bytes.
//! The log states how far it was synced: bad bytes after the last statement, in the last run and in
//! an earlier boot, are cut. All other damage is refused, since it may hide acknowledged records.

use tracing::warn;

use super::Config;
use crate::{
    OpenError,
    error::FileError,
    files::Files,
    frame::{Frame, Position},
    group::SYNCED_KIND,
    scan::{Frames, Tail},
    segment::{FileType, HEADER_BYTES, Header, Place, segment_name},
};

/// The bytes that are no record, or the segment that is missing.
#[derive(Debug)]
pub(super) struct Damage {
    /// The position of the first record that is missing.
    pub(super) position: Position,
    /// The name of the damaged segment and the offset of its first bad byte; `None` if the segment is
    /// dropped as a whole.
    pub(super) cut: Option<(String, u64)>,
    /// What follows in the segment; [`Tail::Clean`] if the next one is missing or not usable.
    pub(super) tail: Tail,
    /// The segments after the damage, ascending.
    pub(super) later: Vec<u64>,
    /// The refusal.
    pub(super) error: OpenError,
}

/// The end of a log that is cut.
#[derive(Debug)]
pub(super) struct Torn {
    cut: Option<(String, u64)>,
    /// Whether what is cut was reserved for records.
    reserved: bool,
    dropped: Vec<u64>,
}

impl Damage {
    pub(super) fn accept(self) -> Torn {
        Torn {
            cut: self.cut,
            reserved: self.tail == Tail::Zeros && self.later.is_empty(),
            dropped: self.later,
        }
    }
}

impl Torn {
    /// Cuts the files. The last segment goes first, each durably: a crash in between leaves a log with
    /// the same first damage.
    pub(super) fn cut(&self, files: &dyn Files) -> Result<(), FileError> {
        for &sequence in self.dropped.iter().rev() {
            let name = segment_name(sequence);
            warn!(
                file = name,
                "a segment that was not synced before a power loss is removed"
            );
            files
                .remove(&name)
                .map_err(FileError::of("remove", &name))?;
            files
                .sync_directory()
                .map_err(FileError::of("sync", "the data directory"))?;
        }
        if let Some((name, offset)) = &self.cut {
            if !self.reserved {
                warn!(
                    file = name,
                    offset, "an incomplete end of the journal is cut"
                );
            }
            files
                .truncate(name, *offset)
                .map_err(FileError::of("truncate", name))?;
        }
        Ok(())
    }
}

/// The position up to which the log was synced, as far as a segment after the damage proves it. `at`
/// is the segment's position if its header is bad.
pub(super) fn proven(bytes: &[u8], config: &Config, (name, at): (&str, Position)) -> Position {
    let (start, place) = match Header::decode(bytes, FileType::Segment, name) {
        Ok(header) => (header.position, header.place),
        Err(_bad) => (at, Place::Later),
    };
    match place {
        // Nothing is known of a segment in format 1: no loss is accepted.
        Place::Unstated => return Position::MAX,
        Place::First => return start,
        Place::Later => {}
    }
    let bytes = bytes.get(HEADER_BYTES..).unwrap_or_default();
    stated(Frames::new(bytes, config.identity.cluster, start))
}

/// The highest position that frames state as synced; 0 if none does.
pub(super) fn stated(frames: Frames<'_>) -> Position {
    let positions = frames.all().filter_map(|frame| synced_position(&frame));
    positions.max().unwrap_or(0)
}

/// The position that a record states as synced.
pub(super) fn synced_position(frame: &Frame<'_>) -> Option<Position> {
    let payload = frame.payload.try_into().ok()?;
    (frame.kind == SYNCED_KIND).then_some(u64::from_le_bytes(payload))
}
