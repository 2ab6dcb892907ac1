//! The writer: a new database in one pass from front to back, so that it can be streamed.
//!
//! The meta comes first and names the root page and the number of pages, which come last.
//! [`Writer::measure`] therefore takes the entries a first time, without an output.

mod node;
mod tree;

use std::io::{self, Write};

use crate::{
    PAGE_BYTES, WriteError,
    meta::Meta,
    page::{BUCKET_FLAG, FREELIST_FLAG, Header, META_FLAG},
};
use tree::Tree;

/// Number of the page with the list of free pages, which is empty: the first one behind the metas.
const FREELIST_PAGE: u64 = 2;

/// The numbers that stand at the front of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    root: u64,
    pages: u64,
}

impl Shape {
    /// Bytes of the database.
    pub fn bytes(&self) -> u64 {
        self.pages * PAGE_BYTES as u64
    }
}

/// Writes a database, bucket after bucket in the order of their names.
#[derive(Debug)]
#[must_use = "a database without its last pages cannot be read"]
pub struct Writer<W> {
    pages: Pages<W>,
    /// What the metas say; `None` while it is measured.
    shape: Option<Shape>,
    buckets: Tree,
}

/// Writes the entries of one bucket in the order of their keys.
#[derive(Debug)]
#[must_use = "a bucket is part of the database once it is finished"]
pub struct BucketWriter<W> {
    writer: Writer<W>,
    name: Vec<u8>,
    entries: Tree,
}

impl Writer<io::Sink> {
    /// A writer without an output, whose [`Writer::finish`] returns the shape of the database.
    pub fn measure() -> Self {
        Self {
            pages: Pages::behind_metas(io::sink()),
            shape: None,
            buckets: Tree::default(),
        }
    }
}

impl<W: Write> Writer<W> {
    /// Starts a database with the shape that was measured of the same entries.
    pub fn new(out: W, shape: Shape) -> Result<Self, WriteError> {
        let mut pages = Pages { out, next: 0 };
        for transaction in 0..FREELIST_PAGE {
            pages.write(META_FLAG, &meta(shape, transaction).encode())?;
        }
        pages.write(FREELIST_FLAG, &[])?;
        Ok(Self {
            pages,
            shape: Some(shape),
            buckets: Tree::default(),
        })
    }

    /// Starts the next bucket.
    pub fn bucket(self, name: &[u8]) -> BucketWriter<W> {
        BucketWriter {
            writer: self,
            name: name.to_vec(),
            entries: Tree::default(),
        }
    }

    /// Ends the database; returns the output and the shape.
    pub fn finish(mut self) -> Result<(W, Shape), WriteError> {
        let root = self.buckets.finish(&mut self.pages)?;
        let shape = Shape {
            root,
            pages: self.pages.next,
        };
        if self.shape.is_some_and(|measured| measured != shape) {
            return Err(WriteError::Shape);
        }
        self.pages.out.flush()?;
        Ok((self.pages.out, shape))
    }
}

impl<W: Write> BucketWriter<W> {
    /// Writes an entry, whose key is above all before it.
    pub fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.entries.insert(&mut self.writer.pages, 0, (key, value))
    }

    /// Ends the bucket, which may be empty.
    pub fn finish(mut self) -> Result<Writer<W>, WriteError> {
        let root = self.entries.finish(&mut self.writer.pages)?;
        let sequence = 0_u64;
        let value = [root.to_le_bytes(), sequence.to_le_bytes()].concat();
        let entry = (self.name.as_slice(), value.as_slice());
        self.writer
            .buckets
            .insert(&mut self.writer.pages, BUCKET_FLAG, entry)?;
        Ok(self.writer)
    }
}

/// The output and the number of its next page.
#[derive(Debug)]
struct Pages<W> {
    out: W,
    next: u64,
}

impl<W: Write> Pages<W> {
    /// An output that starts behind the metas and the list of free pages.
    fn behind_metas(out: W) -> Self {
        Self {
            out,
            next: FREELIST_PAGE + 1,
        }
    }

    /// Writes a page without elements.
    fn write(&mut self, flags: u16, body: &[u8]) -> Result<(), WriteError> {
        let header = Header {
            number: self.next,
            flags,
            elements: 0,
            overflow: 0,
        };
        let mut page = header.encode();
        page.extend(body);
        self.append(page)?;
        Ok(())
    }

    /// Writes a page, filled up with zeros to whole pages; returns its number.
    fn append(&mut self, mut page: Vec<u8>) -> Result<u64, WriteError> {
        page.resize(page.len().next_multiple_of(PAGE_BYTES), 0);
        self.out.write_all(&page)?;
        let number = self.next;
        self.next += (page.len() / PAGE_BYTES) as u64;
        Ok(number)
    }
}

fn meta(shape: Shape, transaction: u64) -> Meta {
    Meta {
        page_bytes: PAGE_BYTES_U32,
        root: shape.root,
        freelist: FREELIST_PAGE,
        pages: shape.pages,
        transaction,
    }
}

const PAGE_BYTES_U32: u32 = 4096;
const _: () = assert!(PAGE_BYTES_U32 as usize == PAGE_BYTES);
