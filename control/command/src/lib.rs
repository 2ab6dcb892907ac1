//! Command-line output: the exit codes, error messages, `-o` formats and tables of `dormouse` and `dormouse-agent`.
#![forbid(unsafe_code)]

mod error;
mod exit;
mod format;
mod screen;
mod table;

pub use error::{CommandError, error_chain, root_cause};
pub use exit::Exit;
pub use format::{ListFormat, OutputFormat, write_value};
pub use screen::{screen_width, wrap};
pub use table::Columns;
