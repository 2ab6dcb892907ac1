//! Exit codes of both command lines, the same for every `-o` format.

use std::process::ExitCode;

/// The result of a command, as its exit status reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: success; the answer is yes.
    Yes,
    /// 1: the answer is no, or the command failed.
    No,
    /// 2: the command line is wrong.
    Usage,
    /// 3: the server, agent or map that holds the answer cannot be reached.
    Unreachable,
    /// 4: permission denied.
    NotAllowed,
    /// 5: the object does not exist.
    NotFound,
}

impl Exit {
    /// The process's exit status, 0 to 5.
    pub fn status(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::NotAllowed => 4,
            Self::NotFound => 5,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}
