//! The address of a record in eight bytes, of which the top ten bits are free for its holder.

use std::num::NonZeroUsize;

use super::{REGION_BYTES, class::SLOT_BYTES_MAX};

const REGION_BITS: u32 = 24;
const SLOT_BITS: u32 = 17;
const SLACK_BITS: u32 = 12;
/// Set in each handle, so that no handle is zero.
const MARK: NonZeroUsize = NonZeroUsize::new(1 << (REGION_BITS + SLOT_BITS + SLACK_BITS)).unwrap();

/// Regions that handles can name: 32 TiB of slots.
pub(super) const REGIONS_MAX: usize = 1 << REGION_BITS;

const _: () = assert!(REGION_BYTES / 16 <= 1 << SLOT_BITS);
const _: () = assert!(SLOT_BYTES_MAX / 32 <= 1 << SLACK_BITS);

/// The parts of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Index of the region.
    pub(super) region: usize,
    /// Index of the slot inside the region.
    pub(super) slot: usize,
    /// Bytes of the slot behind the record.
    pub(super) slack: usize,
}

/// The address of a record in a slab, valid until the record is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(NonZeroUsize);

impl Handle {
    /// Bits of a handle; its holder may use those above.
    pub(crate) const BITS: u32 = MARK.ilog2() + 1;

    pub(super) fn new(place: Place) -> Self {
        let region = place.region;
        let slot = place.slot << REGION_BITS;
        let slack = place.slack << (REGION_BITS + SLOT_BITS);
        Self(MARK | region | slot | slack)
    }

    pub(super) fn place(self) -> Place {
        let bits = self.0.get();
        let field = |shift: u32, width: u32| (bits >> shift) & ((1 << width) - 1);
        Place {
            region: field(0, REGION_BITS),
            slot: field(REGION_BITS, SLOT_BITS),
            slack: field(REGION_BITS + SLOT_BITS, SLACK_BITS),
        }
    }

    /// The handle as a number below `1 << Handle::BITS`, never 0.
    pub(crate) fn bits(self) -> usize {
        self.0.get()
    }

    /// The handle in a number, whose bits above [`Handle::BITS`] are ignored; `None` for 0.
    pub(crate) fn from_bits(bits: usize) -> Option<Self> {
        NonZeroUsize::new(bits & ((1 << Self::BITS) - 1)).map(Self)
    }

    /// The handle in the bytes of a record; an absent one is zeros.
    pub(crate) fn to_bytes(handle: Option<Self>) -> [u8; 8] {
        handle.map_or(0, Self::bits).to_le_bytes()
    }

    /// The handle that [`Handle::to_bytes`] stored.
    pub(crate) fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        Self::from_bits(usize::from_le_bytes(bytes))
    }
}
