//! The reader: all entries of a bucket in key order, a page at a time.

mod entries;

use std::io::{Read, Seek, SeekFrom};

pub use entries::{Entries, Entry};

use crate::{
    PAGE_BYTES, ReadError,
    meta::{META_PAGE_BYTES, Meta},
    page::{BUCKET_BYTES, HEADER_BYTES, Header, u64_at},
};

/// Bytes of the largest page of an element, with its overflow pages: the longest value that etcd
/// can hold is below 2 GiB, one that it writes below 100 MiB. Bounds what a damaged header allocates.
const PAGE_BYTES_MAX: u64 = 2 << 30;

/// A database that is open for reading. The file must not change meanwhile.
#[derive(Debug)]
pub struct Database<R> {
    file: R,
    meta: Meta,
}

/// A page that was read, with its overflow pages.
#[derive(Debug)]
struct Page {
    number: u64,
    header: Header,
    bytes: Vec<u8>,
}

impl Page {
    fn damaged(&self, problem: &'static str) -> ReadError {
        ReadError::Damaged {
            page: self.number,
            problem,
        }
    }
}

impl<R: Read + Seek> Database<R> {
    /// Opens the database in a file, which may have further bytes behind it.
    pub fn open(mut file: R) -> Result<Self, ReadError> {
        let first = meta_at(&mut file, 0)?;
        let page_bytes = first.map_or(PAGE_BYTES as u64, |meta| u64::from(meta.page_bytes));
        let second = meta_at(&mut file, page_bytes)?;
        let newest = first
            .into_iter()
            .chain(second)
            .max_by_key(|meta| meta.transaction);
        let meta = newest.ok_or(ReadError::NoMeta)?;
        Ok(Self { file, meta })
    }

    /// Bytes of the database.
    pub fn bytes(&self) -> u64 {
        self.meta
            .pages
            .saturating_mul(u64::from(self.meta.page_bytes))
    }

    /// The entries of a bucket of the root bucket; `None` if there is no such bucket.
    pub fn bucket(&mut self, name: &[u8]) -> Result<Option<Entries<'_, R>>, ReadError> {
        let root = self.page(self.meta.root)?;
        let mut buckets = Entries::of(self, root);
        let found = buckets.find(|entry| !matches!(entry, Ok(entry) if entry.key != name));
        let Some(bucket) = found.transpose()? else {
            return Ok(None);
        };
        let root = self.bucket_root(&bucket)?;
        Ok(Some(Entries::of(self, root)))
    }

    /// The root page of the bucket in an entry.
    fn bucket_root(&mut self, bucket: &Entry) -> Result<Page, ReadError> {
        let damaged = |problem| ReadError::Damaged {
            page: self.meta.root,
            problem,
        };
        let root = u64_at(&bucket.value, 0).filter(|_| bucket.is_bucket);
        match root.ok_or(damaged("an entry of the root bucket is not a bucket"))? {
            0 => {
                let page = bucket.value.get(BUCKET_BYTES..).unwrap_or_default();
                let header = Header::decode(page).ok_or(damaged("a bucket without a page"))?;
                Ok(Page {
                    number: self.meta.root,
                    header,
                    bytes: page.to_vec(),
                })
            }
            root => self.page(root),
        }
    }

    /// Reads a page and its overflow pages.
    fn page(&mut self, number: u64) -> Result<Page, ReadError> {
        let damaged = |problem| ReadError::Damaged {
            page: number,
            problem,
        };
        let page_bytes = u64::from(self.meta.page_bytes);
        if number >= self.meta.pages {
            return Err(damaged("it is behind the end of the database"));
        }
        let start = number
            .checked_mul(page_bytes)
            .ok_or(damaged("its number is too high"))?;
        let read = |file: &mut R, len| {
            read_at(file, start, len).map_err(|source| ReadError::Io {
                page: number,
                source,
            })
        };
        let head = read(&mut self.file, HEADER_BYTES as u64)?;
        let header = Header::decode(&head).ok_or(damaged("the file is cut off"))?;
        let pages = 1 + u64::from(header.overflow);
        if header.number != number {
            return Err(damaged("it has the number of another page"));
        }
        if pages > self.meta.pages - number || pages * page_bytes > PAGE_BYTES_MAX {
            return Err(damaged("it is longer than the database"));
        }
        let bytes = read(&mut self.file, pages * page_bytes)?;
        if bytes.len() as u64 != pages * page_bytes {
            return Err(damaged("the file is cut off"));
        }
        Ok(Page {
            number,
            header,
            bytes,
        })
    }
}

fn meta_at<R: Read + Seek>(file: &mut R, start: u64) -> Result<Option<Meta>, ReadError> {
    let page = read_at(file, start, META_PAGE_BYTES as u64);
    let page = page.map_err(|source| ReadError::Io {
        page: u64::from(start != 0),
        source,
    })?;
    Ok(Meta::decode(&page))
}

/// At most `len` bytes: fewer at the end of the file.
fn read_at<R: Read + Seek>(file: &mut R, start: u64, len: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}
