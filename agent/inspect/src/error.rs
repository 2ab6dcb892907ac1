//! Errors of the inspection commands: message, next step, exit code.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use dormouse_agent_datapath::DatapathError;

/// Exit codes, independent of the output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: success; the answer is yes.
    Yes,
    /// 1: the answer is no.
    No,
    /// 2: the command line is wrong.
    Usage,
    /// 3: the agent, or the node's maps, cannot be reached.
    Unreachable,
    /// 4: permission denied.
    NotAllowed,
    /// 5: the object does not exist.
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

/// A failed command.
#[derive(Debug)]
pub struct InspectError {
    /// The exit code of the process.
    pub exit: Exit,
    /// The operation, its object, and the cause.
    pub message: String,
    /// The next step: a command or an argument.
    pub hint: String,
    /// stdout was closed by its reader: nothing is printed.
    quiet: bool,
}

impl InspectError {
    /// An error with its next step.
    pub fn new(exit: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: hint.into(),
            quiet: false,
        }
    }

    /// An argument that cannot be parsed or does not make sense.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message, hint)
    }

    /// The code that is printed with the error.
    pub fn code(&self) -> &'static str {
        match self.exit {
            Exit::Yes | Exit::No => "DM2000",
            Exit::Usage => "DM2002",
            Exit::Unreachable => "DM2003",
            Exit::NotAllowed => "DM2004",
            Exit::NotFound => "DM2005",
        }
    }

    /// Writes the error to stderr.
    pub fn print(&self) {
        if !self.quiet {
            // If stderr fails too, only the exit code is left.
            drop(writeln!(io::stderr(), "{self}"));
        }
    }
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, message, hint) = (self.code(), &self.message, &self.hint);
        write!(f, "error[{code}]: {message}\n  try: {hint}")
    }
}

impl From<io::Error> for InspectError {
    fn from(error: io::Error) -> Self {
        let mut failure = Self::new(
            Exit::No,
            format!("cannot write the answer: {error}"),
            "write to another file or pipe",
        );
        if error.kind() == io::ErrorKind::BrokenPipe {
            failure.exit = Exit::Yes;
            failure.quiet = true;
        }
        failure
    }
}

impl From<DatapathError> for InspectError {
    fn from(error: DatapathError) -> Self {
        let denied = matches!(&error, DatapathError::Unsupported(_))
            || number(&error) == Some(libc::EPERM)
            || number(&error) == Some(libc::EACCES);
        if denied {
            let hint = "run as root: sudo dormouse-agent ...";
            return Self::new(Exit::NotAllowed, chain(&error), hint);
        }
        let hint = "give the node's folder of pins with --node or --bpffs: ls /sys/fs/bpf/dormouse";
        Self::new(Exit::Unreachable, chain(&error), hint)
    }
}

/// The kernel's error number of the innermost cause.
fn number(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
        .last()
}

/// The chain of errors in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = InspectError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(error.quiet && error.exit == Exit::Yes);
    }

    #[test]
    fn an_error_names_the_next_step() {
        let text = InspectError::usage("what is \"x\"?", "write it so").to_string();
        assert_eq!(text, "error[DM2002]: what is \"x\"?\n  try: write it so");
    }
}
