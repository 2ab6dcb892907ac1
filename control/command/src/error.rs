//! Errors of commands: what failed and on which object, its cause once, the next step, and a code to look up.

use std::fmt;
use std::io::{self, Write};
use std::iter::successors;

use super::{Exit, runbooks};

/// A command's failure, as it is printed.
#[derive(Debug)]
pub struct CommandError {
    /// The number to look up, such as `DM1203`.
    pub code: &'static str,
    /// The exit status of the process.
    pub exit: Exit,
    /// What failed, on which object, and the cause.
    pub message: String,
    /// Further lines, printed below the message.
    pub notes: Vec<String>,
    /// What to do next.
    pub hint: String,
    /// The reader of stdout has gone (`| head`): nothing is printed.
    quiet: bool,
}

impl CommandError {
    /// An error without notes.
    pub fn new(
        code: impl Into<&'static str>,
        exit: Exit,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            code: code.into(),
            exit,
            message: message.into(),
            notes: Vec::new(),
            hint: hint.into(),
            quiet: false,
        }
    }

    /// The error with one more note.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Output could not be encoded in the requested format.
    pub(crate) fn encoding(error: &dyn std::error::Error) -> Self {
        let message = format!("cannot write the answer: {error}");
        Self::new(runbooks::OUTPUT, Exit::No, message, "use -o json")
    }

    /// Writes the error to `to`, usually stderr. `explain` is the command that prints a code's runbook, if there is one.
    /// Prints nothing if the reader of stdout has gone (`| head`).
    pub fn print(&self, to: &mut dyn Write, explain: Option<&str>) {
        if self.quiet {
            return;
        }
        let more = explain.map(|explain| format!("        more: {explain} {}", self.code));
        let text = format!("{self}{}\n", more.unwrap_or_default());
        // If stderr is closed too, only the exit status is left.
        drop(to.write_all(text.as_bytes()));
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error[{}]: {}", self.code, self.message)?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        write!(f, "  try: {}", self.hint)
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        let message = format!("cannot write the answer: {error}");
        let mut failure = Self::new(
            runbooks::OUTPUT,
            Exit::No,
            message,
            "write to another file or pipe",
        );
        if error.kind() == io::ErrorKind::BrokenPipe {
            failure.exit = Exit::Yes;
            failure.quiet = true;
        }
        failure
    }
}

/// An error with all its sources, in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let errors = successors(Some(error), |error| error.source());
    let texts: Vec<String> = errors.map(ToString::to_string).collect();
    texts.join(": ")
}

/// The innermost source of an error, or the error itself: `connection refused` instead of the layers above it.
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let root = successors(Some(error), |error| error.source()).last();
    root.unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    fn printed(error: &CommandError, explain: Option<&str>) -> String {
        let mut out = Vec::new();
        error.print(&mut out, explain);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_error_is_printed_with_its_notes_its_next_step_and_its_runbook() {
        let error = CommandError::new("DM2002", Exit::Usage, "what is \"x\"?", "write y");
        assert_eq!(
            printed(&error, None),
            "error[DM2002]: what is \"x\"?\n  try: write y\n"
        );
        assert_eq!(
            printed(&error.note("in a.yaml"), Some("dormouse explain")),
            "error[DM2002]: what is \"x\"?\n  in a.yaml\n  try: write y        more: dormouse explain DM2002\n"
        );
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = CommandError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(
            (error.exit, printed(&error, None)),
            (Exit::Yes, String::new())
        );
    }

    #[test]
    fn an_error_chain_has_every_source_and_the_root_cause_is_the_innermost() {
        let inner = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
        let outer = OuterError(inner);
        assert_eq!(error_chain(&outer), "cannot connect: connection refused");
        assert_eq!(root_cause(&outer), "connection refused");
        assert_eq!(root_cause(&outer.0), "connection refused");
    }

    #[derive(Debug)]
    struct OuterError(io::Error);

    impl fmt::Display for OuterError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot connect")
        }
    }

    impl Error for OuterError {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }
}
