//! A node of a tree while its page is filled.

use crate::{
    PAGE_BYTES,
    page::{BRANCH_FLAG, ELEMENT_BYTES, HEADER_BYTES, Header, LEAF_FLAG},
};

/// What the page says of a key besides its position.
#[derive(Clone, Copy, Debug)]
pub(super) enum Element {
    /// An entry of a leaf.
    Entry {
        flags: u32,
        key_bytes: u32,
        value_bytes: u32,
    },
    /// A page below a branch, and the bytes of its first key.
    Child { key_bytes: u32, page: u64 },
}

impl Element {
    fn encode(self, position: u32) -> [u8; ELEMENT_BYTES] {
        match self {
            Self::Entry {
                flags,
                key_bytes,
                value_bytes,
            } => pack([pair(flags, position), pair(key_bytes, value_bytes)]),
            Self::Child { key_bytes, page } => pack([pair(position, key_bytes), page]),
        }
    }

    /// Bytes of the key and the value.
    fn contents_bytes(self) -> u32 {
        match self {
            Self::Entry {
                key_bytes,
                value_bytes,
                ..
            } => key_bytes + value_bytes,
            Self::Child { key_bytes, .. } => key_bytes,
        }
    }
}

/// Two numbers of four bytes, the first one in front.
fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

fn pack([front, back]: [u64; 2]) -> [u8; ELEMENT_BYTES] {
    (u128::from(front) | u128::from(back) << 64).to_le_bytes()
}

/// The elements of a page, and behind them their keys and values.
#[derive(Debug, Default)]
pub(super) struct Node {
    elements: Vec<Element>,
    contents: Vec<u8>,
    first_key: Vec<u8>,
}

impl Node {
    pub(super) fn len(&self) -> usize {
        self.elements.len()
    }

    /// The key of the first element.
    pub(super) fn first_key(&self) -> &[u8] {
        &self.first_key
    }

    /// The page that the first element points to; `None` in a leaf or an empty node.
    pub(super) fn first_child(&self) -> Option<u64> {
        match self.elements.first() {
            Some(Element::Child { page, .. }) => Some(*page),
            _ => None,
        }
    }

    /// Whether an element with these contents belongs to the page. Some do though its page
    /// overflows: the only entry of a leaf, and the second child of a branch, without which the
    /// levels above would not become smaller.
    pub(super) fn has_space(&self, contents_bytes: usize) -> bool {
        let elements_min = if self.first_child().is_some() { 2 } else { 1 };
        self.len() < elements_min || self.bytes() + ELEMENT_BYTES + contents_bytes <= PAGE_BYTES
    }

    pub(super) fn push(&mut self, element: Element, key: &[u8], value: &[u8]) {
        if self.elements.is_empty() {
            self.first_key = key.to_vec();
        }
        self.elements.push(element);
        self.contents.extend(key);
        self.contents.extend(value);
    }

    /// The page with this number, without the zeros that fill it up.
    pub(super) fn encode(&self, number: u64) -> Vec<u8> {
        let overflow = self.bytes().div_ceil(PAGE_BYTES) - 1;
        let is_branch = self.first_child().is_some();
        let header = Header {
            number,
            flags: if is_branch { BRANCH_FLAG } else { LEAF_FLAG },
            elements: u16::try_from(self.len()).unwrap_or(u16::MAX),
            overflow: u32::try_from(overflow).unwrap_or(u32::MAX),
        };
        let mut page = header.encode();
        page.reserve(self.bytes().next_multiple_of(PAGE_BYTES));
        let elements_bytes = self.len() * ELEMENT_BYTES;
        let mut position = u32::try_from(elements_bytes).unwrap_or(u32::MAX);
        for element in &self.elements {
            page.extend(element.encode(position));
            position += element.contents_bytes();
            position -= ELEMENT_BYTES_U32;
        }
        page.extend(&self.contents);
        page
    }

    fn bytes(&self) -> usize {
        HEADER_BYTES + self.len() * ELEMENT_BYTES + self.contents.len()
    }
}

const ELEMENT_BYTES_U32: u32 = 16;
const _: () = assert!(ELEMENT_BYTES_U32 as usize == ELEMENT_BYTES);
/// Elements of a page, which is full before its 16-bit count is.
const _: () = assert!(PAGE_BYTES / ELEMENT_BYTES <= 1 << 15);
