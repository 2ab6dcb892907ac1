//! The errors of building, using and removing a world.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// Why a world could not be built, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// Namespaces, cgroups and BPF pins are root's.
    #[error("run as root: sudo -E cargo xtask test")]
    NotRoot,
    /// A name that would be ambiguous: everything of a world is found by `<prefix>-`.
    #[error("a world's prefix is 1 to 8 letters and digits, not `{prefix}`")]
    Prefix {
        /// The refused prefix.
        prefix: String,
    },
    /// More nodes than have addresses, or none.
    #[error("a world has 1 to {max} nodes, not {nodes}")]
    Nodes {
        /// The refused number.
        nodes: u8,
        /// The largest number.
        max: u8,
    },
    /// Two runs at a time would remove each other's parts.
    #[error("another process has the world `{prefix}`: end it first")]
    InUse {
        /// The world's prefix.
        prefix: String,
    },
    /// A program that configures the network failed.
    #[error("`{program}` failed: {output}")]
    Refused {
        /// The command.
        program: String,
        /// What it wrote.
        output: String,
    },
    /// A file or folder could not be read, written, made or removed.
    #[error("failed to {operation} {path}", path = path.display())]
    File {
        /// What was attempted.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A system call failed.
    #[error("failed to {operation} {path}", path = path.display())]
    Call {
        /// What was attempted.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Errno,
    },
    /// A program could not be started.
    #[error("failed to start `{program}`")]
    Start {
        /// The program.
        program: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A signal did not reach a process.
    #[error("failed to signal process {pid}")]
    Signal {
        /// The process.
        pid: u32,
        /// Why not.
        #[source]
        source: Errno,
    },
    /// A process did not end.
    #[error("process {pid} did not end within {limit_ms} ms")]
    Alive {
        /// The process.
        pid: u32,
        /// How long was waited.
        limit_ms: u128,
    },
    /// Removal goes on after a failure; these are all of them.
    #[error("failed to remove all of the world `{prefix}`: {}", failures.join("; "))]
    Removal {
        /// The world's prefix.
        prefix: String,
        /// One sentence each.
        failures: Vec<String>,
    },
}

impl WorldError {
    /// A function for `map_err`: what was attempted on which path.
    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            operation,
            path,
            source,
        }
    }

    /// A function for `map_err`: which system call was attempted on which path.
    pub(crate) fn call(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(Errno) -> Self {
        let path = path.into();
        move |source| Self::Call {
            operation,
            path,
            source,
        }
    }

    /// The error with its causes, in one line.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        text
    }
}
