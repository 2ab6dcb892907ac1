//! The end of a program that measures.

use std::process::ExitCode;

use anyhow::Result;

use crate::row::say;

/// The exit code of a run; an error is a line of standard error.
pub fn end(outcome: Result<()>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    say(&format!("error: {error:#}"));
    ExitCode::FAILURE
}
