//! The hash index from a key to its cell, by linear hashing: it grows and shrinks by one bucket at
//! a time, so that no write pays for the growth of the whole table.

#[cfg(test)]
mod tests;

use std::{hash::BuildHasher, hint::black_box};

use foldhash::quality::RandomState;
use memmap2::MmapMut;

use super::{
    cell::key_of,
    slab::{Handle, Slab},
};

/// Mean entries of a bucket when the table grows. A bucket holds eight to a cache line, and tags
/// keep a look-up from reading the cells of other keys.
const BUCKET_ENTRIES_MEAN: usize = 32;

/// Buckets change their size in steps of a cache line.
const BUCKET_STEP: usize = 8;

const ENTRY_BYTES: usize = size_of::<usize>();

/// Keys whose cells are found together.
pub(super) const AT_ONCE: usize = 32;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// The hash of a key in one index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(usize);

impl Hash {
    /// The bits that an entry holds above its handle.
    fn tag(self) -> usize {
        self.0 >> Handle::BITS << Handle::BITS
    }
}

/// Finds cells by key. The keys are those of the cells in the slab that the caller passes, which
/// is always the same one.
#[derive(Debug)]
pub(super) struct Points {
    hasher: RandomState,
    /// A bucket is a record of entries; those behind the last one are 0. An entry is a handle and,
    /// in the bits above it, the top bits of the hash.
    buckets: Vec<Option<Handle>>,
    blocks: Slab,
    len: usize,
}

impl Points {
    /// An index without keys.
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            buckets: vec![None],
            blocks: Slab::new(),
            len: 0,
        }
    }

    /// Number of keys.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the index holds.
    pub(super) fn held_bytes(&self) -> u64 {
        let directory = self.buckets.capacity() * size_of::<Option<Handle>>();
        self.blocks.held_bytes() + directory as u64
    }

    /// See [`Slab::take_unmapped`].
    pub(super) fn take_unmapped(&mut self) -> Vec<MmapMut> {
        self.blocks.take_unmapped()
    }

    /// The hash of a key.
    pub(super) fn hash(&self, key: &[u8]) -> Hash {
        Hash(usize::from_le_bytes(
            self.hasher.hash_one(key).to_le_bytes(),
        ))
    }

    /// The cell of a key.
    pub(super) fn get(&self, records: &Slab, (key, hash): (&[u8], Hash)) -> Option<Handle> {
        candidates(self.block(self.bucket_of(hash)), hash)
            .find(|cell| key_of(records.get(*cell)) == key)
    }

    /// The cells of at most [`AT_ONCE`] keys. Each step reads the memory of all of them, so that the
    /// processor waits for it once and not for one key after the other.
    pub(super) fn get_all<'k>(
        &self,
        records: &Slab,
        keys: impl Iterator<Item = (&'k [u8], Hash)> + Clone,
    ) -> [Option<Handle>; AT_ONCE] {
        let mut blocks = [&[][..]; AT_ONCE];
        for (block, (_, hash)) in blocks.iter_mut().zip(keys.clone()) {
            *block = self.block(self.bucket_of(hash));
            black_box(block.iter().step_by(LINE_BYTES).max());
        }
        let mut cells = [None; AT_ONCE];
        for ((cell, block), (_, hash)) in cells.iter_mut().zip(blocks).zip(keys.clone()) {
            *cell = candidates(block, hash).next();
            black_box(cell.map(|cell| records.get(cell).first()));
        }
        for (cell, (key, hash)) in cells.iter_mut().zip(keys) {
            if cell.is_some_and(|cell| key_of(records.get(cell)) != key) {
                *cell = self.get(records, (key, hash));
            }
        }
        cells
    }

    /// Adds a cell with the hash of its key, which must not be in the index.
    pub(super) fn insert(&mut self, records: &Slab, (cell, hash): (Handle, Hash)) {
        self.append(self.bucket_of(hash), hash.tag() | cell.bits());
        self.len += 1;
        if self.len > self.buckets.len() * BUCKET_ENTRIES_MEAN {
            self.grow(records);
        }
    }

    /// Removes a cell; returns whether it was in the index.
    pub(super) fn remove(&mut self, records: &Slab, cell: Handle) -> bool {
        let hash = self.hash(key_of(records.get(cell)));
        let bucket = self.bucket_of(hash);
        let mut entries: Vec<usize> = self.entries(bucket).collect();
        let removed = hash.tag() | cell.bits();
        let Some(at) = entries.iter().position(|entry| *entry == removed) else {
            return false;
        };
        entries.swap_remove(at);
        self.store(bucket, &entries);
        self.len -= 1;
        // Half the threshold of growth: keys that come and go at a threshold move no buckets.
        if self.buckets.len() > 1 && self.len < self.buckets.len() * BUCKET_ENTRIES_MEAN / 2 {
            self.shrink();
        }
        true
    }

    /// The low bits of the hash; one bit fewer where the bucket is not split yet in this round.
    fn bucket_of(&self, Hash(hash): Hash) -> usize {
        let round = self.buckets.len().next_power_of_two();
        let bucket = hash & (round - 1);
        if bucket < self.buckets.len() {
            bucket
        } else {
            bucket - round / 2
        }
    }

    fn block(&self, bucket: usize) -> &[u8] {
        self.buckets[bucket].map_or(&[], |block| self.blocks.get(block))
    }

    fn entries(&self, bucket: usize) -> impl Iterator<Item = usize> {
        entries(self.block(bucket))
    }

    /// Adds an entry in place where the block has space.
    fn append(&mut self, bucket: usize, entry: usize) {
        let end = self.entries(bucket).count() * ENTRY_BYTES;
        let block = self.buckets[bucket].map(|block| self.blocks.get_mut(block));
        if let Some(space) = block.and_then(|block| block.get_mut(end..end + ENTRY_BYTES)) {
            space.copy_from_slice(&entry.to_le_bytes());
            return;
        }
        let entries: Vec<usize> = self.entries(bucket).chain([entry]).collect();
        self.store(bucket, &entries);
    }

    /// Replaces the entries of a bucket; its block fits their number.
    fn store(&mut self, bucket: usize, entries: &[usize]) {
        if let Some(block) = self.buckets[bucket].take() {
            self.blocks.remove(block);
        }
        if entries.is_empty() {
            return;
        }
        let space = entries.len().next_multiple_of(BUCKET_STEP);
        let block = self.blocks.allocate(space * ENTRY_BYTES);
        let entries = entries.iter().copied().chain(std::iter::repeat(0));
        let (slots, _) = self.blocks.get_mut(block).as_chunks_mut::<ENTRY_BYTES>();
        for (slot, entry) in slots.iter_mut().zip(entries) {
            *slot = entry.to_le_bytes();
        }
        self.buckets[bucket] = Some(block);
    }

    /// Splits the next bucket of the round in two.
    fn grow(&mut self, records: &Slab) {
        let new = self.buckets.len();
        let split = buddy(new);
        self.buckets.push(None);
        let bucket_of = |entry: &usize| {
            Handle::from_bits(*entry).map_or(split, |cell| {
                self.bucket_of(self.hash(key_of(records.get(cell))))
            })
        };
        let (moved, rest): (Vec<_>, Vec<_>) = self
            .entries(split)
            .partition(|entry| bucket_of(entry) == new);
        self.store(split, &rest);
        self.store(new, &moved);
    }

    /// Joins the last bucket with the one that it was split from.
    fn shrink(&mut self) {
        let last = self.buckets.len() - 1;
        let joined: Vec<usize> = self
            .entries(buddy(last))
            .chain(self.entries(last))
            .collect();
        self.store(last, &[]);
        self.store(buddy(last), &joined);
        self.buckets.pop();
        if self.buckets.len() < self.buckets.capacity() / 4 {
            self.buckets.shrink_to(self.buckets.len() * 2);
        }
    }
}

/// The bucket that this one (not 0) was split from.
fn buddy(bucket: usize) -> usize {
    bucket - (1 << bucket.ilog2())
}

/// The entries of a bucket's block.
fn entries(block: &[u8]) -> impl Iterator<Item = usize> {
    let (entries, _) = block.as_chunks::<ENTRY_BYTES>();
    let entries = entries.iter().map(|entry| usize::from_le_bytes(*entry));
    entries.take_while(|entry| *entry != 0)
}

/// The cells of a bucket's block whose keys may have the hash.
fn candidates(block: &[u8], hash: Hash) -> impl Iterator<Item = Handle> {
    let tagged = entries(block).filter(move |entry| Hash(*entry).tag() == hash.tag());
    tagged.filter_map(Handle::from_bits)
}
