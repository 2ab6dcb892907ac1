//! Errors of the inspection commands: message, next step, exit code.

use std::io;
use std::ops::Deref;

use dormouse_agent_datapath::DatapathError;
pub use dormouse_command::Exit;
use dormouse_command::{CommandError, error_chain, runbooks, screen_width};

/// A failed command. Its code follows from its exit status.
#[derive(Debug)]
pub struct InspectError(CommandError);

impl InspectError {
    /// An error with its next step.
    pub fn new(exit: Exit, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(CommandError::new(code(exit), exit, message, hint))
    }

    /// An argument that cannot be parsed or does not make sense.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message, hint)
    }

    /// Writes the error to stderr.
    pub fn print(&self) {
        let stderr = io::stderr();
        self.0.print(&mut &stderr, None, screen_width(&stderr));
    }

    /// Only root may do it.
    pub fn not_allowed(message: String) -> Self {
        Self::new(
            Exit::NotAllowed,
            message,
            "run as root: sudo dormouse-agent ...",
        )
    }
}

/// The code that is printed with an error.
fn code(exit: Exit) -> &'static str {
    match exit {
        Exit::Yes | Exit::No => runbooks::ANSWER,
        Exit::Usage => runbooks::USAGE,
        Exit::Unreachable => runbooks::UNREACHABLE,
        Exit::NotAllowed => runbooks::NOT_ALLOWED,
        Exit::NotFound => runbooks::NOT_FOUND,
    }
}

impl Deref for InspectError {
    type Target = CommandError;

    fn deref(&self) -> &CommandError {
        &self.0
    }
}

impl std::fmt::Display for InspectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl From<CommandError> for InspectError {
    fn from(error: CommandError) -> Self {
        Self(error)
    }
}

impl From<io::Error> for InspectError {
    fn from(error: io::Error) -> Self {
        Self(error.into())
    }
}

impl From<DatapathError> for InspectError {
    fn from(error: DatapathError) -> Self {
        let denied = matches!(&error, DatapathError::Unsupported(_))
            || number(&error) == Some(libc::EPERM)
            || number(&error) == Some(libc::EACCES);
        if denied {
            return Self::not_allowed(error_chain(&error));
        }
        let hint = "give the node's folder of pins with --node or --bpffs: ls /sys/fs/bpf/dormouse";
        Self::new(Exit::Unreachable, error_chain(&error), hint)
    }
}

/// The kernel's error number of the innermost cause.
fn number(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
        .last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = InspectError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.exit, Exit::Yes);
    }

    #[test]
    fn an_error_names_the_next_step() {
        let text = InspectError::usage("what is \"x\"?", "write it so").to_string();
        assert_eq!(text, "error[DM2002]: what is \"x\"?\n  try: write it so");
    }
}
