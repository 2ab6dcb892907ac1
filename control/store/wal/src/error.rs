//! Errors of the journal: refusals to open a directory, and the failure that ends acknowledgements.

use std::{io, sync::Arc};

/// An operation on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {operation} `{file}`")]
pub struct FileError {
    /// The operation, such as `write`.
    pub operation: &'static str,
    /// The name of the file in the data directory, or the directory's path.
    pub file: String,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// A function that adds the operation and the file to an error of the operating system.
    pub(crate) fn of<'a>(
        operation: &'static str,
        file: &'a str,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self {
            operation,
            file: file.to_owned(),
            source,
        }
    }
}

/// The reason for which a data directory is refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The first records of a run could not be written.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The directory's lock is taken.
    #[error("`{0}` is in use by another process: stop that process, or use another data directory")]
    InUse(String),
    /// The file was written by a newer release.
    #[error(
        "`{file}` has format {format}, this release reads formats up to {known}: start the release that wrote it"
    )]
    NewerFormat {
        /// The name of the file.
        file: String,
        /// The format of the file.
        format: u32,
        /// The newest format that this release reads.
        known: u32,
    },
    /// The file belongs to another cluster than the directory's other files.
    #[error(
        "`{file}` belongs to cluster {found:x}, the data directory to cluster {expected:x}: move the file away, or use the data directory it belongs to"
    )]
    OtherCluster {
        /// The name of the file.
        file: String,
        /// The cluster ID of the file.
        found: u64,
        /// The cluster ID of the directory.
        expected: u64,
    },
    /// A segment between others is missing.
    #[error("segment `{0}` is missing: put it back, or restore a snapshot to another directory")]
    Missing(String),
    /// A segment was not written after the segment before it.
    #[error(
        "`{0}` does not continue the segment before it: put back the segments that were written one after the other, or restore a snapshot to another directory"
    )]
    NotContinued(String),
    /// The bytes of a file do not match their checksum.
    #[error(
        "`{file}` is damaged at byte {offset} ({detail}): restore a snapshot to another directory, or accept the loss of all later writes: move `{file}` and the segments after it away, `truncate -s {offset}` a copy of it and put the copy back"
    )]
    Damaged {
        /// The name of the file.
        file: String,
        /// Bytes from the start of the file.
        offset: u64,
        /// The check that failed.
        detail: &'static str,
    },
    /// The bytes of a snapshot do not match their checksum.
    #[error(
        "`{file}` is damaged at byte {offset} ({detail}): restore a backup to another directory"
    )]
    DamagedSnapshot {
        /// The name of the file.
        file: String,
        /// Bytes from the start of the file.
        offset: u64,
        /// The check that failed.
        detail: &'static str,
    },
    /// The caller could not decode a record whose checksum is right.
    #[error(
        "`{file}` has a record at byte {offset} that this release cannot read: start the release that wrote it"
    )]
    Record {
        /// The name of the file.
        file: String,
        /// Bytes from the start of the file.
        offset: u64,
        /// The error of the caller.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The first failed write or sync. The journal acknowledges nothing after it, and does not retry: the
/// kernel may drop the pages of a failed sync, and a retry would then succeed without them.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal failed, no write is acknowledged until the server is restarted")]
pub struct Failure(#[source] Arc<FileError>);

impl Failure {
    pub(crate) fn new(error: FileError) -> Self {
        Self(Arc::new(error))
    }

    /// The operation, the file and the error of the operating system, in one line.
    pub fn reason(&self) -> String {
        format!("{}: {}", self.0, self.0.source)
    }
}
