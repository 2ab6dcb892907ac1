//! Errors of reading and writing snapshots.

use std::io;

use dormouse_bbolt::{ReadError, WriteError};

/// A snapshot that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("failed to read the snapshot")]
    Io(#[from] io::Error),
    /// The database cannot be read.
    #[error("failed to read the database of the snapshot")]
    Database(#[from] ReadError),
    /// The bytes are not those that were saved.
    #[error("the SHA-256 at the end of the snapshot is not that of its contents; use another copy")]
    Checksum,
    /// The file is a database without a SHA-256, such as `member/snap/db` of a data directory.
    #[error(
        "the snapshot has no SHA-256 at its end: it was not saved by `etcdctl snapshot save`; \
         skip the check only if the file comes from a data directory of a stopped etcd"
    )]
    NoChecksum,
    /// The database is not etcd's.
    #[error("the database has no bucket `{0}`: it is not a snapshot of etcd 3")]
    NoBucket(&'static str),
    /// A record that etcd does not write.
    #[error("the bucket `{bucket}` holds {problem}; use another copy of the snapshot")]
    Record {
        /// The bucket.
        bucket: &'static str,
        /// The rule that a record breaks.
        problem: &'static str,
    },
}

/// A snapshot that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The output cannot be written.
    #[error("failed to write the snapshot")]
    Io(#[from] io::Error),
    /// The database cannot be written.
    #[error("failed to write the database of the snapshot")]
    Database(#[from] WriteError),
}
