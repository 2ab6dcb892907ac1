//! Errors of reading and writing databases.

use std::io;

/// A database that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("failed to read page {page} of the database")]
    Io {
        /// Number of the page.
        page: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Neither of the two meta pages is valid.
    #[error("not a bbolt database, or damaged: no valid meta page; use another copy of the file")]
    NoMeta,
    /// A page does not have the form that the format demands.
    #[error("page {page} of the database is damaged: {problem}; use another copy of the file")]
    Damaged {
        /// Number of the page.
        page: u64,
        /// The rule that it breaks.
        problem: &'static str,
    },
}

/// A database that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output cannot be written.
    #[error("failed to write the database")]
    Io(#[from] io::Error),
    /// A key is not above the one before it.
    #[error("keys of a bucket, and names of buckets, must be written in ascending order")]
    NotAscending,
    /// A key or a value is longer than bbolt allows, or a key is empty.
    #[error("a key of {key} and a value of {value} bytes do not fit into a bbolt database")]
    Length {
        /// Bytes of the key: 1 to 32,768.
        key: usize,
        /// Bytes of the value: at most 2 GiB.
        value: usize,
    },
    /// The contents are not those that the shape was measured of.
    #[error("the database differs from the one that was measured: write the same entries twice")]
    Shape,
}
