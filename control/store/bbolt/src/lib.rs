//! bbolt database files, the format of etcd's snapshots: a reader of whole buckets in key order, and
//! a writer that streams a new database.
//!
//! A database is a file of pages. The pages 0 and 1 hold the meta; the newer valid one names the
//! root page of the root bucket, a B+-tree of names whose values name the root pages of the other
//! buckets. Numbers are little-endian, as on all machines that etcd supports. The layouts are those
//! of bbolt's `internal/common` (`page.go`, `meta.go`, `bucket.go`), format version 2.
#![forbid(unsafe_code)]

mod error;
mod meta;
mod page;
mod read;
mod write;

pub use error::{ReadError, WriteError};
pub use read::{Database, Entries, Entry};
pub use write::{BucketWriter, Shape, Writer};

/// Bytes of a page in files that [`Writer`] writes, as on the machines that etcd supports. A file
/// that was written with larger pages names their size in its meta.
pub const PAGE_BYTES: usize = 4096;
