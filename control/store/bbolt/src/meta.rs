//! The meta page: the root of the database and its size, with a checksum.

use std::hash::Hasher;

use fnv::FnvHasher;

use crate::page::{HEADER_BYTES, u32_at, u64_at};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;

/// Bytes of a meta in front of its checksum.
const CHECKED_BYTES: usize = 56;

/// Bytes of a page header and a meta.
pub(crate) const META_PAGE_BYTES: usize = HEADER_BYTES + CHECKED_BYTES + 8;

/// Page sizes that bbolt can have: those of a machine's memory.
const PAGE_BYTES_RANGE: std::ops::RangeInclusive<u32> = 512..=65_536;

/// What the meta page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Bytes of a page.
    pub(crate) page_bytes: u32,
    /// Root page of the root bucket.
    pub(crate) root: u64,
    /// Page of the list of free pages.
    pub(crate) freelist: u64,
    /// Number of pages of the database.
    pub(crate) pages: u64,
    /// Number of the transaction that wrote this meta; the higher one of both metas is valid.
    pub(crate) transaction: u64,
}

impl Meta {
    /// The meta in a page; `None` if it is not valid.
    pub(crate) fn decode(page: &[u8]) -> Option<Self> {
        let body = page.get(HEADER_BYTES..META_PAGE_BYTES)?;
        let meta = Self {
            page_bytes: u32_at(body, 8)?,
            root: u64_at(body, 16)?,
            freelist: u64_at(body, 32)?,
            pages: u64_at(body, 40)?,
            transaction: u64_at(body, 48)?,
        };
        let valid = u32_at(body, 0)? == MAGIC
            && u32_at(body, 4)? == VERSION
            && u64_at(body, CHECKED_BYTES)? == checksum(&body[..CHECKED_BYTES])
            && PAGE_BYTES_RANGE.contains(&meta.page_bytes)
            && meta.page_bytes.is_power_of_two();
        valid.then_some(meta)
    }

    /// The meta as it stands behind the header of its page.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(CHECKED_BYTES + 8);
        for number in [MAGIC, VERSION, self.page_bytes, 0] {
            body.extend(number.to_le_bytes());
        }
        let sequence = 0;
        for number in [
            self.root,
            sequence,
            self.freelist,
            self.pages,
            self.transaction,
        ] {
            body.extend(number.to_le_bytes());
        }
        body.extend(checksum(&body).to_le_bytes());
        body
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_with_any_flipped_bit_is_not_valid() {
        let meta = Meta {
            page_bytes: 4096,
            root: 5,
            freelist: 2,
            pages: 9,
            transaction: 7,
        };
        let mut page = vec![0; HEADER_BYTES];
        page.extend(meta.encode());
        assert_eq!(Meta::decode(&page), Some(meta));
        for bit in HEADER_BYTES * 8..page.len() * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Meta::decode(&page), None, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Meta::decode(&page[..page.len() - 1]), None);
    }
}
