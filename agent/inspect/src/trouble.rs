//! How a question ends: the exit codes, and what went wrong with its next step.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use dormouse_agent_datapath::DatapathError;

/// Exit codes; the same whatever is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Yes.
    Yes,
    /// The answer is no.
    No,
    /// The command line is wrong.
    Usage,
    /// What was to be asked cannot be reached.
    Unreachable,
    /// It is not allowed.
    NotAllowed,
    /// It does not exist.
    NotFound,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Yes => 0,
            Exit::No => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::NotAllowed => 4,
            Exit::NotFound => 5,
        })
    }
}

/// Why a question was not answered.
#[derive(Debug)]
pub struct Trouble {
    /// How the process ends.
    pub exit: Exit,
    /// What failed, on what, and why.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// Nobody reads the answer any more: nothing is said of it.
    quiet: bool,
}

impl Trouble {
    /// A failure with its next step.
    pub fn new(exit: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: hint.into(),
            quiet: false,
        }
    }

    /// Something on the command line cannot be meant.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message, hint)
    }

    /// The number under which people find more.
    pub fn code(&self) -> &'static str {
        match self.exit {
            Exit::Yes | Exit::No => "DM2000",
            Exit::Usage => "DM2002",
            Exit::Unreachable => "DM2003",
            Exit::NotAllowed => "DM2004",
            Exit::NotFound => "DM2005",
        }
    }

    /// Writes the failure for people.
    pub fn print(&self) {
        if !self.quiet {
            // Where even stderr is gone, only the exit status is left to tell.
            drop(writeln!(io::stderr(), "{self}"));
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, message, hint) = (self.code(), &self.message, &self.hint);
        write!(f, "error[{code}]: {message}\n  try: {hint}")
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        let mut trouble = Self::new(
            Exit::No,
            format!("cannot write the answer: {error}"),
            "write to another place",
        );
        if error.kind() == io::ErrorKind::BrokenPipe {
            trouble.exit = Exit::Yes;
            trouble.quiet = true;
        }
        trouble
    }
}

impl From<DatapathError> for Trouble {
    fn from(error: DatapathError) -> Self {
        let denied = matches!(&error, DatapathError::Unsupported(_))
            || number(&error) == Some(libc::EPERM)
            || number(&error) == Some(libc::EACCES);
        if denied {
            let hint = "run it as root: sudo dormouse-agent ...";
            return Self::new(Exit::NotAllowed, chain(&error), hint);
        }
        let hint = "name the node's folder of pins by --node or --bpffs: ls /sys/fs/bpf/dormouse";
        Self::new(Exit::Unreachable, chain(&error), hint)
    }
}

/// The kernel's error number at the begin of a chain of errors.
fn number(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
        .last()
}

/// The whole chain of errors in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_who_leaves_is_no_failure() {
        let trouble = Trouble::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(trouble.quiet && trouble.exit == Exit::Yes);
    }

    #[test]
    fn a_failure_says_what_to_do_next() {
        let text = Trouble::usage("what is \"x\"?", "write it so").to_string();
        assert_eq!(text, "error[DM2002]: what is \"x\"?\n  try: write it so");
    }
}
