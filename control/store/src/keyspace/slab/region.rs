//! One mapping cut into slots of equal size; freed slots form a list through their first bytes.

use memmap2::MmapMut;

use super::class::Class;

/// Bytes of a page, the unit in which memory becomes resident.
pub(super) const PAGE_BYTES: usize = 4096;

/// Bytes of a link of the list of freed slots, at the start of a slot.
const LINK_BYTES: usize = 8;

/// A mapping and which of its slots are used. The default has no memory.
#[derive(Debug, Default)]
pub(super) struct Region {
    memory: Option<MmapMut>,
    /// `None`: the mapping of one large record.
    class: Option<Class>,
    slot_bytes: usize,
    used: usize,
    /// Slots that were used at least once; their pages are resident.
    touched: usize,
    /// One above the slot that was freed last; 0: no freed slot.
    freed: usize,
}

impl Region {
    /// A region of many slots.
    pub(super) fn of_slots(memory: MmapMut, class: Class) -> Self {
        Self {
            memory: Some(memory),
            class: Some(class),
            slot_bytes: class.slot_bytes(),
            ..Self::default()
        }
    }

    /// A region that is the slot of one record.
    pub(super) fn of_one(memory: MmapMut) -> Self {
        Self {
            slot_bytes: memory.len(),
            memory: Some(memory),
            ..Self::default()
        }
    }

    pub(super) fn class(&self) -> Option<Class> {
        self.class
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    pub(super) fn into_memory(self) -> Option<MmapMut> {
        self.memory
    }

    pub(super) fn is_unused(&self) -> bool {
        self.used == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.freed == 0 && (self.touched + 1) * self.slot_bytes > self.bytes().len()
    }

    /// Bytes of the pages that were written.
    pub(super) fn resident_bytes(&self) -> u64 {
        (self.touched * self.slot_bytes).next_multiple_of(PAGE_BYTES) as u64
    }

    /// A free slot, which counts as used from here on. Panics in a full region.
    pub(super) fn take(&mut self) -> usize {
        self.used += 1;
        let Some(slot) = self.freed.checked_sub(1) else {
            self.touched += 1;
            return self.touched - 1;
        };
        self.freed = self
            .slot(slot)
            .first_chunk()
            .map_or(0, |link| usize::from_le_bytes(*link));
        slot
    }

    /// Frees a slot.
    pub(super) fn give_back(&mut self, slot: usize) {
        self.used -= 1;
        if self.class.is_some() {
            let link = self.freed.to_le_bytes();
            self.slot_mut(slot)[..LINK_BYTES].copy_from_slice(&link);
            self.freed = slot + 1;
        }
    }

    /// Moves the slots to memory of which no other page is resident.
    pub(super) fn shrink(&mut self) {
        let Some(memory) = &mut self.memory else {
            return;
        };
        let used = self.touched * self.slot_bytes;
        // Without memory for the copy, it stays as it is.
        if used + PAGE_BYTES <= memory.len()
            && let Ok(mut moved) = MmapMut::map_anon(memory.len())
        {
            moved[..used].copy_from_slice(&memory[..used]);
            *memory = moved;
        }
    }

    pub(super) fn slot(&self, slot: usize) -> &[u8] {
        &self.bytes()[slot * self.slot_bytes..][..self.slot_bytes]
    }

    pub(super) fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        let memory = self.memory.as_deref_mut().unwrap_or_default();
        &mut memory[slot * self.slot_bytes..][..self.slot_bytes]
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }
}
