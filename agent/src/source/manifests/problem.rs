//! Problems with a folder of manifests: errors stop the agent's start, problems are reported while it runs.

use std::path::PathBuf;

/// Why a folder cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum ManifestsError {
    /// It does not exist, is not a folder, or cannot be read.
    #[error(
        "failed to read the folder of manifests {}: create it, or give the path of one that this process may read",
        folder.display()
    )]
    Folder {
        /// The given path.
        folder: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// inotify's limits are reached.
    #[error(
        "failed to watch {}: raise fs.inotify.max_user_instances and fs.inotify.max_user_watches (sysctl)",
        folder.display()
    )]
    Watch {
        /// The given path.
        folder: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// A mistake that the user has to correct; other objects are not affected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// A file cannot be read.
    #[error("{file}: {what}; its previous objects stay")]
    Unreadable {
        /// The file's path.
        file: String,
        /// The cause.
        what: String,
    },
    /// A part of a file cannot be used.
    #[error(
        "{file}, document {document}, line {line}: {what}; the file's previous objects stay until it is corrected"
    )]
    Malformed {
        /// The file's path.
        file: String,
        /// The document's number within the file, from 1; empty documents are not counted.
        document: usize,
        /// The line within the file, from 1.
        line: u64,
        /// The mistake.
        what: String,
    },
    /// A file has more mistakes than are reported.
    #[error("{file}: {count} more mistakes")]
    More {
        /// The file's path.
        file: String,
        /// Number of mistakes that are not reported.
        count: usize,
    },
    /// Two descriptions of one object.
    #[error(
        "{object} is described in {winner} and in {loser}: the first is used; remove or rename the other"
    )]
    Duplicate {
        /// The object, as `Kind namespace/name`.
        object: String,
        /// The place of the used description.
        winner: String,
        /// The place of the ignored description.
        loser: String,
    },
    /// The folder was deleted or moved away.
    #[error("{folder} was deleted: its last objects stay in use; create it again")]
    FolderGone {
        /// The folder's path.
        folder: String,
    },
    /// The watch of the folder failed.
    #[error("changes in {folder} are no longer detected: {what}; restart the agent")]
    Blind {
        /// The folder's path.
        folder: String,
        /// The cause.
        what: String,
    },
}

impl Problem {
    /// Whether all objects of the folder are known in spite of the problem.
    pub fn loses_nothing(&self) -> bool {
        matches!(self, Self::Duplicate { .. })
    }
}
