//! A B+-tree that is written from its leaves up while its entries come in ascending order.

use std::io::Write;

use super::{
    Pages,
    node::{Element, Node},
};
use crate::WriteError;

/// Bytes of the longest key and value; bbolt's `MaxKeySize` and `MaxValueSize`.
const KEY_BYTES_MAX: usize = 32_768;
const VALUE_BYTES_MAX: usize = (1 << 31) - 2;

/// The page of each level that is being filled, the leaf first.
#[derive(Debug, Default)]
pub(super) struct Tree {
    levels: Vec<Node>,
    last_key: Vec<u8>,
}

impl Tree {
    /// Appends an entry.
    pub(super) fn insert<W: Write>(
        &mut self,
        pages: &mut Pages<W>,
        flags: u32,
        (key, value): (&[u8], &[u8]),
    ) -> Result<(), WriteError> {
        let too_long = WriteError::Length {
            key: key.len(),
            value: value.len(),
        };
        let (Some(key_bytes), Some(value_bytes)) = (
            length(key, 1, KEY_BYTES_MAX),
            length(value, 0, VALUE_BYTES_MAX),
        ) else {
            return Err(too_long);
        };
        if *key <= *self.last_key {
            return Err(WriteError::NotAscending);
        }
        self.last_key = key.to_vec();
        let element = Element::Entry {
            flags,
            key_bytes,
            value_bytes,
        };
        self.push(pages, 0, (element, key, value))
    }

    /// Writes what is left; returns the root page.
    pub(super) fn finish<W: Write>(mut self, pages: &mut Pages<W>) -> Result<u64, WriteError> {
        if self.levels.is_empty() {
            return pages.append(Node::default().encode(pages.next));
        }
        let mut level = 0;
        loop {
            let is_top = level + 1 == self.levels.len();
            let only_child = self.levels[level]
                .first_child()
                .filter(|_| self.levels[level].len() == 1);
            if let Some(root) = only_child.filter(|_| is_top) {
                return Ok(root);
            }
            self.flush(pages, level)?;
            level += 1;
        }
    }

    fn push<W: Write>(
        &mut self,
        pages: &mut Pages<W>,
        level: usize,
        (element, key, value): (Element, &[u8], &[u8]),
    ) -> Result<(), WriteError> {
        if level == self.levels.len() {
            self.levels.push(Node::default());
        }
        if !self.levels[level].has_space(key.len() + value.len()) {
            self.flush(pages, level)?;
        }
        self.levels[level].push(element, key, value);
        Ok(())
    }

    /// Writes the page of a level and appends it to the level above.
    fn flush<W: Write>(&mut self, pages: &mut Pages<W>, level: usize) -> Result<(), WriteError> {
        let node = std::mem::take(&mut self.levels[level]);
        let page = pages.append(node.encode(pages.next))?;
        let key = node.first_key();
        let key_bytes = length(key, 1, KEY_BYTES_MAX).unwrap_or(0);
        self.push(
            pages,
            level + 1,
            (Element::Child { key_bytes, page }, key, &[]),
        )
    }
}

/// The length of a key or value if it is in bounds.
fn length(bytes: &[u8], min: usize, max: usize) -> Option<u32> {
    let len = bytes.len();
    u32::try_from(len)
        .ok()
        .filter(|_| (min..=max).contains(&len))
}
