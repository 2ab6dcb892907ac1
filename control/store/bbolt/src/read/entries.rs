//! The entries of a bucket: a walk over its tree that reads each page once.

use std::io::{Read, Seek};

use super::{Database, Page};
use crate::{
    ReadError,
    page::{BRANCH_FLAG, BUCKET_FLAG, LEAF_FLAG, branch_child, leaf_element},
};

/// Levels of a bucket's tree; bbolt's trees have at most a handful. Bounds the walk over a damaged
/// file whose branches form a circle.
const LEVELS_MAX: usize = 32;

/// An entry of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, never empty in files that bbolt writes.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// Whether the value is the header of a bucket.
    pub is_bucket: bool,
}

/// The entries of a bucket in key order. The first error is the last item.
#[derive(Debug)]
pub struct Entries<'d, R> {
    database: &'d mut Database<R>,
    /// The pages from the root down, and the element of each that comes next.
    path: Vec<(Page, usize)>,
    last_key: Option<Vec<u8>>,
}

impl<'d, R: Read + Seek> Entries<'d, R> {
    pub(super) fn of(database: &'d mut Database<R>, root: Page) -> Self {
        Self {
            database,
            path: vec![(root, 0)],
            last_key: None,
        }
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        while let Some((page, next)) = self.path.last_mut() {
            let element = *next;
            *next += 1;
            if element >= usize::from(page.header.elements) {
                self.path.pop();
                continue;
            }
            match page.header.flags {
                LEAF_FLAG => {
                    let entry = entry_of(page, element)?;
                    return self.ascending(entry).map(Some);
                }
                BRANCH_FLAG => {
                    let child = branch_child(&page.bytes, element);
                    let child = child.ok_or(page.damaged("a branch points outside of the page"))?;
                    self.descend(child)?;
                }
                _ => return Err(page.damaged("it is neither a branch nor a leaf")),
            }
        }
        Ok(None)
    }

    fn descend(&mut self, child: u64) -> Result<(), ReadError> {
        let page = self.database.page(child)?;
        if self.path.len() == LEVELS_MAX {
            return Err(page.damaged("its tree is too deep"));
        }
        self.path.push((page, 0));
        Ok(())
    }

    /// The entry if its key is above the one before: a walk in circles ends here.
    fn ascending(&mut self, entry: Entry) -> Result<Entry, ReadError> {
        if self
            .last_key
            .as_ref()
            .is_some_and(|last| *last >= entry.key)
        {
            let page = self.path.last().map_or(0, |(page, _)| page.number);
            return Err(ReadError::Damaged {
                page,
                problem: "its keys are not in ascending order",
            });
        }
        self.last_key = Some(entry.key.clone());
        Ok(entry)
    }
}

fn entry_of(page: &Page, element: usize) -> Result<Entry, ReadError> {
    let element = leaf_element(&page.bytes, element);
    let element = element.ok_or(page.damaged("an entry points outside of the page"))?;
    Ok(Entry {
        key: element.key.to_vec(),
        value: element.value.to_vec(),
        is_bucket: element.flags & BUCKET_FLAG != 0,
    })
}

impl<R: Read + Seek> Iterator for Entries<'_, R> {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_entry();
        if next.is_err() {
            self.path.clear();
        }
        next.transpose()
    }
}
