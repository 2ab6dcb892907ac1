//! How a command ends: what failed, on which object, the cause once, and the next step.

use std::{io::Write, process::ExitCode};

use super::codes::Code;

/// Exit codes; the same whatever is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Yes.
    Yes,
    /// The answer is no.
    No,
    /// The command line is wrong.
    Usage,
    /// The server cannot be reached.
    Unreachable,
    /// It is not allowed.
    NotAllowed,
    /// It does not exist.
    NotFound,
}

impl Exit {
    /// The process's exit status.
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

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// Its number.
    pub code: Code,
    /// How the process ends.
    pub exit: Exit,
    /// What failed, on which object, and why.
    pub message: String,
    /// Further lines.
    pub notes: Vec<String>,
    /// What to do next.
    pub hint: String,
}

impl Failure {
    /// A failure without further lines.
    pub fn new(
        code: Code,
        exit: Exit,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            code,
            exit,
            message: message.into(),
            notes: Vec::new(),
            hint: hint.into(),
        }
    }

    /// The failure with one more line.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// What the server's answer to an attempt to `what` means. `origin` says where its address comes from.
    pub fn of_request(error: &kube::Error, what: &str, origin: &str) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status, what),
            kube::Error::SerdeError(error) => {
                let message =
                    format!("cannot {what}: the server's answer is not understood: {error}");
                Self::new(
                    Code::Output,
                    Exit::No,
                    message,
                    "use the same version of command and server",
                )
            }
            _ => {
                let message = format!("cannot {what}: {}", last_cause(error));
                let hint = "is `dormouse up` running there?";
                Self::new(Code::Unreachable, Exit::Unreachable, message, hint).note(origin)
            }
        }
    }

    fn of_status(status: &kube::core::Status, what: &str) -> Self {
        let (code, exit, hint) = match status.reason.as_str() {
            "NotFound" => (Code::NotFound, Exit::NotFound, "dormouse get apps -A"),
            "Forbidden" | "Unauthorized" => {
                (Code::NotAllowed, Exit::NotAllowed, "use another --context")
            }
            "Conflict" | "AlreadyExists" => (Code::Conflict, Exit::No, "try again"),
            "Invalid" | "BadRequest" => (
                Code::Refused,
                Exit::No,
                "mend what is named and apply again",
            ),
            _ => (Code::Server, Exit::No, "look at the server's log"),
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let notes: Vec<String> = causes
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        // The causes say it again, one a line.
        let told = match notes.as_slice() {
            [] => status.message.as_str(),
            _ => status.message.split(": ").next().unwrap_or_default(),
        };
        Self {
            code,
            exit,
            message: format!("cannot {what}: {told}"),
            notes,
            hint: hint.to_owned(),
        }
    }

    /// Writes the failure for people.
    pub fn print(&self, to: &mut dyn Write) {
        let id = self.code.id();
        let notes: Vec<String> = self
            .notes
            .iter()
            .map(|note| {
                format!(
                    "  {note}
"
                )
            })
            .collect();
        let notes = notes.concat();
        let text = format!(
            "error[{id}]: {}\n{notes}  try: {}        more: dormouse explain {id}\n",
            self.message, self.hint
        );
        // Where even stderr is gone, only the exit status is left to tell.
        drop(to.write_all(text.as_bytes()));
    }
}

/// What began a chain of errors: the only part of it that tells people something.
fn last_cause(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(
            Code::Output,
            Exit::No,
            format!("cannot write the answer: {error}"),
            "write to another place",
        )
    }
}
