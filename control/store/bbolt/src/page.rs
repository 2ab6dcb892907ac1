//! The layout of pages: a header, fixed elements, then the keys and values that they point to.

/// Bytes of a page's header: number (8), flags (2), elements (2), further pages (4).
pub(crate) const HEADER_BYTES: usize = 16;

/// Bytes of an element. In a branch: position (4), bytes of the key (4), page (8). In a leaf: flags
/// (4), position (4), bytes of the key (4), bytes of the value (4). Positions count from the
/// element's first byte.
pub(crate) const ELEMENT_BYTES: usize = 16;

/// Bytes of a bucket's header, the value of its name: root page (8), sequence (8). The page of a
/// small bucket, whose root is 0, follows instead.
pub(crate) const BUCKET_BYTES: usize = 16;

/// Flag of a leaf element: its value is a bucket.
pub(crate) const BUCKET_FLAG: u32 = 1;

/// Kinds of pages, by their flags.
pub(crate) const BRANCH_FLAG: u16 = 1;
pub(crate) const LEAF_FLAG: u16 = 2;
pub(crate) const META_FLAG: u16 = 4;
pub(crate) const FREELIST_FLAG: u16 = 16;

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) number: u64,
    pub(crate) flags: u16,
    pub(crate) elements: u16,
    /// Pages that follow and belong to this one.
    pub(crate) overflow: u32,
}

impl Header {
    pub(crate) fn decode(page: &[u8]) -> Option<Self> {
        Some(Self {
            number: u64_at(page, 0)?,
            flags: u16::from_le_bytes(array_at(page, 8)?),
            elements: u16::from_le_bytes(array_at(page, 10)?),
            overflow: u32_at(page, 12)?,
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.elements.to_le_bytes());
        bytes.extend(self.overflow.to_le_bytes());
        bytes
    }
}

/// A key and what a branch or a leaf holds for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafElement<'p> {
    pub(crate) flags: u32,
    pub(crate) key: &'p [u8],
    pub(crate) value: &'p [u8],
}

/// Element `index` of a leaf page; `None` if it is not inside the page.
pub(crate) fn leaf_element(page: &[u8], index: usize) -> Option<LeafElement<'_>> {
    let start = HEADER_BYTES + index * ELEMENT_BYTES;
    let contents = page.get(start + to_usize(u32_at(page, start + 4)?)..)?;
    let (key, rest) = contents.split_at_checked(to_usize(u32_at(page, start + 8)?))?;
    Some(LeafElement {
        flags: u32_at(page, start)?,
        key,
        value: rest.get(..to_usize(u32_at(page, start + 12)?))?,
    })
}

/// The page that element `index` of a branch page points to; `None` if it is not inside the page.
pub(crate) fn branch_child(page: &[u8], index: usize) -> Option<u64> {
    u64_at(page, HEADER_BYTES + index * ELEMENT_BYTES + 8)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// A number of bytes in a page; `usize::MAX`, which no page has, where it does not fit.
fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
