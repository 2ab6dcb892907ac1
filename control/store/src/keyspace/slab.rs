//! Memory of records: anonymous mappings cut into slots of equal size. A mapping without records
//! is unmapped, so that memory returns to the kernel when keys are deleted, and what is resident
//! is counted.

mod class;
mod handle;
mod region;
mod supply;
#[cfg(test)]
mod tests;

use std::{
    alloc::{Layout, handle_alloc_error},
    collections::BTreeSet,
};

use memmap2::MmapMut;

use class::Class;
pub(super) use handle::Handle;
use handle::{Place, REGIONS_MAX};
use region::Region;
pub(super) use supply::Supply;

/// Bytes of a region: small enough to become empty and be unmapped, large enough to make mapping
/// it rare.
const REGION_BYTES: usize = 2 << 20;

/// An empty region with at most this many resident bytes stays mapped as the spare: a record that
/// is written and removed again and again then costs no system call. A region with more has paid
/// for its mapping.
const SPARE_RESIDENT_BYTES_MAX: u64 = 64 << 10;

/// Mappings that wait for [`Slab::take_unmapped`]; further ones are unmapped at once.
const UNMAPPED_MAX: usize = 8;

/// Records of any length, addressed by [`Handle`]. The memory that the slots of a region lose by
/// rounding is at most a sixteenth (above 256 bytes), and 15 bytes per record below.
#[derive(Debug)]
pub(super) struct Slab {
    regions: Vec<Region>,
    /// Indices of `regions` that have no memory.
    vacant: Vec<usize>,
    /// Regions with a free slot, by class. The first one is filled first, which lets the others
    /// become empty.
    open: Vec<BTreeSet<usize>>,
    spare: Option<MmapMut>,
    unmapped: Vec<MmapMut>,
    held_bytes: u64,
    used_bytes: u64,
}

impl Slab {
    /// A slab without memory.
    pub(super) fn new() -> Self {
        Self {
            regions: Vec::new(),
            vacant: Vec::new(),
            open: vec![BTreeSet::new(); Class::COUNT],
            spare: None,
            unmapped: Vec::new(),
            held_bytes: 0,
            used_bytes: 0,
        }
    }

    /// Bytes that are resident: whole pages of the slots that have been used since their region
    /// was mapped. The spare region is not in it.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Bytes of the slots that hold records.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Stores the concatenation of the parts.
    pub(super) fn insert(&mut self, parts: &[&[u8]]) -> Handle {
        let handle = self.allocate(parts.iter().map(|part| part.len()).sum());
        let mut rest = self.get_mut(handle);
        for part in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        handle
    }

    /// A record of `len` bytes, which the caller has to write: they may be those of an earlier
    /// record. Ends the process when the kernel has no memory left, as all allocations do.
    pub(super) fn allocate(&mut self, len: usize) -> Handle {
        let class = Class::of(len);
        let index = self.region_with_space(class, len);
        let region = &mut self.regions[index];
        let resident = region.resident_bytes();
        let slot = region.take();
        self.held_bytes += region.resident_bytes() - resident;
        self.used_bytes += region.slot_bytes() as u64;
        if let Some(class) = class
            && region.is_full()
        {
            self.open[class.index()].remove(&index);
        }
        Handle::new(Place {
            region: index,
            slot,
            slack: self.regions[index].slot_bytes() - len,
        })
    }

    /// The bytes of a record. Panics, or returns other bytes, if it was removed.
    pub(super) fn get(&self, handle: Handle) -> &[u8] {
        let place = handle.place();
        let slot = self.regions[place.region].slot(place.slot);
        &slot[..slot.len() - place.slack]
    }

    /// The bytes of a record, to overwrite them.
    pub(super) fn get_mut(&mut self, handle: Handle) -> &mut [u8] {
        let place = handle.place();
        let slot = self.regions[place.region].slot_mut(place.slot);
        let len = slot.len() - place.slack;
        &mut slot[..len]
    }

    /// Frees the slot of a record; the handle is invalid from here on.
    pub(super) fn remove(&mut self, handle: Handle) {
        let place = handle.place();
        let region = &mut self.regions[place.region];
        let class = region.class();
        region.give_back(place.slot);
        self.used_bytes -= region.slot_bytes() as u64;
        if region.is_unused() {
            self.unmap(place.region);
        } else if let Some(class) = class {
            self.open[class.index()].insert(place.region);
        }
    }

    /// The index of a region that has space for a record of this class and length.
    fn region_with_space(&mut self, class: Option<Class>, len: usize) -> usize {
        let open = class.and_then(|class| self.open[class.index()].first());
        if let Some(index) = open {
            return *index;
        }
        let region = match class {
            Some(class) => Region::of_slots(self.map_region(), class),
            None => Region::of_one(map(len)),
        };
        let index = self.vacant.pop().unwrap_or(self.regions.len());
        assert!(index < REGIONS_MAX, "more regions than handles can name");
        if index == self.regions.len() {
            self.regions.push(region);
        } else {
            self.regions[index] = region;
        }
        if let Some(class) = class {
            self.open[class.index()].insert(index);
        }
        index
    }

    fn map_region(&mut self) -> MmapMut {
        self.spare.take().unwrap_or_else(|| map(REGION_BYTES))
    }

    /// Takes a region from a supply for the next record that needs one, if there is none for it. What
    /// the supply made resident is counted when it is used; [`Slab::supplied`] gives back the rest.
    pub(super) fn take_supply(&mut self, supply: &Supply) {
        if self.spare.is_none() {
            self.spare = supply.take();
        }
    }

    /// Gives back the resident pages that no record has used.
    pub(super) fn supplied(&mut self) {
        self.spare = None;
        self.regions.iter_mut().for_each(Region::shrink);
    }

    fn unmap(&mut self, index: usize) {
        let region = std::mem::take(&mut self.regions[index]);
        self.vacant.push(index);
        self.held_bytes -= region.resident_bytes();
        let (class, resident) = (region.class(), region.resident_bytes());
        if let Some(class) = class {
            self.open[class.index()].remove(&index);
        }
        if class.is_some() && resident <= SPARE_RESIDENT_BYTES_MAX {
            self.spare = region.into_memory();
        } else if self.unmapped.len() < UNMAPPED_MAX {
            self.unmapped.extend(region.into_memory());
        }
    }

    /// The mappings that are not counted any more, for a caller that drops them when it has released
    /// its lock: to give the pages of one back takes the kernel longer than thousands of removals.
    pub(super) fn take_unmapped(&mut self) -> Vec<MmapMut> {
        std::mem::take(&mut self.unmapped)
    }
}

fn map(len: usize) -> MmapMut {
    MmapMut::map_anon(len).unwrap_or_else(|_| {
        handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>()))
    })
}
