//! Headers and names of the files of a data directory: segments of the log, and snapshots.

use crate::{OpenError, frame::Position};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 80;

/// The format that this release writes, and the newest that it reads. In format 1 no segment states
/// how far the log was synced.
pub const FORMAT: u32 = 2;

/// The offset of the place in a header.
const PLACE: usize = HEADER_BYTES - 8;

/// The identity of the data in a directory; every file carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster ID.
    pub cluster: u64,
    /// The member ID.
    pub member: u64,
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A segment of the log.
    Segment,
    /// A snapshot.
    Snapshot,
}

impl FileType {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Segment => b"DORMWAL\0",
            Self::Snapshot => b"DORMSNP\0",
        }
    }
}

/// The place of a segment in its run, by which a power loss differs from damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of a snapshot, and of a segment in format 1.
    Unstated,
    /// The first segment of a run: all segments before it were synced when it was created.
    First,
    /// A later one: the segment before it may not have been synced.
    Later,
}

impl Place {
    fn number(self) -> u32 {
        match self {
            Self::Unstated => 0,
            Self::First => 1,
            Self::Later => 2,
        }
    }

    fn of(number: u32) -> Option<Self> {
        let places = [Self::Unstated, Self::First, Self::Later];
        places.into_iter().find(|place| place.number() == number)
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the file.
    pub file_type: FileType,
    /// The identity of the data.
    pub identity: Identity,
    /// Of a segment: its number, from 1. Of a snapshot: the first segment that it needs.
    pub sequence: u64,
    /// Of a segment: the position of its first frame. Of a snapshot: 0.
    pub position: Position,
    /// Of a segment: the last mark before it. Of a snapshot: the mark of its state.
    pub mark: u64,
    /// Of a segment: no mark above it was acknowledged before the segment was created. Of a snapshot: 0.
    pub ceiling: u64,
    /// The boot of the machine in which the file was created; 0 if it is not known.
    pub boot: u64,
    /// Of a segment: the checksum of the last frame before it, 0 if there is none.
    pub previous: u32,
    /// The place of a segment in its run.
    pub place: Place,
}

impl Header {
    /// The encoded header: magic, format, previous, cluster, member, sequence, position, mark, ceiling,
    /// boot, place (little endian), and a checksum of all these.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(self.file_type.magic());
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        header[12..16].copy_from_slice(&self.previous.to_le_bytes());
        let numbers = [
            self.identity.cluster,
            self.identity.member,
            self.sequence,
            self.position,
            self.mark,
            self.ceiling,
            self.boot,
        ];
        for (field, number) in header[16..].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        header[PLACE..PLACE + 4].copy_from_slice(&self.place.number().to_le_bytes());
        let crc = crc32c::crc32c(&header[..HEADER_BYTES - 4]);
        header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// The header at the start of a file. A newer format is recognised by its magic and format alone.
    pub fn decode(bytes: &[u8], file_type: FileType, file: &str) -> Result<Self, OpenError> {
        let damaged = |detail| OpenError::Damaged {
            file: file.to_owned(),
            offset: 0,
            detail,
        };
        let header: &[u8; HEADER_BYTES] = bytes
            .first_chunk()
            .ok_or_else(|| damaged("the header is incomplete"))?;
        if &header[..8] != file_type.magic() {
            return Err(damaged("the header has another magic number"));
        }
        let format = number_32(header, 8);
        if format > FORMAT {
            return Err(OpenError::NewerFormat {
                file: file.to_owned(),
                format,
                known: FORMAT,
            });
        }
        if crc32c::crc32c(&header[..HEADER_BYTES - 4]) != number_32(header, HEADER_BYTES - 4) {
            return Err(damaged("the header does not match its checksum"));
        }
        Ok(Self {
            file_type,
            identity: Identity {
                cluster: number_64(header, 16),
                member: number_64(header, 24),
            },
            sequence: number_64(header, 32),
            position: number_64(header, 40),
            mark: number_64(header, 48),
            ceiling: number_64(header, 56),
            boot: number_64(header, 64),
            previous: number_32(header, 12),
            place: Place::of(number_32(header, PLACE))
                .ok_or_else(|| damaged("the header has an unknown place"))?,
        })
    }
}

fn number_32(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    header[at..at + 4]
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u32::from(byte))
}

fn number_64(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(number_32(header, at)) | u64::from(number_32(header, at + 4)) << 32
}

/// The name of a segment.
pub fn segment_name(sequence: u64) -> String {
    format!("{sequence:016x}.wal")
}

/// The name of the snapshot at a mark.
pub fn snapshot_name(mark: u64) -> String {
    format!("{mark:016x}.snap")
}

/// The number in the name of a segment.
pub(crate) fn segment_sequence(name: &str) -> Option<u64> {
    number_of(name, ".wal")
}

/// The mark in the name of a snapshot.
pub(crate) fn snapshot_mark(name: &str) -> Option<u64> {
    number_of(name, ".snap")
}

fn number_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (digits == format!("{number:016x}")).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            file_type: FileType::Segment,
            identity: Identity {
                cluster: 0x1122_3344_5566_7788,
                member: u64::MAX - 1,
            },
            sequence: 3,
            position: 1 << 40,
            mark: 99,
            ceiling: 1_000,
            boot: 77,
            previous: 0xdead_beef,
            place: Place::Later,
        }
    }

    #[test]
    fn a_header_is_decoded_as_encoded_and_refused_with_any_flipped_bit() {
        let bytes = header().encode();
        assert_eq!(
            Header::decode(&bytes, FileType::Segment, "a").unwrap(),
            header()
        );
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            Header::decode(&flipped, FileType::Segment, "a").unwrap_err();
        }
        Header::decode(&bytes, FileType::Snapshot, "a").unwrap_err();
        Header::decode(&bytes[..HEADER_BYTES - 1], FileType::Segment, "a").unwrap_err();
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut bytes = header().encode();
        bytes[8] = 3;
        let error = Header::decode(&bytes, FileType::Segment, "a").unwrap_err();
        assert!(matches!(error, OpenError::NewerFormat { format: 3, .. }));
    }

    #[test]
    fn only_names_of_this_package_are_recognised() {
        assert_eq!(segment_sequence(&segment_name(0xab)), Some(0xab));
        assert_eq!(snapshot_mark(&snapshot_name(7)), Some(7));
        for name in [
            "1.wal",
            "000000000000000A.wal",
            "+00000000000000a.wal",
            "lock",
        ] {
            assert_eq!(segment_sequence(name), None, "{name}");
        }
    }
}
