//! etcd's snapshot files: the state of a store at one revision, in a bbolt database with a SHA-256
//! behind it. Pure: it reads and writes streams, and has no store of its own.
//!
//! A snapshot that is written has one version of each key, the one at its revision, and the history
//! before it marked as compacted. Of a snapshot that is read, that state is taken and the history
//! left. Member lists and the position in etcd's Raft log are neither written nor taken: the
//! restore of either side starts a new cluster.
#![forbid(unsafe_code)]

mod checksum;
mod error;
mod read;
mod record;
mod schema;
mod write;

pub use checksum::{CHECKSUM_BYTES, Checksummed};
pub use dormouse_bbolt::{Shape, Writer};
pub use error::{ExportError, ImportError};
pub use read::{Integrity, read};
pub use record::{Auth, Head, KeyValue, Lease, Named, Pairs, Snapshot};
pub use write::{Version, write};
