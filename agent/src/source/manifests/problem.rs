//! What is wrong with a folder of manifests: some of it stops the agent's start, the rest is told and lived with.

use std::path::PathBuf;

/// Why a folder cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum ManifestsError {
    /// It is not there, is no folder, or may not be read.
    #[error(
        "failed to read the folder of manifests {}: create it, or give the path of one that this process may read",
        folder.display()
    )]
    Folder {
        /// The path that was given.
        folder: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel has no watch left.
    #[error(
        "failed to watch {}: raise fs.inotify.max_user_instances and fs.inotify.max_user_watches (sysctl)",
        folder.display()
    )]
    Watch {
        /// The path that was given.
        folder: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// One thing that a person has to mend; whatever it does not concern goes on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// A file cannot be read at all.
    #[error("{file}: {what}; the objects that it had stay as they were")]
    Unreadable {
        /// The file's path.
        file: String,
        /// Why not.
        what: String,
    },
    /// A part of a file says nothing that can be used.
    #[error(
        "{file}, document {document}, line {line}: {what}; what the file last said of other objects stays until it is mended"
    )]
    Malformed {
        /// The file's path.
        file: String,
        /// The document's number within the file, from 1; documents without content do not count.
        document: usize,
        /// The line within the file, from 1.
        line: u64,
        /// What is wrong there.
        what: String,
    },
    /// More of a file is malformed than is worth telling.
    #[error("{file}: {count} more faults")]
    More {
        /// The file's path.
        file: String,
        /// How many were not told.
        count: usize,
    },
    /// An object is described twice.
    #[error(
        "{object} is described in {winner} and in {loser}: the first counts; remove or rename the other"
    )]
    Duplicate {
        /// The object, as `Kind namespace/name`.
        object: String,
        /// Whose description is in force.
        winner: String,
        /// Whose is not.
        loser: String,
    },
    /// The folder was removed or moved away.
    #[error("{folder} is gone: what it last said stays in force; create it again")]
    FolderGone {
        /// The folder's path.
        folder: String,
    },
    /// The folder cannot be watched any more.
    #[error("changes in {folder} are not seen: {what}; restart the agent")]
    Blind {
        /// The folder's path.
        folder: String,
        /// Why not.
        what: String,
    },
}

impl Problem {
    /// Every object of the folder is known in spite of it.
    pub fn loses_nothing(&self) -> bool {
        matches!(self, Self::Duplicate { .. })
    }
}
