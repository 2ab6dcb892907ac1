//! The layout of a version: the handles of the previous version and of the cell, then the fields of
//! the key-value pair behind the key, encoded, so that a response copies them.

use prost::encoding::decode_varint;

use super::{
    Revision,
    slab::{Handle, Slab},
};
use crate::wire::{Fields, HEAD_BYTES_MAX, TAIL_BYTES_MAX};

const HANDLE_BYTES: usize = 8;
/// Bytes before the encoded fields.
const HEADER_BYTES: usize = 2 * HANDLE_BYTES;

/// The first byte of a put's fields: the tag of its create revision. A tombstone has none and
/// starts with its mod revision.
const PUT_TAG: u8 = 0x10;

/// A version of a key in the slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'a>(&'a [u8]);

impl<'a> Version<'a> {
    pub(super) fn new(slab: &'a Slab, handle: Handle) -> Self {
        Self(slab.get(handle))
    }

    /// The version before this one; none after a compaction of it.
    pub(super) fn prev(self) -> Option<Handle> {
        self.handle_at(0)
    }

    /// The cell of the key.
    pub(super) fn cell(self) -> Handle {
        self.handle_at(HANDLE_BYTES)
            .unwrap_or_else(|| unreachable!("every version is stored with its cell"))
    }

    fn handle_at(self, offset: usize) -> Option<Handle> {
        Handle::from_bytes(*self.0[offset..].first_chunk()?)
    }

    /// The encoded fields behind the key.
    pub(crate) fn encoded(self) -> &'a [u8] {
        &self.0[HEADER_BYTES..]
    }

    /// The fields without the key.
    pub(crate) fn fields(self) -> Fields<'a> {
        Fields::decode(self.encoded())
    }

    /// Whether this version is a deletion of the key.
    pub(crate) fn is_tombstone(self) -> bool {
        self.0[HEADER_BYTES] != PUT_TAG
    }

    /// The revision that wrote the version.
    pub(crate) fn revision(self) -> Revision {
        let mut rest = &self.encoded()[1..];
        let mut number = decode_varint(&mut rest).unwrap_or(0);
        if !self.is_tombstone() {
            rest = &rest[1..];
            number = decode_varint(&mut rest).unwrap_or(0);
        }
        number.cast_signed()
    }

    /// Bytes of the record.
    pub(super) fn record_len(self) -> usize {
        self.0.len()
    }
}

/// Stores a version of a cell, whose previous version it links; the key in `fields` is ignored. A
/// tombstone has a mod revision only.
pub(super) fn insert(
    slab: &mut Slab,
    cell: Handle,
    prev: Option<Handle>,
    fields: &Fields<'_>,
) -> Handle {
    let mut head = [0; HEAD_BYTES_MAX];
    let mut space = &mut head[..];
    fields.encode_head(&mut space);
    let head_len = HEAD_BYTES_MAX - space.len();
    let mut tail = [0; TAIL_BYTES_MAX];
    let mut space = &mut tail[..];
    fields.encode_tail(&mut space);
    let tail_len = TAIL_BYTES_MAX - space.len();
    slab.insert(&[
        &Handle::to_bytes(prev),
        &Handle::to_bytes(Some(cell)),
        &head[..head_len],
        fields.value,
        &tail[..tail_len],
    ])
}

/// The encoded fields of a tombstone, the same for all keys that a revision deletes.
pub(super) fn tombstone(revision: Revision) -> Vec<u8> {
    let fields = Fields {
        mod_revision: revision,
        ..Fields::default()
    };
    let mut encoded = Vec::new();
    fields.encode_head(&mut encoded);
    encoded
}

/// Stores a tombstone of a cell, whose previous version it links.
pub(super) fn insert_tombstone(
    slab: &mut Slab,
    cell: Handle,
    prev: Option<Handle>,
    encoded: &[u8],
) -> Handle {
    slab.insert(&[
        &Handle::to_bytes(prev),
        &Handle::to_bytes(Some(cell)),
        encoded,
    ])
}

/// Removes the link to the previous version.
pub(super) fn unlink(slab: &mut Slab, version: Handle) {
    slab.get_mut(version)[..HANDLE_BYTES].copy_from_slice(&Handle::to_bytes(None));
}
