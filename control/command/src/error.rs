//! Errors of commands: what failed and on which object, its cause once, the next step, and a code to look up.

use std::fmt;
use std::io::{self, Write};
use std::iter::successors;

use super::{Exit, runbooks, wrap};

/// Spaces before the lines below the message, and before what a line goes on with.
const INDENT: usize = 2;

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

    /// Writes the error to `to`, usually stderr, wrapped to a screen of this width. `explain` is the command that prints a code's
    /// runbook, if there is one. Prints nothing if the reader of stdout has gone (`| head`).
    pub fn print(&self, to: &mut dyn Write, explain: Option<&str>, width: Option<usize>) {
        if self.quiet {
            return;
        }
        let text = self.text(explain, width);
        // If stderr is closed too, only the exit status is left.
        drop(to.write_all((text + "\n").as_bytes()));
    }

    /// The message, its notes and the next step; what does not fit in a line goes on in the next one, below its begin.
    fn text(&self, explain: Option<&str>, width: Option<usize>) -> String {
        let mut lines = hanging(&format!("error[{}]: {}", self.code, self.message), 0, width);
        for note in &self.notes {
            lines.extend(hanging(note, INDENT, width));
        }
        let more = explain.map(|explain| format!("more: {explain} {}", self.code));
        let hint = format!("try: {}", self.hint);
        let both = more.as_ref().map(|more| format!("{hint}        {more}"));
        let fits = |line: &String| width.is_none_or(|width| INDENT + line.chars().count() <= width);
        let last = match both.filter(fits) {
            Some(both) => vec![both],
            None => [hint].into_iter().chain(more).collect(),
        };
        for line in last {
            lines.extend(hanging(&line, INDENT, width));
        }
        lines.join("\n")
    }
}

/// The lines of a text: the first one begins after `indent` spaces, the further ones two later.
fn hanging(text: &str, indent: usize, width: Option<usize>) -> Vec<String> {
    let width = width.map(|width| width.saturating_sub(indent + INDENT));
    let lines = text.lines().flat_map(|line| wrap(line, width));
    let line = |(number, line): (usize, String)| {
        let indent = if number == 0 { indent } else { indent + INDENT };
        format!("{:indent$}{line}", "")
    };
    lines.enumerate().map(line).collect()
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(None, None))
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
        error.print(&mut out, explain, None);
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
    fn an_error_is_wrapped_at_words_to_the_screen() {
        let message = "app shop/web: revision 3: no progress within 600 s";
        let error = CommandError::new("DM1307", Exit::No, message, "dormouse explain app web");
        let mut out = Vec::new();
        error.note("0 of 1 pods are ready since 12 s").print(
            &mut out,
            Some("dormouse explain"),
            Some(40),
        );
        let want = "\
error[DM1307]: app shop/web: revision
  3: no progress within 600 s
  0 of 1 pods are ready since 12 s
  try: dormouse explain app web
  more: dormouse explain DM1307
";
        assert_eq!(String::from_utf8(out).unwrap(), want);
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
