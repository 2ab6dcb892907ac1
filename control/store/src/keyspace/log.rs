//! The log of events in the order of revisions: the history of watchers, the work list of
//! compaction, and the source of the journal.

use std::collections::VecDeque;

use memmap2::MmapMut;

use super::{
    Revision,
    slab::{Handle, Slab},
};

/// Events of a chunk: a chunk is one record of the slab, so that growth copies nothing.
const CHUNK_EVENTS: usize = 4_096;
const ENTRY_BYTES: usize = 16;

/// One event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) revision: Revision,
    /// The version that the event wrote.
    pub(super) version: Handle,
}

/// Position of an event, counted from the first event of the log ever.
pub(super) type Position = u64;

/// Events in order. The first ones are dropped when they are compacted.
#[derive(Debug)]
pub(super) struct Log {
    chunks: VecDeque<Handle>,
    slab: Slab,
    /// Position of the first event of the first chunk.
    base: Position,
    start: Position,
    end: Position,
    dropped: Revision,
}

impl Log {
    pub(super) fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            slab: Slab::new(),
            base: 0,
            start: 0,
            end: 0,
            dropped: 0,
        }
    }

    /// An empty log whose events up to a revision are dropped.
    pub(super) fn starting_after(dropped: Revision) -> Self {
        Self {
            dropped,
            ..Self::new()
        }
    }

    /// Resident bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        self.slab.held_bytes() + (self.chunks.capacity() * size_of::<Handle>()) as u64
    }

    /// Bytes of the events.
    pub(super) fn used_bytes(&self) -> u64 {
        (self.end - self.start) * ENTRY_BYTES as u64
    }

    /// Position of the first event that is not dropped.
    pub(super) fn start(&self) -> Position {
        self.start
    }

    /// Position behind the last event.
    pub(super) fn end(&self) -> Position {
        self.end
    }

    /// The newest revision of which an event is dropped.
    pub(super) fn dropped(&self) -> Revision {
        self.dropped
    }

    /// Revision of the last event, with those of an open transaction.
    pub(super) fn last(&self) -> Option<Revision> {
        let last = self.end.checked_sub(1)?;
        self.get(last).map(|entry| entry.revision)
    }

    pub(super) fn push(&mut self, entry: Entry) {
        let (chunk, offset) = self.place(self.end);
        if chunk == self.chunks.len() {
            self.chunks
                .push_back(self.slab.allocate(CHUNK_EVENTS * ENTRY_BYTES));
        }
        let bytes = &mut self.slab.get_mut(self.chunks[chunk])[offset..][..ENTRY_BYTES];
        bytes[..8].copy_from_slice(&entry.revision.to_le_bytes());
        bytes[8..].copy_from_slice(&Handle::to_bytes(Some(entry.version)));
        self.end += 1;
    }

    /// Index of the chunk of an event, and the offset of the event in it.
    fn place(&self, position: Position) -> (usize, usize) {
        let index = usize::try_from(position - self.base).unwrap_or(usize::MAX);
        (index / CHUNK_EVENTS, index % CHUNK_EVENTS * ENTRY_BYTES)
    }

    /// The event at a position; none if it is dropped or not written yet.
    pub(super) fn get(&self, position: Position) -> Option<Entry> {
        if !(self.start..self.end).contains(&position) {
            return None;
        }
        let (chunk, offset) = self.place(position);
        let bytes = &self.slab.get(self.chunks[chunk])[offset..];
        Some(Entry {
            revision: Revision::from_le_bytes(*bytes.first_chunk()?),
            version: Handle::from_bytes(*bytes[8..].first_chunk()?)?,
        })
    }

    /// The events from a position on.
    pub(super) fn from(&self, position: Position) -> impl Iterator<Item = Entry> {
        (position.max(self.start)..self.end).map_while(|position| self.get(position))
    }

    /// Position of the first event above a revision. Costs the logarithm of the number of events
    /// above it: a write looks for its own.
    pub(super) fn position_after(&self, revision: Revision) -> Position {
        let is_above = |position| {
            let entry = self.get(position);
            entry.is_some_and(|entry| entry.revision > revision)
        };
        let (mut low, mut high, mut step) = (self.start, self.end, 1);
        while high - low > step {
            if !is_above(high - step) {
                low = high - step + 1;
                break;
            }
            high -= step;
            step *= 2;
        }
        while low < high {
            let middle = low.midpoint(high);
            if is_above(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// See [`Slab::take_unmapped`].
    pub(super) fn take_unmapped(&mut self) -> Vec<MmapMut> {
        self.slab.take_unmapped()
    }

    /// Drops the first event.
    pub(super) fn drop_first(&mut self) -> Option<Entry> {
        let entry = self.get(self.start)?;
        self.dropped = entry.revision;
        self.start += 1;
        if self.start - self.base == CHUNK_EVENTS as u64
            && let Some(chunk) = self.chunks.pop_front()
        {
            self.slab.remove(chunk);
            self.base = self.start;
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_event_above_a_revision_is_found_from_the_end(
            events in prop::collection::vec(0..3_i64, 0..70),
            dropped in 0..70_usize,
        ) {
            let (mut log, version) = (Log::new(), Slab::new().allocate(8));
            let mut revision = 1;
            let mut revisions = Vec::new();
            for step in &events {
                revision += step;
                log.push(Entry { revision, version });
                revisions.push(revision);
            }
            for _ in 0..dropped {
                log.drop_first();
            }
            let dropped = dropped.min(events.len());
            for revision in 0..=revision + 1 {
                let below = revisions[dropped..].partition_point(|at| *at <= revision);
                let expected = (dropped + below) as u64;
                prop_assert_eq!(log.position_after(revision), expected);
            }
        }
    }
}
